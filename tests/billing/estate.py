"""A team with a closed month and a running one, by hand-computed figures, and people of every role.

November: 2 whole H100 for 100 h at 2.50 = 500.00; a quarter of an A100 (HAMi) for 10 h at 1.20 = 3.00.
December until the 2nd, 12:30: 1 H100 since the 2nd, 06:00: 6 final hours at 2.50 = 15.00, and the open half hour 1.25.
Two hours of `nobodys` on the 1st of November are unattributed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from billing.models import Bill, BillingPeriod, BillLine, Issuer
from billing.services.close import period_close
from billing.services.metering import meter_cluster
from infra.models import Cluster
from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_FINANCE, PLATFORM_VIEWER
from portal.kernel.clock import HOUR, time_source
from portal.kernel.scoping import system_scope
from tenants.models import Member, Tenant
from tests.billing.factories import (
    FINANCE,
    T0,
    claim_namespaces,
    make_cluster,
    make_gpu_type,
    make_issuer,
    make_node,
    make_rate,
    make_tenant,
    month,
    observe,
    pod_evidence,
    set_watermark,
)

DAY = timedelta(days=1)
NOW = datetime(2026, 12, 2, 12, 30, tzinfo=UTC)
TEAM_ROLES = ("owner", "developer", "viewer", "finance")
PLATFORM = {
    "platform-admin": PLATFORM_ADMIN,
    "platform-finance": PLATFORM_FINANCE,
    "platform-viewer": PLATFORM_VIEWER,
}


@dataclass(frozen=True)
class Estate:
    """What the tests ask about."""

    tenant: Tenant
    other: Tenant
    cluster: Cluster
    issuer: Issuer
    november: BillingPeriod
    people: dict[str, User]

    def bill(self) -> Bill:
        """November's, once it is closed."""
        with system_scope("test"):
            return Bill.objects.select_related("period__issuer", "tenant").get(tenant=self.tenant)

    def lines(self) -> list[BillLine]:
        """Its lines in print order: the HAMi share, then the whole cards."""
        with system_scope("test"):
            return list(BillLine.objects.filter(tenant=self.tenant).order_by("position"))


@contextmanager
def at(instant: datetime = NOW) -> Iterator[None]:
    """It is that time."""
    with time_source(lambda: instant):
        yield


def make_estate(*, closed: bool = True) -> Estate:
    """The rows, metered; November closed if asked for."""
    cluster, tenant, other = make_cluster(), make_tenant("vision"), make_tenant("audio")
    a100 = make_gpu_type("a100", memory_mib=80_000)
    make_node(cluster)
    make_node(cluster, "hami-0", gpu_type=a100, sharing="hami")
    claim_namespaces(cluster, tenant, ["v"])
    claim_namespaces(cluster, other, ["w"])
    issuer = make_issuer(grace_hours=1)
    make_rate(issuer, "2.50")
    make_rate(issuer, "1.20", gpu_type=a100, sharing="hami")
    start = T0 + DAY
    observe(
        cluster,
        pod_evidence("train", namespace="v", node="node-0", gpu=2, start=start, end=start + 100 * HOUR),
        pod_evidence(
            "share", namespace="v", node="hami-0", gpu=1, gpumem=20_000, gpucores=10, start=T0, end=T0 + 10 * HOUR
        ),
        pod_evidence("serve", namespace="v", node="node-0", gpu=1, start=datetime(2026, 12, 2, 6, tzinfo=UTC)),
        pod_evidence("lost", namespace="nobodys", node="node-0", gpu=1, start=T0, end=T0 + 2 * HOUR),
    )
    set_watermark(cluster, NOW)
    with at():
        while not meter_cluster(cluster.pk, budget_seconds=600).done:
            pass
        november = month(issuer)
        if closed:
            assert period_close(period=november, actor=FINANCE).made == 1
    return Estate(tenant, other, cluster, issuer, november, _people(tenant, other))


def _people(tenant: Tenant, other: Tenant) -> dict[str, User]:
    out = {}
    for role in TEAM_ROLES:
        out[role] = User.objects.create_user(f"{role}-1")
        Member.objects.create(tenant=tenant, user=out[role], role=role)
    out["outsider"] = User.objects.create_user("outsider")
    Member.objects.create(tenant=other, user=out["outsider"], role="owner")
    for name, role in PLATFORM.items():
        out[name] = User.objects.create_user(name, platform_role=role)
    return out


TOTAL = Decimal("503.00")
