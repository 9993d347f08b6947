"""Usage by the namespaces inside a tenant cluster, of which the host sees only the pods that were synced to it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from billing.exports import usage_csv
from billing.models import Issuer
from billing.selectors.usage import STANDARD, UsageTable, usage_choices, usage_table
from billing.services.metering import meter_cluster
from infra.evidence import PodEvidence
from infra.models import Cluster
from infra.pod_reading import read_pod
from portal.kernel.clock import HOUR, Interval
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.models import Tenant, TenantCluster
from tests.billing.factories import (
    T0,
    claim_namespaces,
    make_cluster,
    make_issuer,
    make_node,
    make_rate,
    make_tenant,
    observe,
    pod_evidence,
    set_watermark,
)

pytestmark = pytest.mark.django_db

RECORDED = Path(__file__).parents[1] / "data/recorded/vcluster-host-pods.json"
DAY = Interval(T0, T0 + timedelta(days=1))


def synced(name: str, inside: str, hours: int, cards: int = 1) -> PodEvidence:
    """A pod as it stands on the host: with the annotations that a real syncer wrote."""
    pods = json.loads(RECORDED.read_text())["items"]
    pod = next(one for one in pods if "vcluster.loft.sh/object-namespace" in one["metadata"].get("annotations", {}))
    real = read_pod(pod, seen_at=T0)
    assert real.annotation("vcluster.loft.sh/object-namespace") == "research"
    kept = {**dict(real.annotations), "vcluster.loft.sh/object-namespace": inside}
    plain = pod_evidence(name, namespace="vc-vision", node="node-0", start=T0, end=T0 + hours * HOUR, gpu=cards)
    return replace(plain, annotations=tuple(sorted(kept.items())), labels=real.labels)


@pytest.fixture
def cluster() -> Cluster:
    cluster = make_cluster()
    make_node(cluster)
    return cluster


@pytest.fixture
def tenant(cluster: Cluster) -> Tenant:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["vc-vision", "t-vision"])
    observe(
        cluster,
        synced("a", "research", 2),
        synced("b", "research", 1, cards=2),
        synced("c", "serving", 3),
        pod_evidence("d", namespace="t-vision", node="node-0", start=T0, end=T0 + HOUR, gpu=1),
    )
    set_watermark(cluster, DAY.end)
    meter_cluster(cluster.pk)
    return tenant


def hours(table: UsageTable) -> dict[tuple[str, str], tuple[Decimal, Decimal | None]]:
    return {(row.key.label, row.key.inner_namespace): (row.gpu_hours, row.amount) for row in table.rows}


@pytest.mark.parametrize("another_is_hourly", [False, True])
def test_usage_by_namespace_in_the_tenant_cluster(tenant: Tenant, another_is_hourly: bool) -> None:
    issuer: Issuer = make_issuer()
    make_rate(issuer, "2.00")
    if another_is_hourly:  # then sums are made in another way
        rate = make_rate(issuer, "1.00", sharing="hami")
        type(rate).objects.filter(pk=rate.pk).update(source="opencost", price=None)
    with tenant_scope(tenant.pk):
        table = usage_table(tenant.pk, issuer, DAY, by=("deployment", "inner_namespace"))
        assert hours(table) == {
            ("vc-vision", "research"): (4, 8), ("vc-vision", "serving"): (3, 6), ("t-vision", ""): (1, 2),
        }  # fmt: skip
        whole = usage_table(tenant.pk, issuer, DAY, by=STANDARD)
        assert {row.key.inner_namespace for row in whole.rows} == {""}
        assert (whole.total.gpu_hours, whole.total.amount) == (table.total.gpu_hours, table.total.amount) == (8, 16)
        only = usage_table(tenant.pk, issuer, DAY, by=("inner_namespace",))
        assert {row.key.inner_namespace: row.gpu_hours for row in only.rows} == {"research": 4, "serving": 3, "": 1}
        rows = usage_csv("vision", "EUR", table.rows).response().content.decode()
    assert rows.splitlines()[0].endswith(",inner_namespace")
    assert sum(line.endswith(",research") for line in rows.splitlines()) == 1


def test_it_is_offered_where_there_is_a_tenant_cluster(tenant: Tenant, cluster: Cluster) -> None:
    with tenant_scope(tenant.pk):
        assert not usage_choices(tenant.pk).inside
    with system_scope("test"):
        TenantCluster.objects.create(
            tenant=tenant, cluster=cluster, name="vision", endpoint="https://v.example.test",
            kubernetes_version="1.33.4", chart_version="0.28.0", requested_by="test",
        )  # fmt: skip
    with tenant_scope(tenant.pk):
        assert usage_choices(tenant.pk).inside
