"""What the tests of quotas on clusters share: a tenant with namespaces for pods that others make, and those pods."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from infra.kube.client import KubeClient
from infra.kube.errors import KubeError, NotFound, QuotaRefused
from infra.models import GPUType, NamespaceClaim
from portal.kernel import workqueue
from portal.kernel.clock import utcnow
from portal.kernel.scoping import system_scope
from tenants.models import AllotmentMove, QuotaAllotment, TenantNamespace
from tenants.services.moves import Spot, allotment_move
from tests.cluster.conftest import REAL
from tests.support.estate import PATIENCE, Estate, Fleet, clear_namespace, estate
from tests.support.tenants import CARD, TESTER

FRA, HEL, THIRD = "gpu-fra-1", "gpu-hel-1", "third"
CEL = 'device.attributes["gpu.nvidia.com"].architecture == "Hopper"'


@pytest.fixture(params=["simulator", REAL])
def fleet(request: pytest.FixtureRequest) -> Fleet:
    """Two clusters of one kind; with the real ones a simulated third."""
    simulated = request.getfixturevalue("simulated_fleet")
    if request.param == "simulator":
        return {FRA: simulated[FRA], HEL: simulated[HEL]}
    planes = request.getfixturevalue("real_planes")
    return {FRA: planes[FRA], HEL: planes[HEL], THIRD: simulated[FRA]}


def vc(made: Estate) -> str:
    """The namespace for pods that others make."""
    return f"vc-{made.tenant.slug}"


@pytest.fixture
def made(fleet: Fleet) -> Iterator[Estate]:
    """A tenant with a quota of 8 H100, and on each cluster a namespace for pods that others make."""
    with estate(fleet, *fleet) as found:
        found.quota("h100", 8)
        with system_scope("test"):
            for cluster in found.clusters.values():
                row = TenantNamespace.objects.create(
                    tenant=found.tenant, cluster=cluster, name=vc(found), purpose=TenantNamespace.Purpose.TENANT_CLUSTER
                )
                NamespaceClaim.objects.create(
                    cluster=cluster,
                    namespace=vc(found),
                    tenant_id=found.tenant.pk,
                    valid_from=utcnow(),
                    created_by="test",
                )
                workqueue.mark("namespace", row.pk, cluster_id=cluster.pk, tenant_id=found.tenant.pk)
        try:
            yield found
        finally:
            for name in fleet:
                clear_namespace(found, name, vc(found))


def delete(client: KubeClient, api: str, kind: str, name: str, namespace: str = "") -> None:
    try:
        uid = client.get(api, kind, name, namespace)["metadata"]["uid"]
        client.delete(api, kind, name, namespace, uid=uid)
    except NotFound:
        pass


def pod(name: str, namespace: str) -> dict[str, Any]:
    """What somebody makes by hand: one card."""
    container = {
        "name": "hand",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "securityContext": {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
            "runAsUser": 1000,
        },
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [container],
            "automountServiceAccountToken": False,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "terminationGracePeriodSeconds": 0,
        },
    }


def make_pod(client: KubeClient, name: str, namespace: str) -> bool:
    """Whether the cluster let it in."""
    try:
        client.apply(pod(name, namespace), field_manager="kubectl")
    except KubeError:
        return False
    return True


def let_in(client: KubeClient, namespace: str, *names: str) -> None:
    """Make these pods, each as soon as the cluster takes it: a server's admission knows of a new namespace's service
    account and of a raised figure some moments after they can be read."""
    end = time.monotonic() + PATIENCE
    for name in names:
        while not make_pod(client, name, namespace):
            assert time.monotonic() < end, f"{name} is not let into {namespace}"
            time.sleep(0.05)


def over_quota(client: KubeClient, namespace: str, name: str) -> bool:
    """Whether the pod is refused by the quota: not once let in, and in the end for this reason and no other."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            client.apply(pod(name, namespace), field_manager="kubectl")
        except QuotaRefused:
            return True
        except KubeError:
            assert time.monotonic() < end, f"{name} is refused, but not by the quota"
            time.sleep(0.05)
        else:
            return False


def cards(client: KubeClient, *namespaces: str) -> int:
    """Cards that pods ask for which have not ended."""
    found = 0
    for namespace in namespaces:
        for one in client.list_all("v1", "Pod", namespace=namespace).items:
            if one["status"].get("phase") not in ("Succeeded", "Failed"):
                limits = [each.get("resources", {}).get("limits", {}) for each in one["spec"]["containers"]]
                found += sum(int(each.get("nvidia.com/gpu", 0)) for each in limits)
    return found


def everywhere(made: Estate) -> int:
    return sum(cards(made.client(name), made.tenant.namespace, vc(made)) for name in made.clusters)


def hand_over(made: Estate, source: str | None, goal: str | None, amount: int) -> AllotmentMove:
    def spot(name: str | None) -> Spot | None:
        return None if name is None else Spot(made.clusters[name], vc(made))

    gpu_type = GPUType.objects.get(slug__contains="h100")
    return allotment_move(
        tenant=made.tenant, gpu_type=gpu_type, source=spot(source), goal=spot(goal), amount=amount * CARD, actor=TESTER
    )


def hard(made: Estate, name: str) -> int:
    """What the cluster enforces."""
    status = made.client(name).get("v1", "ResourceQuota", "aifactory-quota", vc(made)).get("status") or {}
    return int((status.get("hard") or {}).get("requests.nvidia.com/gpu", -1))


def amounts(made: Estate) -> dict[str, int]:
    with system_scope("test"):
        rows = QuotaAllotment.objects.filter(tenant=made.tenant, namespace=vc(made)).select_related("cluster")
        return {row.cluster.slug: row.amount // CARD for row in rows}


def prepared(made: Estate, figures: dict[str, int]) -> None:
    made.until(lambda: figures == {name: _hard_or_none(made, name) for name in figures}, "the figures on the clusters")


def _hard_or_none(made: Estate, name: str) -> int | None:
    try:
        return hard(made, name)
    except NotFound:
        return None
