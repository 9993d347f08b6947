"""Reading a cluster's metrics: what is stored, what is waited for, and that no kill and no repetition changes it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from infra.dcgm.names import ENERGY, ENGINE_ACTIVE, FB_FREE, FB_USED, GPU_UTIL
from infra.models import (
    ChangeCounter,
    Cluster,
    ClusterEndpoint,
    Device,
    DeviceSighting,
    Node,
    PodObservation,
    TelemetryGap,
    TelemetryHour,
    TelemetrySource,
)
from infra.services import telemetry, telemetry_conditions
from infra.services.endpoints import ANSWERS
from infra.services.telemetry import telemetry_read
from infra.services.telemetry_sources import exporter_batch
from portal.kernel.clock import time_source
from portal.kernel.conditions import get_condition
from tests.support.answering import Answer
from tests.support.fleet import make_node, make_pod, make_pool
from tests.support.metrics_api import MetricsApi, metrics_api

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)
T0 = NOON + timedelta(minutes=20)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def api() -> Iterator[MetricsApi]:
    with metrics_api() as running:
        yield running


@pytest.fixture
def node() -> Node:
    return make_node(make_pool(), cards=2, name="node-a")


@pytest.fixture
def pod(node: Node) -> PodObservation:
    return make_pod(node, name="train-0")


@pytest.fixture
def endpoint(api: MetricsApi, node: Node) -> ClusterEndpoint:
    return connect(api, node.cluster)


def connect(api: MetricsApi, cluster: Cluster, read_until: datetime = T0) -> ClusterEndpoint:
    TelemetrySource.objects.create(cluster=cluster, read_until=read_until)
    return ClusterEndpoint.objects.create(cluster=cluster, role="metrics", url=api.url, matchers={"cluster": "alpha"})


def card(api: MetricsApi, *, uuid: str = "GPU-a", minutes: int = 12, util: float = 50, **labels: str) -> None:
    """A card's rows, each 30 s, from two minutes before T0."""
    base = {"UUID": uuid, "gpu": uuid[-1:], "Hostname": "node-a", "modelName": "NVIDIA H100", **labels}
    count = 2 * minutes + 4
    start = T0 - 2 * MINUTE
    api.give(GPU_UTIL, start, [util] * count, **base)
    api.give(FB_USED, start, [1000] * count, **base)
    api.give(FB_FREE, start, [80_559] * count, **base)
    api.give(ENERGY, start, [300_000 * number for number in range(count)], **base)


HELD = {"namespace": "team-a", "pod": "train-0", "container": "main"}


def read(cluster: Cluster, at: datetime, **more: Any) -> telemetry.TelemetryRead:
    with time_source(lambda: at):
        return telemetry_read(cluster.pk, **more)


def hours(cluster: Cluster) -> list[tuple[Any, ...]]:
    return list(
        TelemetryHour.objects.filter(cluster=cluster)
        .order_by("hour", "uuid", "pod", "scope")
        .values_list("hour", "uuid", "pod", "busy_ms", "observed_ms", "memory_max_mib", "energy_mj")
    )


def source(cluster: Cluster) -> TelemetrySource:
    return TelemetrySource.objects.get(cluster=cluster)


def condition(cluster: Cluster, name: str) -> Any:
    return get_condition(source(cluster).conditions, name)


def test_a_held_and_a_free_card(api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node) -> None:
    card(api, **HELD)
    card(api, uuid="GPU-b", util=0)
    done = read(node.cluster, T0 + 12 * MINUTE)
    assert done.done
    assert hours(node.cluster) == [
        (NOON, "GPU-a", "train-0", 300_000, 600_000, 1000, 10 * 600_000),
        (NOON, "GPU-b", "", 0, 600_000, 1000, 10 * 600_000),
    ]
    (sighting,) = DeviceSighting.objects.all()
    assert (sighting.pod_uid, sighting.uuid, sighting.node, sighting.shared) == (pod.uid, "GPU-a", "node-a", False)
    assert sighting.changed_seq > 0
    assert sighting.last_seen - sighting.first_seen >= 9 * MINUTE
    assert set(Device.objects.values_list("uuid", "node", "memory_mib")) == {
        ("GPU-a", node.pk, 81559), ("GPU-b", node.pk, 81559),
    }  # fmt: skip
    row = source(node.cluster)
    assert (row.read_until, row.interval_ms, row.unmapped, row.silent) == (T0 + 10 * MINUTE, 30_000, [], [])
    endpoint.refresh_from_db()
    assert endpoint.read_until == T0 + 10 * MINUTE
    assert endpoint.last_sample_at is not None
    assert all(one["status"] == "True" for one in endpoint.conditions)
    assert not TelemetryGap.objects.exists()
    assert set(api.selectors) == {'cluster="alpha",'}, "only this cluster's series are asked for"


def test_reading_again_adds_nothing_and_reading_on_adds_the_rest(
    api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node
) -> None:
    card(api, minutes=70, **HELD)
    read(node.cluster, T0 + 12 * MINUTE)
    before = hours(node.cluster)
    seq = ChangeCounter.objects.get(cluster=node.cluster).value
    read(node.cluster, T0 + 12 * MINUTE)
    assert hours(node.cluster) == before
    for minute in range(13, 64):  # each minute a little, across the hour
        read(node.cluster, T0 + minute * MINUTE)
    assert [(row[0], row[3], row[4]) for row in hours(node.cluster)] == [
        (NOON, 1_215_000, 2_430_000),
        (NOON + timedelta(hours=1), 615_000, 1_230_000),
    ]
    assert ChangeCounter.objects.get(cluster=node.cluster).value == seq, "metering has nothing new to bind"


@pytest.mark.parametrize("place", ["sightings_merge", "devices_ensure", "hours_add", "gaps_extend", "_conclude"])
def test_a_kill_at_any_point_loses_nothing_and_adds_nothing_twice(
    api: MetricsApi,
    endpoint: ClusterEndpoint,
    pod: PodObservation,
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    card(api, **HELD)
    real = getattr(telemetry, place)

    class Killed(BaseException):
        pass

    def die(*args: Any, **kwargs: Any) -> Any:
        real(*args, **kwargs)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(telemetry, place, die)
        with pytest.raises(Killed):
            read(node.cluster, T0 + 12 * MINUTE)
    assert source(node.cluster).read_until == T0
    assert not hours(node.cluster)
    read(node.cluster, T0 + 12 * MINUTE)
    assert hours(node.cluster) == [(NOON, "GPU-a", "train-0", 300_000, 600_000, 1000, 6_000_000)]


def test_two_readers_of_one_window_write_it_once(
    api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    card(api, **HELD)
    real = telemetry.prometheus_batch
    inner: list[str] = []

    def overtaken(*args: Any) -> Any:
        batch = real(*args)
        if not inner:  # while this one reads, another reads and writes
            inner.append("other")
            read(node.cluster, T0 + 12 * MINUTE)
        return batch

    monkeypatch.setattr(telemetry, "prometheus_batch", overtaken)
    read(node.cluster, T0 + 12 * MINUTE)
    assert hours(node.cluster) == [(NOON, "GPU-a", "train-0", 300_000, 600_000, 1000, 6_000_000)]


def test_the_queries_do_not_grow_with_the_cards(api: MetricsApi, endpoint: ClusterEndpoint, node: Node) -> None:
    """Neither where cards are new, nor where all of their gauges move on."""
    counts = []
    for number, cards in enumerate((2, 40)):
        for index in range(cards):
            uuid = f"GPU-{number}-{index}"
            card(api, uuid=uuid, minutes=30)
            api.give("DCGM_FI_DEV_XID_ERRORS", T0 - 2 * MINUTE, [0] * 64, UUID=uuid, gpu="0", Hostname="node-a")
        for window in (1, 2):
            at = T0 + (10 * number + 5 * window + 2) * MINUTE
            with CaptureQueriesContext(connection) as queries:
                assert read(node.cluster, at).windows == 1
            counts.append(len(queries))
    assert Device.objects.filter(uuid__startswith="GPU-1-").count() == 40
    assert counts[2:] == counts[:2]


def test_a_long_time_is_read_in_windows_within_the_time_given(
    api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node
) -> None:
    card(api, minutes=62, **HELD)
    first = read(node.cluster, T0 + 62 * MINUTE, budget_seconds=0)
    assert (first.windows, first.done, first.retry) == (1, False, 0)
    assert source(node.cluster).read_until == T0 + 5 * MINUTE
    assert read(node.cluster, T0 + 62 * MINUTE).windows == 11


def test_a_source_that_is_behind_is_waited_for_and_then_a_gap_stands(
    api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node
) -> None:
    card(api, minutes=2, **HELD)
    late = read(node.cluster, T0 + 8 * MINUTE)
    assert (late.windows, late.retry) == (0, 60)
    assert source(node.cluster).read_until == T0
    assert condition(node.cluster, telemetry_conditions.FRESH).status == "False"
    read(node.cluster, T0 + 16 * MINUTE)
    assert source(node.cluster).read_until == T0 + 5 * MINUTE
    gaps = set(TelemetryGap.objects.values_list("kind", "node", "started_at", "ended_at"))
    assert gaps == {("silent", "", T0 + 1.5 * MINUTE, T0 + 5 * MINUTE)}
    read(node.cluster, T0 + 21 * MINUTE)
    assert TelemetryGap.objects.get().ended_at == T0 + 10 * MINUTE, "one gap that goes on, not two"


def test_a_source_that_has_begun_since_is_not_behind(
    api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node
) -> None:
    api.give("DCGM_FI_DEV_GPU_UTIL", T0 + 6 * MINUTE, [50.0] * 20, **HELD)
    done = read(node.cluster, T0 + 13 * MINUTE)
    assert (done.windows, done.done) == (3, True)
    assert source(node.cluster).read_until == T0 + 11 * MINUTE


def test_a_partial_answer_is_waited_for_and_then_marked(
    api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node
) -> None:
    card(api, minutes=30, **HELD)
    api.warnings = ["store 10.0.0.1:10901 did not answer"]
    assert read(node.cluster, T0 + 8 * MINUTE).windows == 0
    told = condition(node.cluster, telemetry_conditions.COMPLETE)
    assert (told.status, "did not answer" in told.message) == ("False", True)
    read(node.cluster, T0 + 16 * MINUTE)
    assert TelemetryGap.objects.get(kind="partial").started_at == T0
    assert hours(node.cluster)[0][4] == 300_000


def test_a_node_that_names_no_pod_is_unmapped_and_not_idle(
    api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node
) -> None:
    card(api)
    read(node.cluster, T0 + 12 * MINUTE)
    assert source(node.cluster).unmapped == ["node-a"]
    told = condition(node.cluster, telemetry_conditions.MAPPED)
    assert told.status == "False"
    assert "node-a" in told.message
    gap = TelemetryGap.objects.get(kind="unmapped")
    assert (gap.node, gap.started_at, gap.ended_at) == ("node-a", T0, T0 + 10 * MINUTE)
    assert not DeviceSighting.objects.exists()
    card(api, uuid="GPU-b", minutes=30, **HELD)
    read(node.cluster, T0 + 17 * MINUTE)
    assert source(node.cluster).unmapped == []


def test_free_cards_are_no_sign_of_an_unmapped_node(api: MetricsApi, endpoint: ClusterEndpoint, node: Node) -> None:
    card(api)
    read(node.cluster, T0 + 12 * MINUTE)
    assert source(node.cluster).unmapped == []


def test_a_node_that_says_nothing_is_silent_and_its_hours_are_not_known(
    api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node
) -> None:
    assert node.pool is not None
    make_node(node.pool, cards=2, name="node-b")
    card(api, **HELD)
    read(node.cluster, T0 + 12 * MINUTE)
    assert source(node.cluster).silent == ["node-b"]
    assert TelemetryGap.objects.get().node == "node-b"
    assert "node-b" in condition(node.cluster, telemetry_conditions.SEEN).message


def test_blanks_are_counted_and_are_not_zero(
    api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node
) -> None:
    api.give(GPU_UTIL, T0 - MINUTE, ["9223372036854775792"] * 16, UUID="GPU-a", Hostname="node-a", **HELD)
    read(node.cluster, T0 + 7 * MINUTE)
    assert not hours(node.cluster)
    row = source(node.cluster)
    assert row.dropped_total == row.dropped[GPU_UTIL] > 0


def test_no_answer_is_a_condition_and_the_mark_stays(api: MetricsApi, endpoint: ClusterEndpoint, node: Node) -> None:
    api.failure = Answer(503, b"starting")
    failed = read(node.cluster, T0 + 12 * MINUTE)
    assert (failed.windows, failed.done, failed.retry) == (0, False, 60)
    assert condition(node.cluster, ANSWERS).status == "False"
    assert source(node.cluster).read_until == T0
    endpoint.refresh_from_db()
    assert endpoint.conditions == source(node.cluster).conditions
    api.failure = Answer(401, b"")
    assert read(node.cluster, T0 + 12 * MINUTE).retry == 600


def test_an_endpoint_that_is_paused_is_not_asked(api: MetricsApi, endpoint: ClusterEndpoint, node: Node) -> None:
    ClusterEndpoint.objects.update(paused=True)
    assert read(node.cluster, T0 + 12 * MINUTE).windows == 0
    assert not api.server.asked


def test_a_name_becomes_a_pod_when_its_evidence_arrives(api: MetricsApi, endpoint: ClusterEndpoint, node: Node) -> None:
    card(api, minutes=30, **HELD)
    read(node.cluster, T0 + 12 * MINUTE)
    read(node.cluster, T0 + 14 * MINUTE)
    nameless = DeviceSighting.objects.get()
    assert (nameless.pod_uid, nameless.changed_seq) == ("", 0)
    pod = make_pod(node, name="train-0")
    read(node.cluster, T0 + 16 * MINUTE)
    named = DeviceSighting.objects.get()
    assert (named.pod_uid, named.first_seen) == (pod.uid, nameless.first_seen)
    assert named.changed_seq > 0


def test_a_pod_made_again_under_its_name_does_not_get_the_cards_of_the_one_before(
    api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node
) -> None:
    PodObservation.objects.filter(pk=pod.pk).update(ended_at=T0 + 4 * MINUTE)
    second = make_pod(node, name="train-0")
    PodObservation.objects.filter(pk=second.pk).update(scheduled_at=T0 + 6 * MINUTE)
    base = {"Hostname": "node-a", **HELD}
    api.give(GPU_UTIL, T0 - 2 * MINUTE, [50] * 13, UUID="GPU-a", **base)
    api.give(GPU_UTIL, T0 + 6.5 * MINUTE, [50] * 20, UUID="GPU-b", **base)
    read(node.cluster, T0 + 12 * MINUTE)
    assert set(DeviceSighting.objects.values_list("pod_uid", "uuid")) == {(pod.uid, "GPU-a"), (second.uid, "GPU-b")}


def test_mig_instances(api: MetricsApi, node: Node) -> None:
    pool = make_pool("mig", cluster=node.cluster, name="mig")
    make_node(pool, name="node-m", cards=1)
    connect(api, node.cluster)
    mig = {"UUID": "GPU-m", "Hostname": "node-m", "GPU_I_ID": "3", "GPU_I_PROFILE": "1g.10gb", **HELD}
    api.give(ENGINE_ACTIVE, T0 - MINUTE, [0.25] * 20, **mig)
    read(node.cluster, T0 + 7 * MINUTE)
    row = TelemetryHour.objects.get()
    assert (row.mig_instance, row.mig_profile, row.busy_ms, row.observed_ms) == ("3", "1g.10gb", 75_000, 300_000)
    sighting = DeviceSighting.objects.get()
    assert (sighting.uuid, sighting.mig_instance, sighting.mig_profile) == ("GPU-m", "3", "1g.10gb")


def test_containers_on_a_card_shared_by_hami_and_none_of_a_pod_that_is_gone(api: MetricsApi) -> None:
    node = make_node(make_pool("hami"), cards=1, name="node-h")
    connect(api, node.cluster)
    live = make_pod(node, name="share-a", hami=[("GPU-node-h-0", 2048, 10)])
    gone = make_pod(node, name="share-b", hami=[("GPU-node-h-0", 2048, 10)])
    PodObservation.objects.filter(pk=gone.pk).update(ended_at=T0 - timedelta(hours=1), gone_at=T0 - timedelta(hours=1))
    for name, busy in (("share-a", 30), ("share-b", 60)):
        labels = {"device_uuid": "GPU-node-h-0", "namespace": "team-a", "pod": name, "container": "main"}
        api.give("hami_container_device_utilization_ratio", T0 - MINUTE, [busy] * 20, **labels)
        api.give("hami_vgpu_memory_used_bytes", T0 - MINUTE, [1024 * 1024 * 512] * 20, **labels)
    api.give(GPU_UTIL, T0 - MINUTE, [40] * 20, UUID="GPU-node-h-0", Hostname="node-h")
    api.give("hami_host_gpu_utilization_ratio", T0 - MINUTE, [41] * 20, device_uuid="GPU-node-h-0", node="node-h")
    read(node.cluster, T0 + 7 * MINUTE)
    rows = {(row.scope, row.pod): row for row in TelemetryHour.objects.all()}
    assert set(rows) == {("card", ""), ("pod", live.name)}
    assert rows["card", ""].busy_ms == 120_000
    assert (rows["pod", live.name].busy_ms, rows["pod", live.name].memory_avg_mib) == (90_000, 512)
    assert source(node.cluster).unmapped == []


def test_rows_that_can_be_none_of_a_card_do_not_keep_the_others_out(
    api: MetricsApi, endpoint: ClusterEndpoint, pod: PodObservation, node: Node
) -> None:
    """Whatever is scraped may call its series so; a window that can't be written would be tried for ever."""
    card(api, **HELD)
    card(api, uuid="GPU-" + "x" * 200)
    card(api, uuid="GPU-c", namespace="n" * 64, pod="p", container="c")
    card(api, uuid="GPU-d", gpu="9" * 30)
    for value in ("1e300", "-5", "4294967296"):
        api.give("DCGM_FI_DEV_XID_ERRORS", T0 - 2 * MINUTE, [0, value] * 14, UUID="GPU-a", gpu="0", Hostname="node-a")
    api.give("DCGM_FI_DEV_XID_ERRORS", T0 - 2 * MINUTE, [79] * 20, UUID="GPU-\x00" + "y" * 300, Hostname="node-a")
    assert read(node.cluster, T0 + 12 * MINUTE).done
    assert {row[1] for row in hours(node.cluster)} == {"GPU-a", "GPU-d"}
    assert source(node.cluster).read_until == T0 + 10 * MINUTE
    assert Device.objects.get(uuid="GPU-d").index == 0


def test_an_exporter_in_a_teams_namespace_is_asked_only_where_there_is_no_other() -> None:
    class Kube:
        def __init__(self, *namespaces: str) -> None:
            self.namespaces, self.asked = namespaces, list[str]()

        def list_all(self, *_: Any, **__: Any) -> Any:
            pods = [
                {"metadata": {"namespace": one, "name": "exporter"}, "status": {"phase": "Running"}}
                for one in self.namespaces
            ]
            return SimpleNamespace(items=pods)

        def pod_proxy(self, namespace: str, *_: Any, **__: Any) -> Any:
            self.asked.append(namespace)
            return SimpleNamespace(status=200, complete=True, body=b"")

    for there, asked in ((("team-a", "gpu-operator"), ["gpu-operator"]), (("team-a",), ["team-a"])):
        kube: Any = Kube(*there)
        assert exporter_batch(kube, NOON, T0, {}, {"team-a"}) is not None
        assert kube.asked == asked
