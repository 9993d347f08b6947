"""Parts of cards on a real API server: each key of the quota, wrong keys, HAMi's charge, changes at a full quota."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from billing.models import DeviceAllocation, UsageRecord
from billing.services.metering import meter_cluster
from infra.models import CapacitySpan, Node, PodObservation, Reservation, WatchSpan, WatchTarget
from infra.quantity import parse_quantity
from infra.services.claims import namespace_claim_set
from infra.services.isolation import isolation_say
from portal.kernel.clock import HOUR, hour_start, utcnow
from portal.kernel.problems import Invalid
from portal.kernel.scoping import system_scope
from tenants.services.deployments import deployment_apply, deployment_set_image
from tenants.services.profile_quotas import quota_profiles_set
from tenants.services.sharing import tenant_sharing_set
from tests.cluster.test_watcher import eventually
from tests.support.controlplane import ControlPlanes
from tests.support.estate import ADMIN, Estate, clear_namespace, estate
from tests.support.hami import MEMORY_MIB, bind, node_object
from tests.support.tenants import CARD, TESTER, give_quota, make_tenant
from tests.unit.tenants.manifests import manifest_data

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.cluster, pytest.mark.timeout(900)]

FRA, HEL = "gpu-fra-1", "gpu-hel-1"
OLD, NEW = "vllm/vllm-openai:v0.23.0", "vllm/vllm-openai:v0.24.0"
WRONG = {
    "limits.nvidia.com/gpu": "1",
    "nvidia.com/gpu": "1",
    "limits.nvidia.com/gpucore": "100",
    "requests.nvidia.com/gpumemory": "20480",
    "limits.nvidia.com/gpumem-percentage": "50",
    "limits.nvidia.com/mig-1g.10gb": "1",
}


@contextmanager
def hami_node(made: Estate, **options: Any) -> Iterator[Node]:
    """A HAMi node on the first cluster, as long as the block lasts. HAMi's webhook is not there: that is accepted."""
    name = f"hami-{uuid.uuid4().hex[:6]}"
    call = made.fleet[FRA].call
    isolation_say(
        cluster=made.clusters[FRA], piece="hami-webhook", how="accepted", text="tests bind pods by hand", actor=ADMIN
    )
    status, answer = call("POST", "/api/v1/nodes", node_object(name, **options))
    assert status == 201, answer
    try:
        eventually(lambda: Node.objects.filter(name=name, pool__sharing="hami", ready=True).exists())
        yield Node.objects.select_related("pool__gpu_type").get(name=name)
    finally:
        # What runs there goes first: of a node that is gone nobody ends the pods until the server collects them.
        clear_namespace(made, FRA, made.tenant.namespace)
        call("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture
def shared(real_planes: ControlPlanes) -> Iterator[Estate]:
    """One cluster with a card that HAMi shares, and a quota of one such card."""
    with estate(real_planes, FRA) as made, hami_node(made) as node:
        give_quota(made.tenant, node.pool.gpu_type, 1)  # type: ignore[arg-type,union-attr]
        yield made


def quota_of(made: Estate, cluster: str) -> dict[str, Any]:
    (quota,) = made.objects(cluster, "ResourceQuota")
    return quota


def pod(namespace: str, resources: dict[str, str], name: str = "by-hand") -> dict[str, Any]:
    asked = {"requests": {"cpu": "1", "memory": "1Gi"} | resources, "limits": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "busybox:1", "resources": asked}]},
    }


def ready(made: Estate) -> Any:
    """Ready, with HAMi's scheduler at work."""
    bind(made.fleet[FRA], made.tenant.namespace)
    return made.ready()


def refusal(made: Estate, cluster: str, resources: dict[str, str], scheduler: str = "default-scheduler") -> str:
    """What the API server says to a pod by hand. Its controller may count behind what admission has let in."""
    path = f"/api/v1/namespaces/{made.tenant.namespace}/pods?dryRun=All"
    body = pod(made.tenant.namespace, resources)
    body["spec"]["schedulerName"] = scheduler
    answer: dict[str, Any] = {}

    def refused() -> bool:
        status, said = made.fleet[cluster].call("POST", path, body)
        answer.update(said)
        return status == 403

    eventually(refused)
    return str(answer["message"])


def test_each_key_of_the_quota_holds_and_a_new_image_needs_no_second_card(shared: Estate) -> None:
    """Four quarters are a whole card: the quota is full."""
    deployment_apply(
        tenant=shared.tenant, manifest=manifest_data(share={"profile": "quarter"}, replicas=4), actor=TESTER
    )
    shared.until(lambda: ready(shared), "four quarters of a card")
    for one in shared.objects(FRA, "Pod"):
        limits = one["spec"]["containers"][0]["resources"]["limits"]
        assert one["spec"]["schedulerName"] == "hami-scheduler"
        assert parse_quantity(limits["nvidia.com/gpumem"]) == MEMORY_MIB // 4
        assert limits["nvidia.com/gpucores"] == "25"
    quota = quota_of(shared, FRA)
    wanted = {
        "requests.nvidia.com/gpu": 4,
        "limits.nvidia.com/gpumem": MEMORY_MIB,
        "limits.nvidia.com/gpucores": 100,
        "requests.nvidia.com/gpumem": MEMORY_MIB,
    }
    for where in (quota["spec"]["hard"], quota["status"]["hard"]):
        assert {key: parse_quantity(where[key]) for key in wanted} == wanted
    assert parse_quantity(quota["status"]["used"]["requests.nvidia.com/gpumem"]) == MEMORY_MIB
    assert "requests.nvidia.com/gpu=1" in refusal(shared, FRA, {"nvidia.com/gpu": "1"})
    assert "requests.nvidia.com/gpumem=1" in refusal(shared, FRA, {"nvidia.com/gpumem": "1"}, "hami-scheduler")

    deployment_set_image(tenant=shared.tenant, name="qwen3-8b", image=NEW, actor=TESTER)
    most = [0]

    def rolled() -> bool:
        held = Reservation.objects.filter(tenant_id=shared.tenant.pk, released_at__isnull=True)
        most[0] = max(most[0], sum(held.values_list("share", flat=True)))
        images = {one["spec"]["template"]["spec"]["containers"][0]["image"] for one in shared.objects(FRA)}
        return ready(shared) and images == {NEW}

    shared.until(rolled, "the new image at a full quota", patience=120)
    assert most[0] <= CARD, "no second card was held meanwhile"


def test_wrong_keys_are_refused_by_us_and_taken_by_the_server(real_planes: ControlPlanes) -> None:
    tenant = make_tenant()
    namespace = f"keys-{uuid.uuid4().hex[:8]}"
    call = real_planes[FRA].call
    assert call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})[0] == 201
    try:
        for number, (key, value) in enumerate(WRONG.items()):
            body = {"metadata": {"name": f"q-{number}"}, "spec": {"hard": {key: value}}}
            status, answer = call("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", body)
            assert status == 201, (key, answer)
            with pytest.raises(Invalid) as refused:
                tenant_sharing_set(tenant=tenant, namespace_limits={key: value}, actor=ADMIN)
            assert key in refused.value.errors[0]["detail"]
    finally:
        call("DELETE", f"/api/v1/namespaces/{namespace}")


def test_limits_of_an_admin_are_enforced_too(real_planes: ControlPlanes) -> None:
    with estate(real_planes, FRA) as made:
        made.quota("h100", 1)
        tenant_sharing_set(tenant=made.tenant, namespace_limits={"pods": 1}, actor=ADMIN)
        cel = 'device.attributes["gpu.nvidia.com"].architecture == "Hopper"'
        deployment_apply(tenant=made.tenant, manifest=manifest_data(cel=cel), actor=TESTER)
        made.until(made.ready, "Ready")
        assert quota_of(made, FRA)["spec"]["hard"]["pods"] == "1"
        assert "pods=1" in refusal(made, FRA, {})


def test_two_shares_across_one_card_are_charged_by_their_larger_part(real_planes: ControlPlanes) -> None:
    """90 % of the memory with 10 % of the cores, and the other way round: 0.9 + 0.9, and one card in all."""
    namespace = f"lab-{uuid.uuid4().hex[:6]}"
    call = real_planes[FRA].call
    with estate(real_planes, FRA) as made, hami_node(made) as row:
        cluster, node = made.clusters[FRA], row.name
        assert call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})[0] == 201
        eventually(lambda: call("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")[0] == 200)
        tenant = made.tenant
        namespace_claim_set(
            cluster=cluster, namespace=namespace, tenant_id=tenant.pk, valid_from=utcnow() - HOUR, actor=ADMIN
        )
        for name, memory, cores in (("memory", 90, 10), ("cores", 10, 90)):
            limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(MEMORY_MIB * memory // 100)}
            limits["nvidia.com/gpucores"] = str(cores)
            body = pod(namespace, limits, name)
            body["spec"]["schedulerName"] = "hami-scheduler"
            body["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": f"GPU-{node}-0"}
            status, answer = call("POST", f"/api/v1/namespaces/{namespace}/pods", body)
            assert status == 201, answer
        assert bind(real_planes[FRA], namespace) == 2
        seen = PodObservation.objects.filter(cluster=cluster, namespace=namespace, started_at__isnull=False)
        eventually(lambda: seen.count() == 2)
        eventually(lambda: all("success" in str(one.evidence) for one in seen))
    # The watch is over; it goes on in the books, so that hours become final.
    later = hour_start(utcnow()) + 3 * HOUR
    with system_scope("test"):
        PodObservation.objects.filter(cluster=cluster).update(gone_at=None, ended_at=None)
        CapacitySpan.objects.filter(node__name=node).update(ended_at=None)
        WatchSpan.objects.filter(target__cluster=cluster).update(proved_until=later)
        WatchTarget.objects.filter(cluster=cluster).update(watermark=later)
    meter_cluster(cluster.pk)
    with system_scope("test"):
        allocations = DeviceAllocation.objects.filter(namespace=namespace, bucket="tenants")
        assert {row.pod_name: row.share for row in allocations} == {"memory": 900_000, "cores": 900_000}
        assert {row.device_uuid for row in allocations} == {f"GPU-{node}-0"}
        hour = hour_start(utcnow()) + HOUR
        used = {
            row.allocation_id: (row.milliseconds, row.charged, row.physical)
            for row in UsageRecord.objects.filter(cluster=cluster, hour=hour, namespace=namespace)
        }
    whole = 3_600_000
    assert sorted(ms for ms, _, _ in used.values()) == [whole, whole]
    assert sum(charged for _, charged, _ in used.values()) == 2 * 900_000 * whole
    assert sum(physical for _, _, physical in used.values()) == CARD * whole


def test_slices_are_limited_by_profile_and_change_their_image_where_they_are(real_planes: ControlPlanes) -> None:
    profile = "1g.10gb"
    with estate(real_planes, HEL) as made:
        gpu_type = made.quota("h100", 2)
        namespace_claim_set(
            cluster=made.clusters[HEL],
            namespace="team-course",
            tenant_id=make_tenant("course", zone=made.tenant.zone.slug).pk,
            valid_from=utcnow(),
            actor=ADMIN,
        )
        quota_profiles_set(tenant=made.tenant, gpu_type=gpu_type, profiles={profile: 2}, actor=ADMIN)
        manifest = manifest_data(share={"profile": profile}, replicas=3)
        deployment_apply(tenant=made.tenant, manifest=manifest, actor=TESTER)
        made.until(lambda: "short by 1" in made.deployment().waiting, "the third slice waits for the quota")
        assert f"MIG slices {profile}" in made.deployment().waiting
        deployment_apply(
            tenant=made.tenant, manifest=manifest_data(share={"profile": profile}, replicas=2), actor=TESTER
        )
        made.until(made.ready, "two slices")
        hard = quota_of(made, HEL)["spec"]["hard"]
        assert hard[f"requests.nvidia.com/mig-{profile}"] == "2"
        assert f"requests.nvidia.com/mig-{profile}=1" in refusal(made, HEL, {f"nvidia.com/mig-{profile}": "1"})
        deployment_set_image(tenant=made.tenant, name="qwen3-8b", image=NEW, actor=TESTER)

        def rolled() -> bool:
            images = {one["spec"]["template"]["spec"]["containers"][0]["image"] for one in made.objects(HEL)}
            return bool(made.ready()) and images == {NEW}

        made.until(rolled, "the new image", patience=120)
        assert hard == quota_of(made, HEL)["spec"]["hard"]


def test_a_pool_that_hands_out_too_much_is_told_from_its_register(real_planes: ControlPlanes) -> None:
    with estate(real_planes, FRA) as made, hami_node(made, scale=180) as node:
        assert CapacitySpan.objects.get(node=node, ended_at__isnull=True).overcommit_percent == 180
        assert node.pool is not None
        assert node.pool.gpu_type is not None
        assert node.pool.gpu_type.memory_mib == MEMORY_MIB
