"""The namespace's reconciler with a cluster that answers step by step: when its door is opened."""

from __future__ import annotations

from typing import Any

import pytest

from infra.adapters.admission import quota_annotation
from infra.kube.errors import Call, NotFound
from infra.services.inventory import ApplyReport
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import Done, RetryAfter, run_item
from tenants.models import Tenant, TenantNamespace
from tenants.reconcilers import namespace as namespace_reconciler
from tenants.services.deployments import deployment_apply
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import TESTER, give_quota, make_tenant
from tests.unit.tenants.manifests import manifest_data

pytestmark = pytest.mark.django_db(transaction=True)

CARDS = "requests.nvidia.com/gpu"


class Server:
    """An API server whose quota controller does as it is told. ``applied``: what the namespace said of its quota."""

    def __init__(self) -> None:
        self.spec: dict[str, str] | None = None
        self.hard: dict[str, str] = {}
        self.at_once = False
        self.applied: list[str] = []

    def inventory_apply(self, *, manifests: list[dict[str, Any]], **_: Any) -> ApplyReport:
        """Takes everything."""
        (key,) = quota_annotation(True)
        (made,) = [one for one in manifests if one["kind"] == "Namespace"]
        self.applied.append(made["metadata"]["annotations"][key])
        (quota,) = [one for one in manifests if one["kind"] == "ResourceQuota"]
        self.spec = quota["spec"]["hard"]
        if self.at_once:
            self.count()
        return ApplyReport()

    def count(self) -> None:
        """As the controller does: from now on pods are counted."""
        self.hard = dict(self.spec or {})

    def get(self, *_: Any) -> dict[str, Any]:
        """The ResourceQuota."""
        if self.spec is None:
            raise NotFound(Call("alpha", "read"), "It is not there.")
        return {"spec": {"hard": self.spec}, "status": {"hard": self.hard, "used": {CARDS: "0"}} if self.hard else {}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(namespace_reconciler, "inventory_apply", found.inventory_apply)
    monkeypatch.setattr(namespace_reconciler.KubeClient, "for_cluster", lambda cluster: found)
    return found


@pytest.fixture
def row(server: Server) -> TenantNamespace:
    """A namespace that has to be made."""
    tenant: Tenant = make_tenant()
    make_node(make_pool(cluster=make_cluster("alpha")), cards=2, name="alpha-0")
    give_quota(tenant, make_type(), 2)
    made = deployment_apply(tenant=tenant, manifest=manifest_data("w"), actor=TESTER).deployment
    run_item(WorkItem.objects.get(kind="deployment", object_id=made.pk).pk)
    with system_scope("test"):
        return TenantNamespace.objects.get()


def run(row: TenantNamespace) -> Any:
    item = WorkItem.objects.get(kind="namespace", object_id=row.pk)
    WorkItem.objects.filter(pk=item.pk).update(next_attempt_at=item.marked_at, lease_until=None)
    outcome = run_item(item.pk)
    assert outcome is not None, WorkItem.objects.get(pk=item.pk).last_error
    with system_scope("test"):
        row.refresh_from_db()
    return outcome


def test_it_is_closed_until_its_quota_is_counted(row: TenantNamespace, server: Server) -> None:
    assert isinstance(run(row), RetryAfter)
    assert (server.applied, row.conditions[0]["reason"]) == (["false"], "QuotaNotEnforced")
    server.count()
    assert isinstance(run(row), Done)
    assert (server.applied[1:], row.conditions[0]["reason"]) == (["true"], "Applied")


def test_a_quick_controller_has_it_opened_in_one_go(row: TenantNamespace, server: Server) -> None:
    server.at_once = True
    assert isinstance(run(row), Done)
    assert server.applied == ["false", "true"]


def test_another_figure_closes_nothing_and_another_key_does(row: TenantNamespace, server: Server) -> None:
    server.at_once = True
    run(row)
    server.at_once = False
    server.hard[CARDS] = "7"
    assert isinstance(run(row), RetryAfter)
    assert server.applied[2:] == ["true"], "it is counted, if by the figure of before"
    del server.hard[CARDS]
    assert isinstance(run(row), RetryAfter)
    assert server.applied[3:] == ["false"]


def test_a_lost_quota_closes_it_again(row: TenantNamespace, server: Server) -> None:
    server.at_once = True
    run(row)
    server.spec, server.hard, server.at_once = None, {}, False
    assert isinstance(run(row), RetryAfter)
    assert server.applied[2:] == ["false"]
