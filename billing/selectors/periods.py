"""Periods of an issuer: the stored ones, those that will be stored, and from when they can be closed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import connection

from billing.models import BillingPeriod, Issuer
from portal.kernel.clock import Period, next_period, period_of, utcnow
from portal.kernel.problems import NotFound

_LABEL = re.compile(r"(\d{4})-(\d{2})", re.ASCII)


def first_usage() -> datetime | None:
    """The first hour that usage can be billed for, of any cluster: what was rebuilt from history lies before it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT min(greatest(metered_from, date_trunc('hour', (SELECT min(s.started_at) FROM infra_watchspan s"
            " JOIN infra_watchtarget t ON t.id = s.target_id WHERE t.cluster_id = p.cluster_id), 'UTC')))"
            " FROM billing_meterprogress p"
        )
        row = cursor.fetchone()
        return row[0] if row else None


def months_until(issuer: Issuer, now: datetime) -> list[Period]:
    """The months from the first usage (or now) to the current one, the oldest first."""
    period = period_of(min(first_usage() or now, now), issuer.time_zone)
    months = [period]
    while period.end <= now:
        period = next_period(period)
        months.append(period)
    return months


def periods_known(issuer: Issuer, *, now: datetime | None = None) -> list[BillingPeriod]:
    """The periods from the first usage to the current one, the oldest first.

    A month that nobody has closed or priced yet may not be stored; it is in the list as an unsaved row (its state
    is open). Looking at the list writes nothing.
    """
    known = {(row.year, row.month): row for row in BillingPeriod.objects.filter(issuer=issuer)}
    for month in months_until(issuer, now or utcnow()):
        known.setdefault(
            (month.year, month.month),
            BillingPeriod(
                issuer=issuer, year=month.year, month=month.month, starts_at=month.start, ends_at=month.end
            ),
        )  # fmt: skip
    rows = sorted(known.values(), key=lambda row: row.starts_at)
    for row in rows:
        row.issuer = issuer
    return rows


def unsettled(periods: Sequence[BillingPeriod]) -> list[BillingPeriod]:
    """Those of an issuer's periods that will have bills. An open month before a closed one (evidence of it came
    later) has none: what was used in it is late usage on the next bill."""
    settled = max((row.ends_at for row in periods if row.state == BillingPeriod.State.CLOSED), default=None)
    return [
        row
        for row in periods
        if row.state != BillingPeriod.State.CLOSED and (settled is None or row.starts_at >= settled)
    ]


def period_named(issuer: Issuer, label: str) -> BillingPeriod:
    """The period of a label such as ``2026-11``; unsaved where it is not stored yet.

    Raises:
        NotFound: it is no month of this issuer.
    """
    match = _LABEL.fullmatch(label)
    found = next((row for row in periods_known(issuer) if str(row) == label), None) if match else None
    if found is None:
        raise NotFound(f"{issuer.name} has no period {label}. Periods are written like 2026-11.")
    return found


def issuer_named(slug: str) -> Issuer:
    """The issuer of that slug.

    Raises:
        NotFound: there is none.
    """
    found = Issuer.objects.filter(slug=slug).first()
    if found is None:
        raise NotFound(f"There is no issuer {slug}.")
    return found


def closes_at(period: BillingPeriod, issuer: Issuer) -> datetime:
    """From when the period can be closed: its end and the grace for late evidence."""
    return period.ends_at + timedelta(hours=issuer.grace_hours)
