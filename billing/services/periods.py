"""Billing periods: made from the clock once, then only read."""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from billing.models import BillingPeriod, Issuer
from portal.kernel.clock import Period, next_period, period_of, utcnow


def period_ensure(issuer: Issuer, instant: datetime) -> BillingPeriod:
    """The issuer's period that contains ``instant``; made, with its instants, where it is new."""
    found = BillingPeriod.objects.filter(issuer=issuer, starts_at__lte=instant, ends_at__gt=instant).first()
    return found or _store(issuer, period_of(instant, issuer.time_zone))


def periods_ensure(issuer: Issuer, *, now: datetime | None = None) -> list[BillingPeriod]:
    """All periods from the first usage (or now) to the current one, the oldest first."""
    now = now or utcnow()
    period = period_of(min(first_usage() or now, now), issuer.time_zone)
    wanted = [period]
    while period.end <= now:
        period = next_period(period)
        wanted.append(period)
    known = {(row.year, row.month): row for row in BillingPeriod.objects.filter(issuer=issuer)}
    for one in wanted:
        if (one.year, one.month) not in known:
            known[one.year, one.month] = _store(issuer, one)
    return sorted(known.values(), key=lambda row: row.starts_at)


def first_usage() -> datetime | None:
    """The first hour that usage is recorded for, of any cluster."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(metered_from) FROM billing_meterprogress")
        row = cursor.fetchone()
        return row[0] if row else None


def _store(issuer: Issuer, period: Period) -> BillingPeriod:
    row, _ = BillingPeriod.objects.get_or_create(
        issuer=issuer,
        year=period.year,
        month=period.month,
        defaults={"starts_at": period.start, "ends_at": period.end},
    )
    return row
