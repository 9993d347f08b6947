"""The portal as a service account that holds ``manage.yaml`` and ``tenant-clusters.yaml``, and nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.kube.client import KubeClient
from infra.kube.errors import Forbidden, PolicyRefused
from infra.kube.kubeconfig import parse_kubeconfig
from portal.kernel.clock import utcnow
from tenants.services.tenantclusters import tenant_cluster_delete
from tests.support.controlplane import RealCluster
from tests.support.estate import ADMIN
from tests.support.served import ServedCluster
from tests.support.standin import StandIn
from tests.support.tenantclusters import TenantEstate, tenant_estate

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.cluster, pytest.mark.timeout(900)]

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "clusterroles" / "tenant-clusters.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SLUG = "ml-team"


def path_of(manifest: dict[str, Any]) -> str:
    group, _, version = manifest["apiVersion"].rpartition("/")
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    plural = {"ValidatingAdmissionPolicy": "validatingadmissionpolicies"}.get(
        manifest["kind"], f"{manifest['kind'].lower()}s"
    )
    where = f"{base}/namespaces/{namespace}/{plural}" if namespace else f"{base}/{plural}"
    return f"{where}/{manifest['metadata']['name']}"


def apply(host: RealCluster, manifest: dict[str, Any]) -> None:
    """As ``kubectl apply --server-side`` by the host's administrator."""
    path = f"{path_of(manifest)}?fieldManager=admin&force=true"
    code, answer = host.call("PATCH", path, manifest, media="application/apply-patch+yaml")
    assert code in (200, 201), (path, answer)


@pytest.fixture
def made(standin: StandIn, settings: Any) -> Iterator[TenantEstate]:
    """The shipped file applied, its two roles bound to the portal's account, and the host connected as that account."""
    settings.AIF_VCLUSTER_VERSIONS = ("1.34.0=0.34.7", "1.35.4=0.35.3")
    host = standin.host
    assert isinstance(host, RealCluster)
    shipped = list(yaml.safe_load_all(SHIPPED.read_text()))
    for manifest in shipped:
        apply(host, manifest)
    client = KubeClient(parse_kubeconfig(host.manage_kubeconfig.read_text(), now=utcnow()), name="portal")
    account = client.subject().removeprefix("system:serviceaccount:").split(":")
    who = [{"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}]
    bound = (("ClusterRole", "aifactory-tenant-clusters", None), ("Role", "aifactory-flux", "aifactory-tenants"))
    for kind, name, namespace in bound:
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        apply(
            host,
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                "subjects": who,
            },
        )
    limited = replace(standin, host=replace(host, kubeconfig=host.manage_kubeconfig))
    with tenant_estate(limited, SLUG) as found:
        yield found
    for manifest in reversed(shipped):
        if manifest["kind"].startswith("ValidatingAdmissionPolicy"):  # the session's host is others' host, too
            host.call("DELETE", path_of(manifest))


def test_the_shipped_rights_are_enough_from_request_to_end_and_give_no_secret_elsewhere(
    made: TenantEstate, standin: StandIn
) -> None:
    row = made.request(SLUG, cards=2)
    made.until(lambda: made.row(row).phase == "Ready", "Ready")
    portal = made.host
    with pytest.raises(Forbidden):
        portal.list_all("v1", "Secret", namespace="vc-ml-team")
    with pytest.raises(Forbidden):
        portal.get("v1", "Secret", "any", "kube-system")
    elsewhere = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "aifactory-portal", "namespace": "kube-system"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "aifactory-tenant-cluster",
        },
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "anybody"}],
    }
    with pytest.raises(PolicyRefused, match="tenant clusters"):
        portal.apply(elsewhere)
    elsewhere["metadata"]["name"], elsewhere["roleRef"]["name"] = "aifactory-installer", "aifactory-tenant-installer"
    with pytest.raises(PolicyRefused, match="tenant clusters"):
        portal.apply(elsewhere)
    elsewhere["metadata"]["namespace"] = "vc-ml-team"
    with pytest.raises(PolicyRefused, match="tenant-installer only"):
        portal.apply(elsewhere, force=True)
    _flux_has_its_rights_there_and_nowhere_else(standin.host)
    _the_portal_has_flux_install_nothing_else(made)
    tenant_cluster_delete(row=made.row(row), actor=ADMIN)
    made.until(lambda: made.row(row).phase == "Deleted", "Deleted")


def _flux_has_its_rights_there_and_nowhere_else(host: ServedCluster) -> None:
    for namespace, wanted in (("vc-ml-team", True), ("kube-system", False), ("default", False)):
        for verb, group, resource in (
            ("get", "", "secrets"),
            ("create", "", "pods"),
            ("create", "apps", "deployments"),
            ("create", "rbac.authorization.k8s.io", "rolebindings"),
        ):
            where = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
            spec = {"user": "system:serviceaccount:aifactory-tenants:tenant-installer", "resourceAttributes": where}
            body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
            code, answer = host.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
            assert code == 201, answer
            assert answer["status"]["allowed"] is wanted, (where, answer)


def _the_portal_has_flux_install_nothing_else(made: TenantEstate) -> None:
    """Neither with other rights than these, nor in another namespace."""
    release = made.host.get("helm.toolkit.fluxcd.io/v2", "HelmRelease", SLUG, "aifactory-tenants")
    for change in (
        {"serviceAccountName": None},
        {"serviceAccountName": "default"},
        {"targetNamespace": "kube-system", "storageNamespace": "kube-system"},
        {"storageNamespace": "kube-system"},
    ):
        spec = {key: value for key, value in (release["spec"] | change).items() if value is not None}
        other = {
            "apiVersion": release["apiVersion"],
            "kind": "HelmRelease",
            "metadata": {"name": "other", "namespace": "aifactory-tenants"},
            "spec": spec,
        }
        with pytest.raises(PolicyRefused, match="a release here"):
            made.host.apply(other)
