"""What tenants owe for a period, rated and not yet rounded; for the close, the preview, and checking a bill."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from billing.drawing import Charges
from billing.drawing import charges as rated
from billing.models import BillingAccount, BillingPeriod, Issuer
from billing.prices import stored_rates
from billing.rates import RateBook
from billing.rating import Line
from billing.selectors.periods import periods_known
from billing.selectors.sums import Part, Sums, usage_sums
from portal.kernel.clock import Interval
from tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class Delimiters:
    """Which usage a bill is made of: its period's up to ``upto``, and what came late, in (``after``, ``upto``].

    ``is_first``: the period before it is not closed, so nothing is late.
    """

    window: Interval
    after: int
    upto: int
    is_first: bool


def previous_closed(period: BillingPeriod) -> BillingPeriod | None:
    """The issuer's last closed period before this one."""
    return (
        BillingPeriod.objects.filter(
            issuer_id=period.issuer_id, ends_at__lte=period.starts_at, state=BillingPeriod.State.CLOSED
        )
        .order_by("-ends_at")
        .first()
    )


def delimiters_of(period: BillingPeriod, upto: int) -> Delimiters:
    """The delimiters of a period's bills where the close looks at usage up to ``upto``."""
    before = previous_closed(period)
    # While the month before is open, what lies before this one is that month's own.
    follows = before is not None and before.ends_at == period.starts_at
    return Delimiters(
        Interval(period.starts_at, period.ends_at),
        (before.seq_upto or 0) if before and follows else 0,
        upto,
        not follows,
    )


def tenants_billed_by(issuer: Issuer) -> list[UUID]:
    """The issuer's tenants, by slug. Tenants without an account belong to the default issuer."""
    others = BillingAccount.objects.exclude(issuer=issuer) if issuer.is_default else None
    rows = (
        Tenant.objects.exclude(pk__in=others.values("tenant_id"))
        if others is not None
        else Tenant.objects.filter(pk__in=BillingAccount.objects.filter(issuer=issuer).values("tenant_id"))
    )
    return list(rows.order_by("slug").values_list("pk", flat=True))


def issuer_of(tenant_id: UUID) -> Issuer | None:
    """Who bills the tenant; None where no issuer was set up."""
    account = BillingAccount.objects.filter(tenant_id=tenant_id).select_related("issuer").first()
    return account.issuer if account else Issuer.objects.filter(is_default=True).first()


def charges_of(
    issuer: Issuer, bounds: Delimiters, *, tenant_ids: Collection[UUID] | None = None
) -> dict[UUID, Charges]:
    """Rated charges by tenant: two sums by SQL (the period's usage, and what came late), rated here."""
    rates = stored_rates(issuer)
    book = RateBook(rates)
    edges = {edge for rate in rates for edge in (rate.valid_from, rate.valid_to) if edge is not None}
    current = usage_sums(Part(bounds.window, 0, bounds.upto), edges, rates, tenant_ids=tenant_ids)
    late: dict[UUID, Sums] = {}
    months: list[datetime] = []
    if not bounds.is_first:
        known = periods_known(issuer, now=bounds.window.start)
        months = [row.starts_at for row in known if row.starts_at < bounds.window.start]
        past = Part(Interval(months[0], bounds.window.start), bounds.after, bounds.upto)
        late = usage_sums(past, edges.union(months), rates, tenant_ids=tenant_ids)
    return {
        tenant_id: Charges(
            rated(current[tenant_id].held, current[tenant_id].idle, book) if tenant_id in current else (),
            _by_month(late[tenant_id], months, book) if tenant_id in late else (),
        )
        for tenant_id in sorted(current.keys() | late.keys())
    }


def _by_month(sums: Sums, months: list[datetime], book: RateBook) -> tuple[Line, ...]:
    """Late usage keeps the charge period of its own month: two months are never made one line."""
    found: list[Line] = []
    for start, end in zip(months, [*months[1:], None], strict=True):
        held, idle = (
            [one for one in part if one.segment.start >= start and (end is None or one.segment.start < end)]
            for part in (sums.held, sums.idle)
        )
        found += rated(held, idle, book)
    return tuple(found)
