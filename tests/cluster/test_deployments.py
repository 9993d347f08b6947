"""Deployments from the manifest to pods, through our own client, watcher and reconcilers, on each control plane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from infra.kube.errors import NotFound
from infra.models import AppliedObject, Cluster, Reservation
from infra.services.claims import namespace_claim_set
from portal.kernel.clock import utcnow
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from tenants.models import DeploymentEvent, QuotaAllotment
from tenants.reconcilers.resync import resync_cluster
from tenants.services.deployments import (
    deployment_apply,
    deployment_delete,
    deployment_scale,
    deployment_set_image,
)
from tenants.services.sharing import tenant_sharing_set
from tests.cluster.conftest import REAL
from tests.support.estate import ADMIN, Estate, Fleet, estate, work
from tests.support.simulator import SimulatorProcess
from tests.support.tenants import CARD, TESTER, make_tenant
from tests.unit.tenants.manifests import FLAT, manifest_data

pytestmark = pytest.mark.django_db(transaction=True)

FRA, HEL, HAMI = "gpu-fra-1", "gpu-hel-1", "gpu-fra-2"
OLD, NEW, TYPO = "vllm/vllm-openai:v0.23.0", "vllm/vllm-openai:v0.24.0", "vllm/vllm-openai:missing"


@pytest.fixture(params=["simulator", REAL])
def fleet(request: pytest.FixtureRequest) -> Fleet:
    """Each fleet in turn."""
    found: Fleet = request.getfixturevalue("real_planes" if request.param == "real" else "simulated_fleet")
    return found


@pytest.fixture
def two(fleet: Fleet) -> Iterator[Estate]:
    """Two clusters with whole H100s, and a quota of 2 of them."""
    with estate(fleet, FRA, HEL) as made:
        made.quota("h100", 2)
        yield made


@pytest.fixture
def one(fleet: Fleet) -> Iterator[Estate]:
    """One cluster with whole H100s, and a quota of 2 of them."""
    with estate(fleet, FRA) as made:
        made.quota("h100", 2)
        yield made


@pytest.fixture
def simulated(simulated_fleet: SimulatorProcess) -> Iterator[Estate]:
    """The same where errors can be ordered, and for what is the portal's own logic: it need not be seen twice."""
    with estate(simulated_fleet, FRA) as made:
        made.quota("h100", 2)
        yield made


def h100(name: str = "qwen3-8b", **rest: Any) -> dict[str, Any]:
    cel = 'device.attributes["gpu.nvidia.com"].architecture == "Hopper"'
    return manifest_data(name, cel=cel, **rest)


def image_of(deployment: dict[str, Any]) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def test_the_manifest_becomes_ready_on_two_clusters(two: Estate) -> None:
    two.quota("l4", 2)
    deployment_apply(tenant=two.tenant, manifest=FLAT.replace(", namespace: ml-team", ""), actor=TESTER)
    two.until(two.ready, "Ready")
    row = two.deployment()
    assert (row.ready_replicas, row.waiting) == (2, "")
    assert sorted(replica.cluster.slug for replica in two.replicas()) == [FRA, HEL]
    for name in (FRA, HEL):
        (made,) = two.objects(name)
        assert image_of(made) == OLD
        assert len(two.objects(name, "Service")) == 1
        pods = two.objects(name, "Pod")
        assert [pod["status"]["phase"] for pod in pods] == ["Running"]
        replica = next(replica for replica in two.replicas() if replica.cluster.slug == name)
        nodes = {pod["node"] for engine in replica.placement["engines"] for pod in engine["pods"]}
        assert {pod["spec"]["nodeName"] for pod in pods} == nodes
    with system_scope("test"):
        reasons = list(DeploymentEvent.objects.order_by("first_at", "id").values_list("reason", flat=True))
    assert reasons[0] == "Created"
    assert {"Placed", "Ready"} <= set(reasons)


def test_an_identical_apply_writes_nothing(one: Estate) -> None:
    deployment_apply(tenant=one.tenant, manifest=h100(), actor=TESTER)
    one.until(one.ready, "Ready")
    before = {made["metadata"]["uid"]: made["metadata"]["resourceVersion"] for made in one.objects(FRA)}
    deployment_apply(tenant=one.tenant, manifest=h100(), actor=TESTER)
    for kind in ("deployment", "replica"):
        WorkItem.objects.filter(kind=kind).update(next_attempt_at=WorkItem.objects.first().marked_at)
    work()
    assert one.ready()
    assert {made["metadata"]["uid"]: made["metadata"]["resourceVersion"] for made in one.objects(FRA)} == before
    assert not WorkItem.objects.filter(kind__in=("deployment", "replica"), next_attempt_at__isnull=False).exists()


def test_scale_up_and_down_and_to_zero(simulated: Estate) -> None:
    deployment_apply(tenant=simulated.tenant, manifest=h100(), actor=TESTER)
    simulated.until(simulated.ready, "Ready")
    deployment_scale(tenant=simulated.tenant, name="qwen3-8b", replicas=2, actor=TESTER)
    simulated.until(lambda: simulated.ready() and len(simulated.replicas()) == 2, "two replicas")
    deployment_scale(tenant=simulated.tenant, name="qwen3-8b", replicas=0, actor=TESTER)
    simulated.until(lambda: simulated.deployment().phase == "Stopped", "Stopped")
    assert simulated.objects(FRA) == []
    assert simulated.objects(FRA, "Pod") == []
    assert not Reservation.objects.filter(released_at__isnull=True).exists()
    simulated.until(lambda: _amounts() == [0], "the part on the cluster is given back")


def _amounts() -> list[int]:
    with system_scope("test"):
        return list(QuotaAllotment.objects.values_list("amount", flat=True))


def test_a_new_image_at_exactly_used_quota(one: Estate) -> None:
    deployment_apply(tenant=one.tenant, manifest=h100(replicas=2), actor=TESTER)
    one.until(one.ready, "Ready")
    assert _amounts() == [2 * CARD]
    deployment_set_image(tenant=one.tenant, name="qwen3-8b", image=NEW, actor=TESTER)
    fewest = [2]

    def updated() -> bool:
        fewest[0] = min(fewest[0], one.deployment().ready_replicas)
        return one.ready() and {image_of(made) for made in one.objects(FRA)} == {NEW}

    one.until(updated, "the new image everywhere")
    assert fewest[0] == 1, "one replica was down at a time"
    assert _amounts() == [2 * CARD]


def test_a_typo_stops_the_rollout_and_says_so(simulated: Estate) -> None:
    deployment_apply(tenant=simulated.tenant, manifest=h100(replicas=2), actor=TESTER)
    simulated.until(simulated.ready, "Ready")
    deployment_set_image(tenant=simulated.tenant, name="qwen3-8b", image=TYPO, actor=TESTER)
    row = simulated.until(
        lambda: "cannot be pulled" in simulated.deployment().waiting and simulated.deployment(), "the sentence"
    )
    assert row.ready_replicas == 1
    assert f"Image {TYPO} cannot be pulled" in row.waiting
    assert sorted(image_of(made) for made in simulated.objects(FRA)) == sorted([OLD, TYPO])
    deployment_set_image(tenant=simulated.tenant, name="qwen3-8b", image=NEW, actor=TESTER)
    simulated.until(simulated.ready, "healed")


def test_delete_ends_when_the_cluster_has_nothing_left(one: Estate) -> None:
    deployment_apply(tenant=one.tenant, manifest=h100(), actor=TESTER)
    one.until(one.ready, "Ready")
    deployment_delete(tenant=one.tenant, name="qwen3-8b", actor=TESTER)
    one.until(lambda: one.deployment().deleted_at, "deleted")
    for kind in ("Deployment", "Service", "Pod"):
        assert one.objects(FRA, kind) == []
    assert not Reservation.objects.filter(released_at__isnull=True).exists()
    assert not AppliedObject.objects.filter(owner_kind="replica", deleted_at__isnull=True).exists()


def test_deletion_waits_for_an_unreachable_cluster(simulated: Estate, simulated_fleet: SimulatorProcess) -> None:
    deployment_apply(tenant=simulated.tenant, manifest=h100(), actor=TESTER)
    simulated.until(simulated.ready, "Ready")
    simulated_fleet[FRA].sim("POST", "faults", {"status": 503, "count": 10_000, "resource": "deployments"})
    deployment_delete(tenant=simulated.tenant, name="qwen3-8b", actor=TESTER)
    try:
        for _ in range(5):
            work()
        assert simulated.deployment().deleted_at is None
        assert Reservation.objects.filter(released_at__isnull=True).count() == 1
    finally:
        simulated_fleet[FRA].sim("DELETE", "faults")
    simulated.until(lambda: simulated.deployment().deleted_at, "deleted")


def test_drift_is_repaired_and_told(one: Estate) -> None:
    deployment_apply(tenant=one.tenant, manifest=h100(), actor=TESTER)
    one.until(one.ready, "Ready")
    assert resync_until_quiet(one) == 0
    client = one.client(FRA)
    (made,) = one.objects(FRA)
    path = f"/apis/apps/v1/namespaces/{one.tenant.namespace}/deployments/{made['metadata']['name']}"
    status, _ = one.fleet[FRA].call(
        "PATCH",
        f"{path}?fieldManager=kubectl-edit",
        {"spec": {"replicas": 3}},
        media="application/merge-patch+json",
    )
    assert status == 200
    assert resync_cluster(one.clusters[FRA]) >= 1
    one.until(
        lambda: (
            client.get("apps/v1", "Deployment", made["metadata"]["name"], one.tenant.namespace)["spec"]["replicas"] == 1
        ),
        "repaired",
    )
    one.until(one.ready, "Ready again")
    with system_scope("test"):
        said = DeploymentEvent.objects.filter(reason="DriftRepaired").values_list("message", flat=True)
        assert any(".spec.replicas (kubectl-edit)" in message for message in said)


def resync_until_quiet(made: Estate) -> int:
    """Status changes after our last apply are no drift, but look like it once; then nothing differs."""
    for _ in range(5):
        found = resync_cluster(made.clusters[FRA])
        if not found:
            return 0
        for _ in range(5):
            work()
    return found


def test_what_somebody_deleted_is_made_again(one: Estate) -> None:
    deployment_apply(tenant=one.tenant, manifest=h100(), actor=TESTER)
    one.until(one.ready, "Ready")
    (made,) = one.objects(FRA)
    one.client(FRA).delete(
        "apps/v1", "Deployment", made["metadata"]["name"], one.tenant.namespace, uid=made["metadata"]["uid"]
    )
    one.until(lambda: not one.objects(FRA), "gone")
    resync_cluster(one.clusters[FRA])
    one.until(lambda: one.objects(FRA) and one.ready(), "made again")
    assert one.objects(FRA)[0]["metadata"]["uid"] != made["metadata"]["uid"]


def test_a_conflict_names_the_manager(one: Estate) -> None:
    deployment_apply(tenant=one.tenant, manifest=h100(), actor=TESTER)
    one.until(one.ready, "Ready")
    (made,) = one.objects(FRA)
    name = made["metadata"]["name"]
    label = "aifactory.dev/engine"
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": one.tenant.namespace, "labels": {label: "theirs"}},
    }
    path = f"/apis/apps/v1/namespaces/{one.tenant.namespace}/deployments/{name}"
    status, _ = one.fleet[FRA].call(
        "PATCH", f"{path}?fieldManager=label-tool&force=true", body, media="application/apply-patch+yaml"
    )
    assert status == 200
    resync_cluster(one.clusters[FRA])

    def told() -> Any:
        (replica,) = one.replicas()
        return next((row for row in replica.conditions if row["reason"] == "ApplyConflict"), None)

    condition = one.until(told, "the conflict")
    assert "label-tool" in condition["message"]
    assert one.replicas()[0].ready, "what runs goes on"


def test_a_full_quota_waits_with_the_numbers_and_goes_on_when_raised(simulated: Estate) -> None:
    deployment_apply(tenant=simulated.tenant, manifest=h100(replicas=3), actor=TESTER)
    row = simulated.until(lambda: simulated.deployment().ready_replicas == 2 and simulated.deployment(), "two of three")
    assert row.phase == "Waiting"
    assert "quota" in row.waiting.lower()
    assert "2" in row.waiting
    simulated.quota("h100", 3)
    from portal.kernel import workqueue

    workqueue.mark("deployment", row.pk, tenant_id=simulated.tenant.pk)
    simulated.until(simulated.ready, "three")


def test_the_cluster_holds_the_quota_too(one: Estate) -> None:
    """A pod that somebody makes by hand beyond the part of the quota is refused there."""
    deployment_apply(tenant=one.tenant, manifest=h100(), actor=TESTER)
    one.until(one.ready, "Ready")
    container = {
        "name": "c",
        "image": "busybox:1",
        "resources": {
            "requests": {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"},
            "limits": {"nvidia.com/gpu": "1"},
        },
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "by-hand", "namespace": one.tenant.namespace},
        "spec": {"containers": [container]},
    }
    status, answer = one.fleet[FRA].call("POST", f"/api/v1/namespaces/{one.tenant.namespace}/pods", body)
    assert status == 403
    assert "exceeded quota" in answer["message"]


def test_an_unreachable_cluster_keeps_the_last_state(simulated: Estate) -> None:
    deployment_apply(tenant=simulated.tenant, manifest=h100(), actor=TESTER)
    simulated.until(simulated.ready, "Ready")
    old = Cluster.objects.get(pk=simulated.clusters[FRA].pk)
    from infra.kube.kubeconfig import Credentials
    from portal.kernel import crypto

    credentials = Credentials.loads(crypto.decrypt(bytes(old.kubeconfig_ciphertext)))
    from dataclasses import replace

    silent = replace(credentials, server="https://127.0.0.1:9")
    Cluster.objects.filter(pk=old.pk).update(kubeconfig_ciphertext=crypto.encrypt(silent.dumps()))
    deployment_set_image(tenant=simulated.tenant, name="qwen3-8b", image=NEW, actor=TESTER)

    def told() -> Any:
        (replica,) = simulated.replicas()
        return next((row for row in replica.conditions if row["type"] == "Reachable"), None)

    try:
        condition = simulated.until(told, "the condition")
        assert condition["status"] == "False"
        (replica,) = simulated.replicas()
        assert replica.ready, "silence is not a failure of the replica"
        assert Reservation.objects.filter(released_at__isnull=True).count() == 1
    finally:
        Cluster.objects.filter(pk=old.pk).update(kubeconfig_ciphertext=old.kubeconfig_ciphertext)
    simulated.until(simulated.ready, "the new image")


@pytest.fixture
def shared(simulated_fleet: SimulatorProcess) -> Iterator[Estate]:
    """A cluster with HAMi shares of A100s, and a quota of one card."""
    with estate(simulated_fleet, HAMI) as made:
        made.quota("a100", 1)
        yield made


def test_shares_are_pinned_to_their_card(shared: Estate) -> None:
    tenant_sharing_set(tenant=shared.tenant, free_shares=True, actor=ADMIN)
    shared.tenant.refresh_from_db()
    deployment_apply(
        tenant=shared.tenant,
        manifest=manifest_data(share={"memory": "20Gi", "cores": 25}, replicas=3),
        actor=TESTER,
    )
    shared.until(shared.ready, "Ready")
    cards = set(Reservation.objects.filter(released_at__isnull=True).values_list("device_uuid", flat=True))
    for pod in shared.objects(HAMI, "Pod"):
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert limits["nvidia.com/gpucores"] == "25"
        pinned = pod["metadata"]["annotations"]["nvidia.com/use-gpuuuid"]
        assert pinned in cards
        assert pinned in pod["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]


@pytest.fixture
def sliced(fleet: Fleet) -> Iterator[Estate]:
    """A cluster with MIG slices."""
    with estate(fleet, HEL) as made:
        made.quota("h100", 2)
        yield made


def test_slices_are_asked_for_by_profile(sliced: Estate) -> None:
    profile = "1g.10gb"
    # Somebody else's slices lie on the same nodes; only if they are of the same trust zone may ours join them.
    deployment_apply(tenant=sliced.tenant, manifest=manifest_data("alone", share={"profile": profile}), actor=TESTER)
    sliced.until(lambda: "trust zone" in sliced.deployment("alone").waiting, "the other zone")
    deployment_delete(tenant=sliced.tenant, name="alone", actor=TESTER)
    namespace_claim_set(
        cluster=sliced.clusters[HEL],
        namespace="team-course",
        tenant_id=make_tenant("course", zone=sliced.tenant.zone.slug).pk,
        valid_from=utcnow(),
        actor=ADMIN,
    )
    deployment_apply(tenant=sliced.tenant, manifest=manifest_data(share={"profile": profile}, replicas=2), actor=TESTER)
    sliced.until(sliced.ready, "Ready")
    for pod in sliced.objects(HEL, "Pod"):
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert limits == {f"nvidia.com/mig-{profile}": "1"}


def test_nothing_is_left_behind_under_a_later_name(simulated: Estate) -> None:
    """The same name again is another deployment with other objects."""
    deployment_apply(tenant=simulated.tenant, manifest=h100(), actor=TESTER)
    simulated.until(simulated.ready, "Ready")
    (first,) = simulated.objects(FRA)
    deployment_delete(tenant=simulated.tenant, name="qwen3-8b", actor=TESTER)
    simulated.until(lambda: simulated.deployment().deleted_at, "deleted")
    deployment_apply(tenant=simulated.tenant, manifest=h100(), actor=TESTER)
    simulated.until(simulated.ready, "Ready again")
    with pytest.raises(NotFound):
        simulated.client(FRA).get("apps/v1", "Deployment", first["metadata"]["name"], simulated.tenant.namespace)
