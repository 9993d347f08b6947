"""A namespace that becomes a system namespace was the tenant's as long as it was: that time stays on its bill."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billing.models import Bucket, UsageRecord
from billing.services.metering import meter_cluster
from infra.models import NamespaceClaim
from infra.services.claims import namespace_claim_end, system_namespaces_set
from portal.kernel.actors import Actor
from portal.kernel.clock import HOUR
from portal.kernel.scoping import system_scope
from tests.billing.factories import (
    T0,
    claim_namespaces,
    make_cluster,
    make_node,
    make_tenant,
    observe,
    pod_evidence,
    set_watermark,
)

pytestmark = pytest.mark.django_db
SYSTEM = Actor.system("test")


@pytest.mark.parametrize("metered_between", [True, False])
def test_what_a_tenant_used_of_it_stays(metered_between: bool) -> None:
    cluster = make_cluster()
    make_node(cluster)
    claim_namespaces(cluster, make_tenant("vision"), ["v"])
    observe(cluster, pod_evidence("over", namespace="v", node="node-0", gpu=1, start=T0 + HOUR, end=T0 + 3 * HOUR))
    observe(cluster, pod_evidence("runs", namespace="v", node="node-0", gpu=1, start=T0 + HOUR))
    set_watermark(cluster, T0 + 6 * HOUR)
    meter_cluster(cluster.pk)
    namespace_claim_end(claim=NamespaceClaim.objects.get(), valid_to=T0 + 5 * HOUR, actor=SYSTEM)
    if metered_between:
        meter_cluster(cluster.pk)
    system_namespaces_set(cluster=cluster, namespaces=["kube-system", "v"], actor=SYSTEM)
    set_watermark(cluster, T0 + 8 * HOUR)
    meter_cluster(cluster.pk)
    with system_scope("test"):
        rows = UsageRecord.objects.all()
        hours = {
            bucket: sum(row.milliseconds for row in rows if row.bucket == bucket) / timedelta(hours=1).total_seconds()
            for bucket in (Bucket.TENANTS, Bucket.OVERHEAD)
        }
    assert hours == {Bucket.TENANTS: (2 + 4) * 1000, Bucket.OVERHEAD: 3 * 1000}
