"""The client against a server that answers in every way that a server can."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from infra.outbound.direct import DirectClient
from infra.prometheus import PrometheusClient, PrometheusError
from tests.support.answering import AnsweringServer, Asked, answering

AT = datetime(2026, 1, 1, tzinfo=UTC)
MS = 1_767_225_600_000


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with answering() as running:
        yield running


@pytest.fixture
def client(server: AnsweringServer) -> Iterator[PrometheusClient]:
    http = DirectClient("Prometheus of cluster a", server.url, {}, None)
    yield PrometheusClient(http)
    http.close()


def answer(*result: object, kind: str = "matrix", **more: object) -> dict[str, object]:
    return {"status": "success", "data": {"resultType": kind, "result": list(result)}, **more}


def test_values_are_decimals_with_times_in_milliseconds_and_what_is_no_number_is_unknown(
    server: AnsweringServer, client: PrometheusClient
) -> None:
    texts = ("0.1", "NaN", "+Inf", "-Inf", "1e2")
    values = [[1767225600.123 + second, text] for second, text in enumerate(texts)]
    server.say("/api/v1/query", body=answer({"metric": {"__name__": "up", "a": "b"}, "values": values}))
    (series,) = client.instant("up[5m]", AT)
    assert series.name == "up"
    assert series.samples == (
        (MS + 123, Decimal("0.1")), (MS + 1123, None), (MS + 2123, None), (MS + 3123, None), (MS + 4123, Decimal(100)),
    )  # fmt: skip


def test_vectors_scalars_and_empty_answers(server: AnsweringServer, client: PrometheusClient) -> None:
    server.say("/api/v1/query", body=answer({"metric": {}, "value": [1, "2"]}, kind="vector"))
    assert client.instant("x", AT)[0].samples == ((1000, Decimal(2)),)
    server.say("/api/v1/query", body={"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}})
    assert client.instant("x", AT)[0].samples == ((1000, Decimal(2)),)
    server.say("/api/v1/query", body=answer(kind="vector"))
    assert client.instant("x", AT) == []


def test_raw_asks_for_exactly_the_window_and_drops_what_lies_outside(
    server: AnsweringServer, client: PrometheusClient
) -> None:
    end = AT + timedelta(minutes=5)
    edges = [[1767225599.999, "1"], [1767225600, "2"], [1767225899.999, "3"], [1767225900, "4"]]
    server.say(
        "/api/v1/query", body=answer({"metric": {}, "values": edges}, {"metric": {"b": "c"}, "values": edges[:1]})
    )
    (series,) = client.raw("up", AT, end)
    assert [value for _, value in series.samples] == [2, 3]
    assert (server.asked[0].query["query"], server.asked[0].query["time"]) == ("up[300000ms]", "1767225899.999")
    assert client.raw("up", AT, AT) == []


def test_a_range_is_asked_with_its_edges(server: AnsweringServer, client: PrometheusClient) -> None:
    server.say("/api/v1/query_range", body=answer())
    client.range("up", AT, AT + timedelta(minutes=1), timedelta(seconds=15))
    asked = server.asked[0].query
    assert (asked["start"], asked["end"], asked["step"]) == ("1767225600.000", "1767225660.000", "15.000")


def test_matchers_are_in_every_selector_escaped_and_a_query_without_them_is_refused(server: AnsweringServer) -> None:
    http = DirectClient("P", server.url, {}, None)
    client = PrometheusClient(http, {"cluster": 'a"} or up{b="\n'})
    server.say("/api/v1/query", body=answer())
    written = client.selector(["up", "down"], equal={"pod": "x"}, regex={"node": "a|b"})
    assert written == '{cluster="a\\"} or up{b=\\"\\n",pod="x",node=~"a|b",__name__=~"down|up"}'
    client.instant(f"sum({written})", AT)
    with pytest.raises(ValueError, match="lacks the endpoint's matchers"):
        client.instant("up", AT)
    with pytest.raises(ValueError, match="no label"):
        client.selector("up", equal={'x="y",z': "1"})
    with pytest.raises(ValueError, match="no metric"):
        client.selector("up{}")
    http.close()


def test_a_question_too_long_for_an_address_is_posted(server: AnsweringServer, client: PrometheusClient) -> None:
    server.say("/api/v1/query", body=answer())
    client.instant("up" + " or up" * 1000, AT)
    assert (server.asked[0].method, len(server.asked[0].query["query"])) == ("POST", 6002)


def test_warnings_are_told_and_hints_on_the_query_do_not_make_an_answer_partial(
    server: AnsweringServer, client: PrometheusClient
) -> None:
    told = []
    for warnings in (["PromQL info: metric might not be a counter"], ["No StoreAPIs matched for this query"], []):
        server.say("/api/v1/query", body=answer(**({"warnings": warnings} if warnings else {})))
        client.instant("up", AT)
        told.append((client.warnings, client.partial))
    assert told == [
        (("PromQL info: metric might not be a counter",), False),
        (("No StoreAPIs matched for this query",), True),
        ((), False),
    ]


def _error(kind: str, said: str) -> dict[str, str]:
    return {"status": "error", "errorType": kind, "error": said}


@pytest.mark.parametrize(
    ("status", "body", "kind", "retry"),
    [
        (400, _error("bad_data", "parse error"), "bad_data", False),
        (400, _error("bad_data", "exceeded maximum resolution of 11,000 points per timeseries"), "too_large", False),
        (422, _error("execution", "query processing would load too many samples into memory"), "too_large", False),
        (422, _error("execution", "the query exceeds a limit (err-mimir-max-chunks-per-query)"), "too_large", False),
        (422, _error("422", "cannot select more than -search.maxSamplesPerQuery=1000 samples"), "too_large", False),
        (413, b"too large", "too_large", False),
        (422, _error("execution", "many-to-many matching not allowed"), "execution", False),
        (503, _error("timeout", "query timed out in expression evaluation"), "timeout", True),
        (503, b"Service Unavailable", "unavailable", True),
        (502, b"<html>bad gateway</html>", "unavailable", True),
        (500, _error("internal", "expanding series"), "unavailable", True),
        (429, b"too many requests", "overloaded", True),
        (401, b"Unauthorized", "unauthorized", False),
        (403, b"", "unauthorized", False),
        (404, b"404 page not found", "not_found", False),
        (200, b"<html><form action=login>Sign in</form></html>", "unreadable", False),
        (200, b'{"status": "success", "data": {"resultType": "vector"}}', "unreadable", False),
        (200, b'{"status": "success", "data"', "unreadable", False),
        (200, b"[]", "unreadable", False),
        (200, b"", "unreadable", False),
        (200, b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"a"]]}]}}',
         "unreadable", False),
        (200, b"[" * 100_000, "unreadable", False),
    ],
)  # fmt: skip
def test_answers_that_are_no_success(
    server: AnsweringServer, client: PrometheusClient, status: int, body: object, kind: str, retry: bool
) -> None:
    server.say("/api/v1/query", status=status, body=body)
    with pytest.raises(PrometheusError) as caught:
        client.instant("up", AT)
    assert (caught.value.kind, caught.value.retry) == (kind, retry)
    assert caught.value.sentence.startswith("Prometheus of cluster a")


def test_how_long_to_wait_is_what_the_server_says(server: AnsweringServer, client: PrometheusClient) -> None:
    server.say("/api/v1/query", status=429, body=b"", headers={"Retry-After": "7"})
    with pytest.raises(PrometheusError) as caught:
        client.instant("up", AT)
    assert caught.value.retry_after == 7


def test_a_redirect_is_not_followed_and_carries_no_credentials(server: AnsweringServer) -> None:
    http = DirectClient("P", server.url, {"Authorization": "Bearer secret-token"}, None)
    server.say("/api/v1/query", status=302, body=b"", headers={"Location": f"{server.url}/login"})
    with pytest.raises(PrometheusError, match="redirect") as caught:
        PrometheusClient(http).instant("up", AT)
    assert [asked.path for asked in server.asked] == ["/api/v1/query"]
    assert "secret-token" not in caught.value.sentence
    http.close()


def test_slow_endless_and_cut_answers_end_in_time(server: AnsweringServer) -> None:
    http = DirectClient("P", server.url, {}, None)
    client = PrometheusClient(http)
    server.say("/api/v1/query", body=b"{}", wait=5.0)
    with pytest.raises(PrometheusError) as caught:
        client.instant("up", AT, timeout=0.3)
    assert (caught.value.kind, caught.value.retry) == ("timeout", True)
    server.say("/api/v1/query", body=b" " * 1000, pause=0.05)  # each read is in time, the whole is not
    with pytest.raises(PrometheusError) as caught:
        client.instant("up", AT, timeout=0.3)
    assert caught.value.kind == "timeout"
    server.say("/api/v1/query", body=b"{" + b" " * 1000, cut=10)
    with pytest.raises(PrometheusError) as caught:
        client.instant("up", AT)
    assert (caught.value.kind, caught.value.retry) == ("unreachable", True)
    http.close()


def test_a_huge_answer_is_refused_also_when_it_is_packed_small(server: AnsweringServer) -> None:
    http = DirectClient("P", server.url, {}, None)
    packed = gzip.compress(b" " * 80_000_000)
    server.say("/api/v1/query", body=packed, headers={"Content-Encoding": "gzip"})
    with pytest.raises(PrometheusError) as caught:
        PrometheusClient(http).instant("up", AT)
    assert caught.value.too_large
    http.close()


def test_nobody_there_and_no_such_name(server: AnsweringServer) -> None:
    for url, words in (("http://127.0.0.1:9", "connection"), ("http://no-such-host.invalid", "name")):
        http = DirectClient("P", url, {}, None)
        with pytest.raises(PrometheusError, match=words) as caught:
            PrometheusClient(http).instant("up", AT)
        assert caught.value.retry
        http.close()


@pytest.mark.parametrize(
    ("build", "headers", "stores", "name", "version"),
    [
        ({"version": "3.5.0"}, {}, 404, "prometheus", "3.5.0"),
        ({"version": "2.13.0", "application": "Grafana Mimir"}, {}, 404, "mimir", "2.13.0"),
        ({"version": "2.24.0"}, {"X-Server-Hostname": "vm-0"}, 404, "victoriametrics", ""),
        ({"version": "0.37.2"}, {}, 200, "thanos", "0.37.2"),
    ],
)
def test_which_product_answers(
    server: AnsweringServer, client: PrometheusClient, build: dict[str, str], headers: dict[str, str], stores: int,
    name: str, version: str,
) -> None:  # fmt: skip
    server.say("/api/v1/query", body=answer(kind="vector"))
    server.say("/api/v1/status/buildinfo", body={"status": "success", "data": build}, headers=headers)
    server.say("/api/v1/stores", status=stores, body={"status": "success", "data": {}})
    product = client.product()
    assert (product.name, product.version) == (name, version)


def test_series_lists_labels(server: AnsweringServer, client: PrometheusClient) -> None:
    server.say("/api/v1/series", body={"status": "success", "data": [{"__name__": "up", "a": "b"}]})
    assert client.series(["up"], AT, AT) == [{"__name__": "up", "a": "b"}]
    server.say("/api/v1/series", body={"status": "success", "data": ["up"]})
    with pytest.raises(PrometheusError):
        client.series(["up"], AT, AT)


def test_only_reads_are_ever_sent(server: AnsweringServer, client: PrometheusClient) -> None:
    for path in ("/api/v1/query", "/api/v1/query_range", "/api/v1/series"):
        server.say(path, body={"status": "success", "data": []} if path.endswith("series") else answer())
    client.instant("up", AT)
    client.range("up", AT, AT, timedelta(seconds=1))
    client.series(["up"], AT, AT)

    def is_read(asked: Asked) -> bool:
        return asked.method == "GET" and asked.path.startswith("/api/v1/")

    assert all(map(is_read, server.asked))
