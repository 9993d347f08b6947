"""A tenant cluster on a real control plane, from the request to its end; the stand-in plays Flux and vCluster."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps

from infra.models import Cluster
from portal.kernel.problems import Conflict
from portal.kernel.scoping import system_scope
from tenants.models import QuotaAllotment, Robot, TenantCluster
from tenants.services.tenantcluster_access import robot_create, robot_delete, robot_token
from tenants.services.tenantclusters import (
    tenant_cluster_delete,
    tenant_cluster_pause,
    tenant_cluster_resume,
    tenant_cluster_retry,
)
from tests.support.estate import ADMIN
from tests.support.standin import StandIn, eventually, release_state
from tests.support.tenantclusters import TenantEstate, tenant_estate
from tests.support.tenants import CARD

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.cluster, pytest.mark.timeout(900)]

SLUG = "ml-team"
SCALE = "/apis/apps/v1/namespaces/research/deployments/infer/scale"
OURS = ("portal", "infra", "tenants", "billing")
MARKER = "standin-not-a-token"


@pytest.fixture
def made(standin: StandIn, settings: Any) -> Iterator[TenantEstate]:
    """The host and one tenant."""
    settings.AIF_VCLUSTER_VERSIONS = ("1.34.0=0.34.7", "1.35.4=0.35.3")
    with tenant_estate(standin, SLUG) as found:
        yield found


def make_ready(made: TenantEstate) -> TenantCluster:
    row = made.request(SLUG, cards=4)
    made.until(lambda: made.row(row).phase == "Ready", "Ready")
    return made.row(row)


def deployment(replicas: int, **limits: str) -> dict[str, Any]:
    """Inside, in namespace research."""
    resources = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1", **limits}
    pod = {
        "containers": [
            {
                "name": "main",
                "image": "vllm/vllm-openai:v0.23.0",
                "resources": {"limits": resources, "requests": resources},
                "securityContext": {"allowPrivilegeEscalation": False},
            }
        ]
    }
    labels = {"app": "infer"}
    return {
        "metadata": {"name": "infer", "namespace": "research"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def run_inside(made: TenantEstate, row: TenantCluster, replicas: int) -> None:
    made.inside(row, "POST", "/api/v1/namespaces", {"metadata": {"name": "research"}})
    made.inside(row, "POST", "/apis/apps/v1/namespaces/research/deployments", deployment(replicas))


def phases(made: TenantEstate, row: TenantCluster) -> list[str]:
    pods = made.inside(row, "GET", "/api/v1/namespaces/research/pods")["items"]
    return sorted(pod["status"]["phase"] for pod in pods)


def everything_stored() -> str:
    """All rows of all of the portal's tables, as text."""
    with system_scope("test"):
        models = [one for one in apps.get_models() if one._meta.managed and one.__module__.split(".")[0] in OURS]
        return "\n".join(str(row) for model in models for row in model._base_manager.values())


def test_from_request_to_the_end(made: TenantEstate) -> None:
    """One tenant cluster's whole life: making one takes too long to do it for each question."""
    row = make_ready(made)
    _made_as_asked_for(made, row)
    run_inside(made, row, 6)
    _over_quota_is_told_with_the_numbers(made, row)
    _no_secret_is_stored(made)
    _a_robots_token_works_until_the_robot_is_deleted(made, row)
    _pause_and_resume(made, row)
    made.standin.restart()
    made.inside(row, "PATCH", SCALE, {"spec": {"replicas": 2}}, media="application/merge-patch+json")
    eventually(lambda: phases(made, row) == ["Running"] * 2, "the stand-in goes on where it was")
    _the_end(made, row)


def _made_as_asked_for(made: TenantEstate, row: TenantCluster) -> None:
    assert (row.running_chart, row.running_kubernetes.removeprefix("v")) == ("0.35.3", "1.35.4")
    assert row.ca_pem.startswith("-----BEGIN CERTIFICATE-----")
    with system_scope("test"):
        part = QuotaAllotment.objects.get(namespace=f"vc-{SLUG}")
    assert (part.amount, part.fixed) == (4 * CARD, True)
    assert release_state(made.standin.release(SLUG)) == ("True", "InstallSucceeded")
    names = {
        (one["kind"], one["metadata"]["name"])
        for kind in ("ResourceQuota", "LimitRange", "Secret", "Service")
        for one in made.host.list_all("v1", kind, namespace=f"vc-{SLUG}").items
    }
    assert {("ResourceQuota", f"vc-{SLUG}"), ("Secret", f"vc-{SLUG}"), ("Service", SLUG)} <= names
    bindings = made.inside(row, "GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")["items"]
    assert {"aifactory-owner", "aifactory-developer"} <= {one["metadata"]["name"] for one in bindings}


def _over_quota_is_told_with_the_numbers(made: TenantEstate, row: TenantCluster) -> None:
    eventually(lambda: phases(made, row).count("Running") == 4, "4 of 6 pods run inside")
    assert phases(made, row) == ["Pending"] * 2 + ["Running"] * 4
    assert len(tenant_pods(made)) == 4
    seen = made.until(
        lambda: (now := made.row(row)).inside.get("refused_count") == 2 and now, "the refusals", soon=True
    )
    sentences = {one["sentence"] for one in seen.inside["refused"]}
    assert all(one["over_quota"] for one in seen.inside["refused"])
    assert all("over your quota on this cluster" in text.lower() and "4 of 4" in text for text in sentences), sentences


def _no_secret_is_stored(made: TenantEstate) -> None:
    """Neither the token that the syncer writes into the host's pods, nor anything of the Secret with the way in."""
    wants_secrets = "useSecretsForSATokens" in json.dumps(made.standin.release(SLUG))
    marked = [one for one in tenant_pods(made) if MARKER in json.dumps(one["metadata"].get("annotations"))]
    assert bool(marked) != wants_secrets, "it is there unless the values want Secrets"
    secret = made.standin.get(f"/api/v1/namespaces/vc-{SLUG}/secrets/vc-{SLUG}")
    assert secret is not None
    stored = everything_stored()
    assert f"vc-{SLUG}" in stored
    assert MARKER not in stored
    for key in ("config", "client-key", "client-certificate"):
        value = secret["data"][key]
        assert value not in stored, key
        assert base64.b64decode(value).decode() not in stored, key


def _a_robots_token_works_until_the_robot_is_deleted(made: TenantEstate, row: TenantCluster) -> None:
    robot = robot_create(row=made.row(row), name="ci", role="edit", actor=ADMIN)
    made.until(lambda: _refreshed(robot).ready_at is not None, "the robot's account", soon=True)
    token = robot_token(robot=_refreshed(robot), actor=ADMIN, seconds=600).token
    assert token not in everything_stored()
    path = "/api/v1/namespaces/default/configmaps"
    assert status_with(made, row, token, path) == 200
    assert status_with(made, row, token, "/api/v1/nodes") == 403
    robot_delete(robot=_refreshed(robot), actor=ADMIN)
    made.until(lambda: status_with(made, row, token, path) == 401, "the token is refused", soon=True)


def _pause_and_resume(made: TenantEstate, row: TenantCluster) -> None:
    tenant_cluster_pause(row=made.row(row), actor=ADMIN)
    made.until(lambda: made.row(row).phase == "Paused", "Paused")
    eventually(lambda: not made.host.list_all("v1", "Pod", namespace=f"vc-{SLUG}").items, "no pod is on the host")
    found = made.standin.get(f"/apis/apps/v1/namespaces/vc-{SLUG}/statefulsets/{SLUG}")
    assert found is not None
    assert found["spec"]["replicas"] == 0
    assert found["metadata"]["annotations"]["loft.sh/paused"] == "true"
    tenant_cluster_resume(row=made.row(row), actor=ADMIN)
    made.until(lambda: made.row(row).phase == "Ready", "Ready again")
    eventually(lambda: phases(made, row).count("Running") == 4, "its pods are back")


def _the_end(made: TenantEstate, row: TenantCluster) -> None:
    """A deletion that hangs lists what is left; it ends when the host says that nothing is there."""
    made.standin.order(SLUG, "stuck-delete")
    tenant_cluster_delete(row=made.row(row), actor=ADMIN)
    seen = made.until(lambda: (now := made.row(row)).leftovers and now, "leftovers")
    assert seen.phase == "Deleting"
    assert any("HelmRelease" in text for text in seen.leftovers), seen.leftovers
    made.standin.order(SLUG, "")
    made.until(lambda: made.row(row).phase == "Deleted", "the end")
    assert made.row(row).leftovers == []
    assert made.standin.release(SLUG) is None
    for path in (
        f"/api/v1/namespaces/vc-{SLUG}",
        f"/apis/rbac.authorization.k8s.io/v1/clusterroles/vc-{SLUG}-v-vc-{SLUG}",
    ):
        assert made.standin.get(path) is None, path
    with system_scope("test"):
        assert not QuotaAllotment.objects.filter(namespace=f"vc-{SLUG}", amount__gt=0).exists()


def test_what_flux_says_of_its_troubles_is_told(made: TenantEstate) -> None:
    row = made.request(SLUG)
    with made.standin.held():
        made.until(lambda: made.standin.release(SLUG), "the HelmRelease")
        made.standin.order(SLUG, "artifact,install")
    made.until(lambda: "chart registry" in json.dumps(made.row(row).conditions), "the sentence about the registry")
    assert made.row(row).phase != "Ready"
    made.standin.order(SLUG, "install")
    made.until(lambda: "RetriesExceeded" in json.dumps(made.standin.release(SLUG)), "the end of its retries")
    made.until(lambda: "given up after its retries" in json.dumps(made.row(row).conditions), "that Flux has given up")
    assert "Helm install failed" in json.dumps(made.row(row).conditions), "what failed is told with it"
    made.standin.order(SLUG, "")
    tenant_cluster_retry(row=made.row(row), actor=ADMIN)
    made.until(lambda: made.row(row).phase == "Ready", "Ready after another try")


def test_nothing_is_asked_of_an_observed_host(made: TenantEstate) -> None:
    Cluster.objects.update(mode="observe")
    with pytest.raises(Conflict, match="only observed"):
        made.request(SLUG)
    assert made.standin.release(SLUG) is None


def tenant_pods(made: TenantEstate) -> list[dict[str, Any]]:
    """The host's pods that came from inside."""
    selector = f"vcluster.loft.sh/managed-by={SLUG}"
    return list(made.host.list_all("v1", "Pod", namespace=f"vc-{SLUG}", label_selector=selector).items)


def _refreshed(robot: Robot) -> Robot:
    with system_scope("test"):
        rows = Robot.objects.select_related("tenant_cluster__tenant", "tenant_cluster__cluster")
        return rows.get(pk=robot.pk)


def status_with(made: TenantEstate, row: TenantCluster, token: str, path: str) -> int:
    """The status with which the tenant's API server answers a token."""
    server = made.servers[row.name]
    headers = {"Authorization": f"Bearer {token}"}
    return int(server.pool.request("GET", server.server + path, headers=headers, retries=False, timeout=30).status)
