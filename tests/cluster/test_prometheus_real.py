"""The client against a real Prometheus that scrapes a page of dcgm-exporter: what the fakes claim is so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.dcgm import Workload, read_cards
from infra.dcgm.names import GPU_UTIL
from infra.outbound.direct import DirectClient
from infra.prometheus import PrometheusClient, PrometheusError
from tests.support.answering import AnsweringServer, answering
from tests.support.prometheus import Prometheus, prometheus

PAGE = (Path(__file__).resolve().parents[1] / "data" / "metering" / "dcgm-plain-two-gpus-one-pod.prom").read_bytes()
HELD, FREE = "GPU-00000000-0000-4000-8000-0000000000a0", "GPU-00000000-0000-4000-8000-0000000000a1"
SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def page() -> Iterator[AnsweringServer]:
    with answering() as server:
        server.say("/metrics", body=PAGE, headers={"Content-Type": "text/plain; version=0.0.4"})
        yield server


@pytest.fixture(scope="module")
def server(page: AnsweringServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    # With the target's own labels, as a ServiceMonitor gives them; the workload's are then moved to exported_….
    labels = {
        "cluster": 'a"b', "service": "dcgm-exporter", "namespace": "monitoring", "pod": "dcgm-exporter-x",
        "container": "exporter",
    }  # fmt: skip
    with prometheus(
        tmp_path_factory.mktemp("prometheus"), {"dcgm-exporter": f"{page.url}/metrics"}, labels=labels,
        honor_labels=False, arguments=("--query.max-samples=2000",),
    ) as running:  # fmt: skip
        running.wait_for(f"count_over_time({GPU_UTIL}[1m]) > 3")
        yield running


@pytest.fixture
def client(server: Prometheus) -> Iterator[PrometheusClient]:
    http = DirectClient("Prometheus", server.url, {}, None)
    yield PrometheusClient(http, {"cluster": 'a"b'})
    http.close()


def test_it_says_what_it_is(client: PrometheusClient) -> None:
    product = client.product()
    assert product.name == "prometheus"
    assert product.version[0].isdigit()


def test_the_workload_is_in_exported_labels_and_the_free_card_has_none(client: PrometheusClient) -> None:
    now = datetime.now(UTC)
    reading = read_cards(client.instant(client.selector(GPU_UTIL), now), {"node-a"})
    assert {one.uuid: one.workload for one in reading.series} == {
        HELD: Workload("tenant-a", "trainer-0", "trainer"),
        FREE: None,
    }


def test_a_matcher_that_fits_nothing_finds_nothing(server: Prometheus) -> None:
    http = DirectClient("Prometheus", server.url, {}, None)
    other = PrometheusClient(http, {"cluster": "b"})
    assert other.instant(other.selector(GPU_UTIL), datetime.now(UTC)) == []
    http.close()


def test_raw_windows_add_up_without_gap_or_overlap(client: PrometheusClient) -> None:
    which = client.selector([GPU_UTIL, "DCGM_FI_DEV_FB_USED"])
    end = datetime.now(UTC)
    start = end - timedelta(seconds=3)
    whole = {(s.name, s.labels["UUID"]): s.samples for s in client.raw(which, start, end)}
    assert len(whole) == 4
    middle = start + timedelta(milliseconds=1500)
    parts: dict[tuple[str, str], tuple[object, ...]] = {}
    for a, b in ((start, middle), (middle, end)):
        for series in client.raw(which, a, b):
            key = series.name, series.labels["UUID"]
            parts[key] = (*parts.get(key, ()), *series.samples)
    assert parts == whole
    # The edge itself: a sample at the start is in, one at the end is not.
    moment, _ = whole[GPU_UTIL, HELD][-1]
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=moment)
    millisecond = timedelta(milliseconds=1)
    assert [s[0] for one in client.raw(which, at, at + millisecond) for s in one.samples] == [moment] * 4
    assert client.raw(which, at - 200 * millisecond, at) == []


def test_ranges_series_and_long_questions(client: PrometheusClient) -> None:
    now = datetime.now(UTC)
    (series,) = client.range(f"sum({client.selector(GPU_UTIL)})", now - 2 * SECOND, now, SECOND)
    assert 1 <= len(series.samples) <= 3
    assert len(client.series([client.selector(GPU_UTIL)], now - timedelta(minutes=1), now)) == 2
    long = " or ".join([client.selector(GPU_UTIL)] * 200)
    assert len(client.instant(long, now)) == 2


def test_its_refusals_are_understood(client: PrometheusClient) -> None:
    now = datetime.now(UTC)
    with pytest.raises(PrometheusError) as caught:
        client.instant(client.selector(GPU_UTIL) + " )", now)
    assert caught.value.kind == "bad_data"
    with pytest.raises(PrometheusError) as caught:
        client.range(client.selector(GPU_UTIL), now - timedelta(days=1), now, SECOND)
    assert caught.value.too_large, "more than 11,000 points"
    with pytest.raises(PrometheusError) as caught:
        client.range(client.selector(GPU_UTIL), now - timedelta(seconds=10_000), now, SECOND)
        client.raw(client.selector("DCGM_FI_DEV_SM_CLOCK") + "[1h:1ms]", now, now + SECOND)
    assert caught.value.kind in ("too_large", "bad_data")


def test_a_series_that_ended_has_no_samples_after_that(
    page: AnsweringServer, server: Prometheus, client: PrometheusClient
) -> None:
    page.say("/metrics", body=b"# nothing\n", headers={"Content-Type": "text/plain; version=0.0.4"})
    try:
        until = time.monotonic() + 120
        while client.instant(client.selector(GPU_UTIL), datetime.now(UTC)):
            assert time.monotonic() < until
            time.sleep(0.2)
        now = datetime.now(UTC)
        samples = [
            s for one in client.raw(client.selector(GPU_UTIL), now - timedelta(minutes=1), now) for s in one.samples
        ]
        assert samples
        assert all(value == 0 for _, value in samples), "the stale marker is no sample"
    finally:
        page.say("/metrics", body=PAGE, headers={"Content-Type": "text/plain; version=0.0.4"})
        server.wait_for(f"count_over_time({GPU_UTIL}[3s]) > 2")
