"""Cards that are held and hardly used: whose they are, how busy they were, and what that costs a day.

What is not observed is not in the list: a card of which no sample tells is not idle, it is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Sum

from billing.models import Bucket, Issuer, UsageRecord
from billing.selectors.busy import Busy
from billing.selectors.conservation import CARD_HOUR
from billing.selectors.idleprice import idle_prices
from infra.models import Cluster, GPUType
from infra.shares import CARD
from portal.kernel.clock import Interval
from portal.kernel.money import decimal_from
from tenants.models import ModelDeployment, Tenant

BELOW = 20
"""Percent busy below which held cards are listed."""


@dataclass(frozen=True, slots=True)
class HeldIdle:
    """Cards that one deployment (or namespace) held. ``charged``: millionths of a card × milliseconds; ``per_day`` what
    they cost a day at the rate in force at the window's start, and ``unused_per_day`` the part of it in which nothing
    was computed; both None where there is no price for a card."""

    tenant: str
    cluster: str
    namespace: str
    deployment: str
    deployment_id: UUID | None
    gpu_type: str
    sharing: str
    pods: int
    busy: Busy
    charged: int
    per_day: Decimal | None
    unused_per_day: Decimal | None


# Busy time of a pod on a shared card is of the whole card, so what it held is its share of the observed time.
_OBSERVED = """
WITH pods AS (
    SELECT DISTINCT ON (cluster_id, namespace, pod_name) cluster_id, namespace, pod_name, tenant_id, deployment_id,
        gpu_type_id, sharing, share
    FROM billing_deviceallocation
    WHERE bucket = 'tenants' AND started_at < %(end)s AND (ended_at IS NULL OR ended_at > %(start)s)
        AND (%(tenant)s::uuid IS NULL OR tenant_id = %(tenant)s::uuid)
    ORDER BY cluster_id, namespace, pod_name, started_at DESC
)
SELECT p.tenant_id, p.cluster_id, p.namespace, p.deployment_id, p.gpu_type_id, p.sharing,
    count(DISTINCT p.pod_name), sum(t.busy_ms)::bigint,
    (sum(t.observed_ms * CASE WHEN t.scope = 'pod' THEN p.share ELSE %(card)s END) / %(card)s)::bigint
FROM infra_telemetryhour t
JOIN pods p ON p.cluster_id = t.cluster_id AND p.namespace = t.namespace AND p.pod_name = t.pod
WHERE t.hour >= %(start)s AND t.hour < %(end)s AND t.observed_ms > 0 AND t.busy_ms IS NOT NULL
GROUP BY 1, 2, 3, 4, 5, 6
"""


def held_idle(
    window: Interval, *, below: int = BELOW, tenant_id: UUID | None = None, issuer: Issuer | None = None
) -> list[HeldIdle]:
    """What was busy for less than ``below`` percent of its observed time, the most expensive first.

    Within a system scope, or one of the tenant that is asked for. ``issuer``: whose prices (else the default one's).
    """
    with connection.cursor() as cursor:
        cursor.execute(_OBSERVED, {"start": window.start, "end": window.end, "tenant": tenant_id, "card": CARD})
        observed = [row for row in cursor.fetchall() if row[8] and Fraction(100 * row[7], row[8]) < below]
    if not observed:
        return []
    charged = _charged(window, tenant_id)
    prices = idle_prices(window, issuer)
    tenants = dict(Tenant.objects.filter(pk__in={row[0] for row in observed}).values_list("pk", "slug"))
    clusters = dict(Cluster.objects.values_list("pk", "slug"))
    types = dict(GPUType.objects.values_list("pk", "slug"))
    names = dict(
        ModelDeployment.objects.filter(pk__in={row[3] for row in observed if row[3]}).values_list("pk", "name")
    )
    days = Fraction(window.ms, 86_400_000)
    found = []
    for tenant, cluster, namespace, deployment, gpu_type, sharing, pods, busy_ms, observed_ms in observed:
        units = charged.get((tenant, cluster, namespace, deployment, gpu_type, sharing), 0)
        busy = Busy(min(busy_ms, observed_ms), observed_ms)
        price = prices.at(types.get(gpu_type, ""), sharing, window.start)
        cost = None if price is None else Fraction(units, CARD_HOUR) * price / days
        unused = None if cost is None else cost * (1 - Fraction(busy.busy_ms, busy.observed_ms))
        found.append(
            HeldIdle(
                tenants.get(tenant, ""), clusters.get(cluster, ""), namespace, names.get(deployment, ""), deployment,
                types.get(gpu_type, ""), sharing, pods, busy, units,
                None if cost is None else decimal_from(cost, 6), None if unused is None else decimal_from(unused, 6),
            )
        )  # fmt: skip
    return sorted(found, key=lambda one: (-(one.unused_per_day or 0), -one.charged, one.tenant, one.namespace))


def _charged(window: Interval, tenant_id: UUID | None) -> dict[tuple[Any, ...], int]:
    """What was charged in final hours, by what the rows are apart in."""
    rows = UsageRecord.objects.filter(hour__gte=window.start, hour__lt=window.end, bucket=Bucket.TENANTS)
    if tenant_id is not None:
        rows = rows.filter(tenant_id=tenant_id)
    keys = ("tenant_id", "cluster_id", "namespace", "deployment_id", "gpu_type_id", "sharing")
    found: dict[tuple[Any, ...], int] = defaultdict(int)
    for *key, units in rows.order_by().values_list(*keys).annotate(units=Sum("charged")):
        found[tuple(key)] += units
    return found
