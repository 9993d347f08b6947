"""Bills, their lines, and what blocks a close. What a line is made of: ``billing.selectors.lines``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Count, QuerySet, Sum

from billing.drawing import Charges, digest, draw
from billing.locks import last_usage_seq
from billing.models import Bill, BillingPeriod, BillLine, Issuer, MeterProgress
from billing.rating import Line
from billing.selectors.charges import Delimiters, charges_of, delimiters_of, previous_closed, tenants_billed_by
from billing.selectors.periods import periods_known
from infra.models import Cluster
from infra.models.evidence import EvidenceSource
from portal.kernel.clock import Interval, parse_rfc3339


def bills() -> QuerySet[Bill]:
    """Bills of the open scope, the newest first."""
    return Bill.objects.select_related("period", "tenant").order_by("-period__starts_at", "number")


def bill_lines(bill: Bill) -> QuerySet[BillLine]:
    """The lines in print order."""
    return BillLine.objects.filter(bill=bill).select_related("gpu_type", "rate").order_by("position")


def bill_is_reproducible(bill: Bill) -> bool:
    """Whether making the bill again from the usage gives the same bytes. Within a scope of its tenant."""
    period = bill.period
    bounds = Delimiters(
        Interval(period.starts_at, period.ends_at), bill.seq_after, bill.seq_upto, previous_closed(period) is None
    )
    found = charges_of(period.issuer, bounds, tenant_ids=[bill.tenant_id]).get(bill.tenant_id, Charges(()))
    return digest(draw(found, bill.currency), len(found.late)) == bill.digest


@dataclass(frozen=True, slots=True)
class PeriodState:
    """A period on the platform's page. ``behind``: clusters whose usage does not reach its end yet."""

    period: BillingPeriod
    bills: int
    total: Decimal
    behind: tuple[str, ...]


def period_states(issuer: Issuer) -> list[PeriodState]:
    """The issuer's periods with how far each one is, the newest first. Within a system scope."""
    totals = {
        period_id: (count, total)
        for period_id, count, total in Bill.objects.order_by()
        .values_list("period_id")
        .annotate(bills=Count("id"), sum_total=Sum("total"))
    }
    states = []
    for period in reversed(periods_known(issuer)):
        behind = [] if period.state == BillingPeriod.State.CLOSED else clusters_behind(period)
        states.append(PeriodState(period, *totals.get(period.pk, (0, Decimal(0))), tuple(behind)))
    return states


def clusters_behind(period: BillingPeriod) -> list[str]:
    """Slugs of clusters (not abandoned ones) whose usage is not final until the period's end."""
    final = dict(MeterProgress.objects.filter(final_until__gte=period.ends_at).values_list("cluster_id", "final_until"))
    return list(
        Cluster.objects.filter(abandoned_at__isnull=True)
        .exclude(pk__in=list(final))
        .filter(watch_targets__isnull=False)
        .order_by("slug")
        .values_list("slug", flat=True)
        .distinct()
    )


def unpriced_usage(period: BillingPeriod) -> list[Line]:
    """Usage of a period that has no price: it blocks the close. Within a system scope."""
    bounds = delimiters_of(period, period.seq_upto or last_usage_seq())
    found = charges_of(period.issuer, bounds, tenant_ids=tenants_billed_by(period.issuer))
    return [line for charges in found.values() for line in charges.unpriced]


@dataclass(frozen=True, slots=True)
class Unmetered:
    """A pod whose share can't be computed yet, and why."""

    cluster: str
    namespace: str
    pod: str
    reason: str


def unmetered_pods(*, before: datetime | None = None) -> list[Unmetered]:
    """Pods that hold cards of which not enough is known: they block the close, too.

    Args:
        before: only those that were bound before this instant (a period's end).
    """
    rows = MeterProgress.objects.exclude(unmetered={}).select_related("cluster")
    return [
        Unmetered(row.cluster.slug, entry["namespace"], entry["name"], entry["reason"])
        for row in rows
        for entry in row.unmetered.values()
        if entry.get("source") != EvidenceSource.RETROACTIVE  # on no bill
        if before is None or "since" not in entry or parse_rfc3339(entry["since"]) < before
    ]
