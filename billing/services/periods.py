"""Billing periods: made from the clock once, then only read."""

from __future__ import annotations

from datetime import datetime

from billing.models import BillingPeriod, Issuer
from billing.selectors.periods import months_until
from portal.kernel.clock import Period, period_of, utcnow


def period_ensure(issuer: Issuer, instant: datetime) -> BillingPeriod:
    """The issuer's period that contains ``instant``; made, with its instants, where it is new."""
    found = BillingPeriod.objects.filter(issuer=issuer, starts_at__lte=instant, ends_at__gt=instant).first()
    return found or _store(issuer, period_of(instant, issuer.time_zone))


def periods_ensure(issuer: Issuer, *, now: datetime | None = None) -> list[BillingPeriod]:
    """All periods from the first usage (or now) to the current one, the oldest first."""
    wanted = months_until(issuer, now or utcnow())
    known = {(row.year, row.month): row for row in BillingPeriod.objects.filter(issuer=issuer)}
    for one in wanted:
        if (one.year, one.month) not in known:
            known[one.year, one.month] = _store(issuer, one)
    return sorted(known.values(), key=lambda row: row.starts_at)


def _store(issuer: Issuer, period: Period) -> BillingPeriod:
    row, _ = BillingPeriod.objects.get_or_create(
        issuer=issuer,
        year=period.year,
        month=period.month,
        defaults={"starts_at": period.start, "ends_at": period.end},
    )
    return row
