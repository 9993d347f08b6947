"""A cluster full of workloads that we did not make is connected read-only, beside its Prometheus: whose was what?

Real: API server, scheduler, controllers, Prometheus. kwok stands in for kubelets, the exporter for dcgm-exporter and
kube-state-metrics, and the test binds the HAMi pods as HAMi's scheduler would. The portal's watcher, reconcilers and
meter are the product's own, in this process. What it found is compared with a slow count from a watch of its own.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from billing.models import Bucket, DeviceAllocation
from billing.selectors.adoption import adoption_of
from billing.services.metering import meter_cluster
from infra.models import Cluster, PodObservation, Rebuild, WatchSpan, WatchTarget
from infra.selectors.history import rebuilt as rebuilt_of
from infra.selectors.history import watch_begin
from infra.selectors.writes import write_proof
from infra.services.claim_rules import claim_rule_create
from infra.services.claims import namespace_claim_set
from infra.services.clusters import cluster_connect, site_create
from infra.services.endpoints import endpoint_set
from infra.services.rebuilds import rebuild_start
from portal.kernel.clock import as_utc, utcnow
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import run_item
from tests.cluster.test_watcher import eventually, watching
from tests.story.slowcount import SHARE, Pod, SlowCount, seconds
from tests.support.controlplane import RealCluster, control_planes
from tests.support.estate import ADMIN
from tests.support.prometheus import exporter, prometheus
from tests.support.tenants import make_tenant

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

FLEET = Path(__file__).with_name("adoption.yaml")
CARD = 1_000_000
HISTORY_SECONDS = 130
"""For so long the workloads run before the portal is there."""
KINDS = ("claim-rules", "cluster", "metering", "rebuild", "telemetry", "workloads")
NAMESPACES = {
    "vision": {"team": "team-vision"}, "vision-mig": {"team": "team-vision"}, "speech": {}, "hami-lab": {},
    "unmapped": {}, "gpu-operator": {},
}  # fmt: skip


def template(
    resources: dict[str, str], *, millionths: int, restart: str = "Always", labels: dict[str, str] | None = None,
    **annotations: str,
) -> dict[str, Any]:  # fmt: skip
    """A pod's template; ``run_for`` and ``crash_after`` are what kwok does with it."""
    stages = {f"sim.aifactory.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return {
        "metadata": {"labels": labels or {}, "annotations": {SHARE: str(millionths), **stages}},
        "spec": {
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "example.invalid/x:1", "resources": {"limits": resources}}],
        },
    }


class Others:
    """Whoever used the cluster before us."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster

    def make(self, path: str, body: dict[str, Any]) -> None:
        code, answer = self.cluster.call("POST", path, body)
        assert code in (200, 201), answer

    def namespaces(self) -> None:
        for name, labels in NAMESPACES.items():
            self.make("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        for name in NAMESPACES:
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            eventually(lambda at=account: self.cluster.call("GET", at)[0] == 200)

    def workload(self, kind: str, namespace: str, name: str, pod: dict[str, Any], **spec: Any) -> None:
        group = "batch/v1" if kind == "jobs" else "apps/v1"
        if kind != "jobs":
            pod["metadata"]["labels"]["app"] = name
            spec["selector"] = {"matchLabels": {"app": name}}
        if kind == "statefulsets":
            spec["serviceName"] = name
        self.make(
            f"/apis/{group}/namespaces/{namespace}/{kind}",
            {"metadata": {"name": name}, "spec": {"template": pod, **spec}},
        )

    def pod(self, namespace: str, name: str, pod: dict[str, Any], **annotations: str) -> None:
        pod["metadata"]["name"] = name
        pod["metadata"]["annotations"] |= annotations
        self.make(f"/api/v1/namespaces/{namespace}/pods", pod)

    def hami(self, name: str, memory: int, cores: int, millionths: int) -> None:
        """A share of the first card of the HAMi node, bound as HAMi's scheduler does it."""
        node = next(
            one for one in self.cluster.call("GET", "/api/v1/nodes")[1]["items"]
            if "hami.io/node-nvidia-register" in one["metadata"].get("annotations", {})
        )  # fmt: skip
        card = json.loads(node["metadata"]["annotations"]["hami.io/node-nvidia-register"])[0]["id"]
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory), "nvidia.com/gpucores": str(cores)}
        pod = template(limits, millionths=millionths)
        pod["spec"]["schedulerName"] = "hami-scheduler"
        where = node["metadata"]["name"]
        said = {
            "hami.io/vgpu-node": where,
            "hami.io/vgpu-devices-allocated": f"{card},NVIDIA,{memory},{cores}:;",
            "hami.io/bind-phase": "success",
        }
        self.pod("hami-lab", name, pod, **said)
        target = {"apiVersion": "v1", "kind": "Node", "name": where}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.make(f"/api/v1/namespaces/hami-lab/pods/{name}/binding", binding)

    def scale(self, namespace: str, name: str, replicas: int) -> None:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        media = "application/merge-patch+json"
        assert self.cluster.call("PATCH", path, {"spec": {"replicas": replicas}}, media=media)[0] == 200

    def fill(self) -> int:
        """Everything; how many pods that makes."""
        one = {"nvidia.com/gpu": "1"}
        self.namespaces()
        self.workload("deployments", "vision", "serve", template(one, millionths=CARD), replicas=3)
        self.workload(
            "statefulsets", "speech", "db", template({"nvidia.com/gpu": "2"}, millionths=2 * CARD), replicas=1
        )
        fit = template(one, millionths=CARD, restart="Never", run_for="30s")
        self.workload("jobs", "speech", "fit", fit, completions=2, parallelism=2)
        slice_ = {"nvidia.com/mig-1g.10gb": "1"}
        self.workload("deployments", "vision-mig", "small", template(slice_, millionths=CARD // 7), replicas=2)
        self.hami("quarter", 20480, 25, CARD // 4)
        self.hami("cores", 8192, 60, 600_000)
        self.pod("unmapped", "notebook", template(one, millionths=CARD))
        self.pod("unmapped", "loop", template(one, millionths=CARD, crash_after="4s"))
        self.pod("gpu-operator", "validator", template(one, millionths=CARD))
        return 3 + 1 + 2 + 2 + 2 + 3


@pytest.fixture
def found(tmp_path: Path) -> Iterator[RealCluster]:
    """The cluster."""
    with control_planes(tmp_path / "planes", "found", fleet=FLEET) as planes:
        yield planes["found"]


def work() -> None:
    """Let the reconcilers do what is due, and what only waits for its next look."""
    rows = WorkItem.objects.filter(kind__in=KINDS, next_attempt_at__isnull=False)
    for pk in list(rows.order_by("next_attempt_at", "id").values_list("pk", flat=True)):
        WorkItem.objects.filter(pk=pk).update(next_attempt_at=utcnow() - timedelta(seconds=1), not_before=None)
        run_item(pk)


def working_until(done: Any) -> Any:
    """What ``done`` answers, as soon as that is true, with the reconcilers at work."""

    def look() -> Any:
        work()
        return done()

    return eventually(look, 240)


@contextmanager
def counting(cluster: RealCluster) -> Iterator[SlowCount]:
    """The other watch."""
    count = SlowCount(cluster)
    count.start()
    try:
        yield count
    finally:
        count.finish()


def test_within_minutes_every_second_is_somebody_s(found: RealCluster, tmp_path: Path, settings: Any) -> None:
    settings.AIF_WATCH_SETTLE_SECONDS = 1
    settings.AIF_HISTORY_QUERIES_PER_MINUTE = 1_000_000
    others = Others(found)
    with counting(found) as count, exporter(found, fleet=FLEET) as told:
        pages = {"dcgm-exporter": told.dcgm, "kube-state-metrics": told.kube_state}
        with prometheus(tmp_path / "prometheus", pages, labels={"cluster": "found"}) as server:
            filled = others.fill()
            eventually(lambda: sum(pod.started is not None for pod in count.pods.values()) == filled, 120)
            first = min(pod.started for pod in count.pods.values() if pod.started)
            eventually(lambda: datetime.now(UTC) - first > timedelta(seconds=HISTORY_SECONDS), HISTORY_SECONDS + 60)
            before = found.audit.mark()
            cluster = connect(found, server.url, first - timedelta(hours=1))
            run = adopt(cluster)
            outage(found, others, count)
            until = after(cluster)
        user = "system:serviceaccount:aifactory:observe"
        asked = {one.user for one in found.audit.asked(since=before)}
        portal = next(name for name in asked if name.startswith("system:serviceaccount:"))
        assert found.audit.writes(since=before, user=portal) == [], (user, asked)
        pods = count.finish()
    with system_scope("test"):
        assert write_proof(cluster).writes == 0
        compare(cluster, run, pods, until)


def connect(found: RealCluster, prometheus_url: str, since: datetime) -> Cluster:
    """With the observe role; by a label, by a rule and by hand it is said whose the namespaces are."""
    vision, speech, lab = make_tenant("team-vision"), make_tenant("team-speech"), make_tenant("team-lab")
    assert vision.slug == "team-vision"
    cluster = cluster_connect(
        slug="found", site=site_create(slug="frankfurt", actor=ADMIN), mode="observe",
        kubeconfig=found.observe_kubeconfig.read_text(), actor=ADMIN,
        system_namespaces=["gpu-operator", "kube-node-lease", "kube-public", "kube-system"],
    )  # fmt: skip
    endpoint_set(cluster=cluster, role="metrics", via="direct", url=prometheus_url, matchers={"cluster": "found"},
                 actor=ADMIN)  # fmt: skip
    claim_rule_create(kind="label", label_key="team", by_slug=True, valid_from=since, actor=ADMIN)
    claim_rule_create(kind="name", pattern="hami-*", cluster=cluster, tenant_id=lab.pk, valid_from=since, actor=ADMIN)
    namespace_claim_set(cluster=cluster, namespace="speech", tenant_id=speech.pk, valid_from=since, actor=ADMIN)
    return cluster


def adopt(cluster: Cluster) -> Rebuild:
    """Watch, and rebuild what was before."""
    with watching("first"):
        eventually(lambda: PodObservation.objects.filter(cluster=cluster, ended_at__isnull=True).count() >= 11, 60)
        run = rebuild_start(cluster=cluster, actor=ADMIN)

        def rebuilt() -> bool:
            run.refresh_from_db()
            assert run.state != Rebuild.State.FAILED, run.last_error
            return run.state == Rebuild.State.DONE

        working_until(rebuilt)
    return run


def outage(found: RealCluster, others: Others, count: SlowCount) -> None:
    """While nobody watches pods end, and the API server forgets that they were there."""
    alive = sum(pod.gone is None for pod in count.pods.values())
    others.scale("vision", "serve", 2)
    assert found.call("DELETE", "/api/v1/namespaces/unmapped/pods/notebook")[0] == 200
    eventually(lambda: sum(pod.gone is None for pod in count.pods.values()) == alive - 2, 60)
    time.sleep(2)  # the gap is seen to be longer than the pods' last second
    found.forget_history()


def after(cluster: Cluster) -> datetime:
    """Watched again, for some seconds; up to when everything is known."""
    again = datetime.now(UTC) + timedelta(seconds=5)
    with watching("second"):

        def known() -> datetime | None:
            marks = WatchTarget.objects.filter(cluster=cluster, resource__in=["pods", "nodes"])
            low = min((as_utc(one.watermark) for one in marks if one.watermark), default=None)
            return low if low and low > again else None

        until: datetime = working_until(known)
    while not meter_cluster(cluster.pk, budget_seconds=60).done:
        pass
    return until.replace(microsecond=0)


def compare(cluster: Cluster, run: Rebuild, pods: list[Pod], until: datetime) -> None:
    """By namespace: what the watch proved to the millisecond; before it within the error that is stated."""
    begin = watch_begin(cluster.pk)
    assert begin is not None
    spans = list(WatchSpan.objects.filter(target__cluster=cluster, target__resource="pods").order_by("started_at"))
    gaps = [(before.proved_until, after.started_at) for before, after in pairwise(spans)]
    lost = [(pod, gap) for pod in pods for gap in gaps if pod.gone and gap[0] < pod.gone < gap[1]]
    assert sorted(pod.name.split("-")[0] for pod, _ in lost) == ["notebook", "serve"], (lost, gaps)
    ours = held(cluster, until)

    # Who went in a gap is charged until the last proof of it; from there to the next list it is nobody's.
    gone = [pod for pod, _ in lost]
    parts = [([pod for pod in pods if pod not in gone], begin, until, False)]
    for pod, (proof, listed) in lost:
        cut = [Pod(pod.namespace, pod.name, pod.millionths, pod.started)]
        parts += [(cut, begin, proof, False), (cut, proof, listed, True)]
    wanted: dict[tuple[str, str], int] = defaultdict(int)
    for part, start, end, unknown in parts:
        for namespace, amount in seconds(part, start, end).items():
            bucket = Bucket.OVERHEAD if namespace == "gpu-operator" else Bucket.TENANTS
            if unknown or namespace == "unmapped":
                bucket = Bucket.UNATTRIBUTED
            wanted[namespace, bucket] += amount
    assert ours["watch"] == dict(wanted)

    reach = rebuilt_of(cluster.pk)
    assert reach is not None
    assert reach.end == begin
    assert begin - reach.start > timedelta(seconds=HISTORY_SECONDS - 60), "but for the step, as far as there is history"
    past = seconds(pods, reach.start, begin)
    rebuilt: dict[str, int] = defaultdict(int)
    for (namespace, _), amount in ours["retroactive"].items():
        rebuilt[namespace] += amount
    assert set(rebuilt) == set(past)
    apart = {name: (rebuilt[name], past[name]) for name in past if rebuilt[name] != past[name]}
    difference = sum(abs(ours - theirs) for ours, theirs in apart.values())
    # What the API itself proves of these pods is exact; its times and ours are cut at the millisecond.
    assert difference <= 2 * CARD * (run.error_ms + len(pods)), (apart, run.error_ms)
    assert run.error_ms < 60_000 * len(pods), "and that error is not just anything"

    figures = adoption_of(cluster)
    assert {row.tenant.slug for row in figures.tenants if row.hours} == {"team-lab", "team-speech", "team-vision"}
    assert [row.namespace for row in figures.unmapped if row.held.together] == ["unmapped"]
    assert "gpu-operator" in {row.namespace for row in figures.system}


def held(cluster: Cluster, until: datetime) -> dict[str, dict[tuple[str, str], int]]:
    """Source → (namespace, bucket) → millionths·milliseconds, without what was only starting."""
    found: dict[str, dict[tuple[str, str], int]] = {"watch": defaultdict(int), "retroactive": defaultdict(int)}
    for row in DeviceAllocation.objects.filter(cluster=cluster).exclude(bucket=Bucket.STARTING):
        end = min(row.ended_at or until, until)
        lasted = int(end.timestamp() * 1000) - int(row.started_at.timestamp() * 1000)
        if lasted > 0:
            found[row.source][row.namespace, row.bucket] += row.share * lasted
    return {source: dict(rows) for source, rows in found.items()}
