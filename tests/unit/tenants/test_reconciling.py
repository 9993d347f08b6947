"""What the reconcilers do not ask for: nodes where nothing is to be placed, objects that were made just now."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from infra.kube.apply import ObjectKey, Written
from infra.models import Cluster, Node
from infra.services.inventory import ApplyReport
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import mark, run_item
from tenants.models import ModelDeployment, ModelReplica
from tenants.observing import Phase
from tenants.reconcilers.replica import _made
from tenants.services.deployments import deployment_apply
from tests.support.fleet import make_node, make_pool, make_type
from tests.support.tenants import TESTER, give_quota, make_tenant
from tests.unit.tenants.manifests import manifest_data


@pytest.fixture
def deployment(db: None) -> ModelDeployment:
    """One replica, placed on the one node there is."""
    tenant = make_tenant()
    make_node(make_pool(), cards=2)
    give_quota(tenant, make_type(), 2)
    applied = deployment_apply(tenant=tenant, manifest=manifest_data(tenant=tenant.slug), actor=TESTER)
    run(applied.deployment)
    assert live(applied.deployment) == 1
    return applied.deployment


def run(deployment: ModelDeployment) -> list[str]:
    """Let it be looked at; the statements of that."""
    mark("deployment", deployment.pk)
    with CaptureQueriesContext(connection) as captured:
        run_item(WorkItem.objects.get(kind="deployment", object_id=deployment.pk).pk)
    return [query["sql"] for query in captured]


def live(deployment: ModelDeployment) -> int:
    with system_scope("test"):
        return ModelReplica.objects.filter(deployment=deployment, deleting_at__isnull=True).count()


def test_nodes_are_not_read_where_every_replica_has_its_place(deployment: ModelDeployment) -> None:
    assert not [sql for sql in run(deployment) if "infra_node" in sql]


def test_a_replica_still_leaves_a_cluster_whose_taint_it_does_not_tolerate(deployment: ModelDeployment) -> None:
    Cluster.objects.update(taints=[{"key": "maintenance", "effect": "NoExecute"}])
    assert [sql for sql in run(deployment) if "infra_node" in sql], "another place is looked for"
    assert live(deployment) == 0
    assert Node.objects.count() == 1


MANIFESTS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "m", "namespace": "t-a"}},
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "m", "namespace": "t-a"}},
]


def report(*, created: bool, of: slice = slice(None)) -> ApplyReport:
    keys = [ObjectKey.of(manifest) for manifest in MANIFESTS[of]]
    answer = {"metadata": {"uid": "u", "resourceVersion": "1", "generation": 1}, "spec": {"replicas": 1}, "status": {}}
    return ApplyReport(written={key: Written(answer, created, changed=True) for key in keys})


def test_a_workload_that_was_just_made_has_no_pods_yet() -> None:
    seen = _made(MANIFESTS, report(created=True))
    assert seen is not None
    assert (seen.phase, seen.ready, seen.wanted_pods) == (Phase.STARTING, False, 1)


def test_a_workload_that_was_there_before_is_looked_at() -> None:
    assert _made(MANIFESTS, report(created=False)) is None
    assert _made(MANIFESTS, report(created=True, of=slice(1))) is None, "the workload needed no request"
