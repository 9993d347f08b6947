"""What a wrong address, or a server that means harm, must not do: no exception of another kind, no hanging."""

from __future__ import annotations

import ssl
import time

import pytest
import urllib3

from infra.kube.classify import classify, is_status
from infra.kube.decoding import loads
from infra.kube.errors import Call, KubeError, clean
from infra.kube.transport import _read, tls_context
from infra.outbound import EndpointError, direct
from infra.outbound.client import Reply
from infra.outbound.direct import DirectClient, address_problem
from infra.prometheus import PrometheusError
from infra.prometheus.decoding import _retry_after, decoded, series_of
from portal.kernel.text import storable
from tests.support.answering import answering

NO_HOSTS = ["http://a..b", f"http://{'a' * 64}.example", "http://-ä-.example", "http://[v1.x]", "http://ho\x01st"]


@pytest.mark.parametrize("url", NO_HOSTS)
def test_a_host_that_can_be_none_is_told(url: str) -> None:
    assert "no address" in address_problem(url)
    client = DirectClient("Prometheus of cluster a", url, {}, None)
    for ask in (client.get, client.post_form):
        with pytest.raises(EndpointError) as caught:
            ask("/api/v1/query", [("query", "up")], timeout=2)
        assert caught.value.cause == "address"
    client.close()


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "169.254.0.1:8080", "[fe80::1]", "[fe80::1%25eth0]", "[::ffff:169.254.169.254]"]
)
def test_link_local_addresses_are_not_asked(host: str) -> None:
    assert "link-local" in address_problem(f"http://{host}/latest")


@pytest.mark.parametrize("host", ["prometheus.example.org", "10.0.0.1:9090", "[2001:db8::1]", "127.0.0.1"])
def test_others_are(host: str) -> None:
    assert address_problem(f"http://{host}/latest") == ""


def test_nor_by_a_name_that_leads_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering() as server:
        server.say("/x", body=b"credentials")
        client = DirectClient("Prometheus of cluster a", server.url.replace("127.0.0.1", "localhost"), {}, None)
        assert client.get("/x").body == b"credentials"
        monkeypatch.setattr(direct, "is_link_local", lambda host: host == "127.0.0.1")
        with pytest.raises(EndpointError, match="link-local") as caught:
            client.get("/x")
        client.close()
    assert caught.value.cause == "address"


@pytest.mark.parametrize("text", ["é", "-----BEGIN CERTIFICATE-----\né\n-----END CERTIFICATE-----", "\ud800", "x"])
def test_what_is_no_certificate_is_an_error_of_tls(text: str) -> None:
    with pytest.raises(ssl.SSLError):
        tls_context(text)


def vector(pair: str) -> Reply:
    row = '{"metric":{"a":"x\\u0000\\ud800"},"value":%s}' % pair  # noqa: UP031  # braces are JSON's here
    return Reply(200, {}, ('{"status":"success","data":{"resultType":"vector","result":[%s]}}' % row).encode())  # noqa: UP031


@pytest.mark.parametrize(
    "pair",
    ['[Infinity,"1"]', '[NaN,"1"]', '[1e99999999,"1"]', '[1e999990,"1"]', '[-1,"1"]', '[1e20,"1"]', '[1,"1e999999"]'],
)
def test_numbers_that_are_no_float_are_no_answer(pair: str) -> None:
    with pytest.raises(PrometheusError) as caught:
        series_of(decoded(vector(pair), "Prometheus"), "Prometheus")
    assert caught.value.kind == "unreadable"


def test_the_largest_float_and_labels_that_can_not_be_stored() -> None:
    (series,) = series_of(decoded(vector('[1,"1.7976931348623157e308"]'), "Prometheus"), "Prometheus")
    assert series.samples[0][0] == 1000
    assert series.labels == {"a": "x\ufffd\ufffd"}


def test_what_a_server_says_can_be_stored_and_is_cut_before_it_is_searched() -> None:
    with pytest.raises(PrometheusError) as caught:
        decoded(Reply(500, {}, b"\x00boom"), "Prometheus")
    assert storable(caught.value.sentence)
    assert storable(clean("a\x00\ud800"))
    assert len(clean("//" + "a:" * 2_000_000)) <= 600
    assert "s3cret" not in clean("https://me:s3cret@example.org")


def test_a_server_may_ask_for_an_hour_at_most() -> None:
    for text in ("9" * 400, "99999999"):
        assert _retry_after(Reply(429, {"retry-after": text}, b"")) == 3600
    assert _retry_after(Reply(429, {"retry-after": "²"}, b"")) is None


def test_nesting_is_no_json() -> None:
    with pytest.raises(ValueError, match="deeply"):
        loads(b"[" * 200_000)
    assert not is_status(b'{"a":' * 200_000)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 429, 500, 503])
@pytest.mark.parametrize(
    "body",
    [
        '{"kind":"Status","details":"x","metadata":"y","message":7}',
        '{"kind":"Status","details":{"causes":"x","retryAfterSeconds":1e999},"metadata":[1]}',
        '{"kind":"Status","details":{"causes":[1,{"reason":2}],"kind":3,"name":4},"message":["x"],"reason":{}}',
    ],
)
def test_what_only_calls_itself_a_status(status: int, body: str) -> None:
    error = classify(status, {"Retry-After": "²"}, body.encode(), Call("a", "read", "Service", "x", "y"))
    assert isinstance(error, KubeError)


def test_an_answer_that_drips_ends_with_its_time() -> None:
    with answering() as server:
        server.say("/x", body=b"x" * 400, pause=0.05)
        response = urllib3.request("GET", f"{server.url}/x", preload_content=False)
        with pytest.raises(TimeoutError):
            _read(response, 1000, time.monotonic() + 0.2)
        assert response.tell() < 100, "it was left before its end"
        response.close()
