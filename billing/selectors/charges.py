"""What tenants owe for a period, rated and not yet rounded; for the close, the preview, and checking a bill."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from billing.drawing import Charges
from billing.drawing import charges as rated
from billing.models import BillingAccount, BillingPeriod, Issuer
from billing.prices import book_of, stored_rates
from billing.rates import RateBook
from billing.rating import Estimate, Line
from billing.selectors.fault_credits import Credited, credited_lines, first_credited
from billing.selectors.opencost import silent_lines
from billing.selectors.periods import periods_known
from billing.selectors.sums import Part, Sums, estimate_sums, usage_sums
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
    """Rated charges by tenant: sums by SQL (the period's usage and estimates, and what came late), rated here."""
    rates = stored_rates(issuer)
    edges = {edge for rate in rates for edge in (rate.valid_from, rate.valid_to) if edge is not None}
    now = Part(bounds.window, 0, bounds.upto)
    current = usage_sums(now, edges, rates, tenant_ids=tenant_ids)
    estimates = estimate_sums(now, edges, rates, tenant_ids=tenant_ids)
    late: dict[UUID, Sums] = {}
    late_estimates: dict[UUID, list[Estimate]] = {}
    months: list[datetime] = []
    first = first_credited(issuer, bounds.window, is_first=bounds.is_first)
    if not bounds.is_first:
        known = periods_known(issuer, now=bounds.window.start)
        months = [row.starts_at for row in known if row.starts_at < bounds.window.start]
        first = min(first, months[0])
        past = Part(Interval(months[0], bounds.window.start), bounds.after, bounds.upto)
        late = usage_sums(past, edges.union(months), rates, tenant_ids=tenant_ids)
        late_estimates = estimate_sums(past, edges.union(months), rates, tenant_ids=tenant_ids)
    book = book_of(issuer, rates, Interval(first, bounds.window.end), bounds.upto)
    silent = silent_lines(rates, bounds.window, bounds.upto, tenant_ids)
    credited = credited_lines(issuer, bounds.window, rates, book, is_first=bounds.is_first, tenant_ids=tenant_ids)
    nothing, none = Sums(), Credited()
    return {
        tenant_id: Charges(
            (
                *_rated(current.get(tenant_id, nothing), estimates.get(tenant_id, []), book),
                *silent.get(tenant_id, ()),
                *credited.get(tenant_id, none).current,
            ),
            (
                *_by_month(late.get(tenant_id, nothing), late_estimates.get(tenant_id, []), months, book),
                *credited.get(tenant_id, none).late,
            ),
        )
        for tenant_id in sorted(
            current.keys() | late.keys() | estimates.keys() | late_estimates.keys() | silent.keys() | credited.keys()
        )
    }


def _rated(sums: Sums, estimates: list[Estimate], book: RateBook) -> tuple[Line, ...]:
    return rated(sums.held, sums.idle, book, estimates)


def _by_month(sums: Sums, estimates: list[Estimate], months: list[datetime], book: RateBook) -> tuple[Line, ...]:
    """Late usage keeps the charge period of its own month: two months are never made one line."""
    found: list[Line] = []
    for number, start in enumerate(months):
        end = months[number + 1] if number + 1 < len(months) else None

        def lies(segment: Interval, first: datetime = start, last: datetime | None = end) -> bool:
            return segment.start >= first and (last is None or segment.start < last)

        own = Sums([one for one in sums.held if lies(one.segment)], [one for one in sums.idle if lies(one.segment)])
        found += _rated(own, [one for one in estimates if lies(one.segment)], book)
    return tuple(found)
