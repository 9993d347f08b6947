"""The statement of the past: what tenants held before their cluster was watched, rebuilt from history, at the rates of
then. It is on no bill and owed by nobody: a statement of its own, with its error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Max, Min, Q, QuerySet

from billing.drawing import Charges, draw
from billing.drawing import charges as rated
from billing.locks import last_usage_seq
from billing.models import Bucket, DeviceAllocation, Issuer
from billing.prices import book_of, stored_rates
from billing.rating import Line
from billing.selectors.charges import tenants_billed_by
from billing.selectors.conservation import CARD_HOUR
from billing.selectors.sums import Only, Part, Sums, usage_sums
from infra.models.evidence import EvidenceSource
from infra.models.hardware import SharingMode
from infra.shares import CARD
from portal.kernel.clock import MILLISECOND, Interval, Period, next_period, period_of
from portal.kernel.money import Money, decimal_from
from portal.kernel.problems import NotFound
from tenants.models import ModelDeployment, Tenant

HOURS_PLACES = 6


@dataclass(frozen=True, slots=True)
class PastLine:
    """A line of the statement. ``amount`` is rounded so that the lines add up; None: there was no rate then.

    ``error``: by how much the quantity may be too small, in the line's unit; it is in no amount.
    """

    label: str
    line: Line
    amount: Decimal | None
    error: Decimal


@dataclass(frozen=True, slots=True)
class PastMonth:
    """A tenant's month before its clusters were watched.

    Hours are those of whole cards. ``error_hours``: may be missing in ``gpu_hours``; ``proved_hours``: of them the
    Kubernetes API itself proves. ``unpriced``: lines without a rate, in no amount.
    """

    month: Period
    total: Money
    lines: tuple[PastLine, ...]
    gpu_hours: Decimal
    proved_hours: Decimal
    error_hours: Decimal

    @property
    def unpriced(self) -> int:
        """How many lines had no rate."""
        return sum(1 for row in self.lines if row.amount is None)


def past_months(tenant_id: UUID, issuer: Issuer) -> list[Period]:
    """The months with rebuilt time of the tenant, the newest first. Within its scope."""
    found = _rows([tenant_id]).aggregate(first=Min("started_at"), last=Max("ended_at"))
    return _months(issuer, found["first"], found["last"])


def past_month(tenant_id: UUID, issuer: Issuer, month: Period) -> PastMonth:
    """One month of a tenant. Within its scope; a few queries."""
    return _statements(issuer, month, [tenant_id]).get(tenant_id) or PastMonth(
        month, Money(Decimal(0), issuer.currency), (), Decimal(0), Decimal(0), Decimal(0)
    )


def past_month_named(tenant_id: UUID, issuer: Issuer, label: str) -> PastMonth:
    """By a label such as ``2026-09``.

    Raises:
        NotFound: nothing of that month was rebuilt.
    """
    month = next((one for one in past_months(tenant_id, issuer) if one.label == label), None)
    if month is None:
        raise NotFound(f"Nothing of {label[:20]} was rebuilt from history.")
    return past_month(tenant_id, issuer, month)


@dataclass(frozen=True, slots=True)
class PastTenant:
    """A tenant in a month of the platform's page."""

    tenant: Tenant
    statement: PastMonth


def platform_past_months(issuer: Issuer) -> list[Period]:
    """The months with rebuilt time of any tenant of the issuer, the newest first. Within a system scope."""
    found = _rows(tenants_billed_by(issuer)).aggregate(first=Min("started_at"), last=Max("ended_at"))
    return _months(issuer, found["first"], found["last"])


def platform_past_month_named(issuer: Issuer, label: str) -> Period:
    """A month of them by a label such as ``2026-09``. Within a system scope.

    Raises:
        NotFound: nothing of that month was rebuilt.
    """
    month = next((one for one in platform_past_months(issuer) if one.label == label), None)
    if month is None:
        raise NotFound(f"Nothing of {label[:20]} was rebuilt from history.")
    return month


def past_tenants(issuer: Issuer, month: Period) -> list[PastTenant]:
    """What each tenant held in a month that was rebuilt, by slug. Within a system scope; as many queries for many
    tenants as for one."""
    found = _statements(issuer, month, tenants_billed_by(issuer))
    rows = Tenant.objects.filter(pk__in=list(found)).order_by("slug")
    return [PastTenant(tenant, found[tenant.pk]) for tenant in rows]


# --- inside ----------------------------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """What a line is about."""

    deployment: str
    namespace: str
    cost_code: str
    gpu_type: str
    sharing: str
    profile: str


@dataclass(frozen=True, slots=True)
class _Edge:
    """An allocation's edge that may be wrong: at ``at`` by ``units``: millionths of a card (MIG: an instance) × ms;
    ``card_units`` the same in millionths of a card."""

    at: datetime
    units: int
    card_units: int


def _rows(tenant_ids: Collection[UUID]) -> QuerySet[DeviceAllocation]:
    return DeviceAllocation.objects.filter(
        tenant_id__in=list(tenant_ids), source=EvidenceSource.RETROACTIVE, bucket=Bucket.TENANTS
    )


def _months(issuer: Issuer, first: datetime | None, last: datetime | None) -> list[Period]:
    if first is None or last is None or first >= last:
        return []
    months = [period_of(first, issuer.time_zone)]
    while months[-1].end < last:
        months.append(next_period(months[-1]))
    return months[::-1]


def _statements(issuer: Issuer, month: Period, tenant_ids: Collection[UUID]) -> dict[UUID, PastMonth]:
    rates = stored_rates(issuer)
    window = Interval(month.start, month.end)
    edges = {edge for rate in rates for edge in (rate.valid_from, rate.valid_to) if edge is not None}
    part = Part(window, 0, last_usage_seq())
    sums = usage_sums(part, edges, rates, tenant_ids=tenant_ids, only=Only(retroactive=True))
    book = book_of(issuer, rates, window, part.upto)
    errors = _errors(window, list(sums))
    proved = _proved(window, list(sums))
    ids = {one.subject.deployment for found in sums.values() for one in found.held}
    names = {str(pk): name for pk, name in ModelDeployment.objects.filter(pk__in=ids - {""}).values_list("pk", "name")}
    return {
        tenant_id: _statement(issuer, month, found, rated(found.held, found.idle, book), errors[tenant_id], names,
                              proved.get(tenant_id, 0))
        for tenant_id, found in sums.items()
    }  # fmt: skip


def _statement(
    issuer: Issuer, month: Period, sums: Sums, lines: tuple[Line, ...], errors: dict[_Key, list[_Edge]],
    names: dict[str, str], proved: int,
) -> PastMonth:  # fmt: skip
    drawn = draw(Charges(lines), issuer.currency)
    rows = [(one.line, one.amount) for one in drawn.lines] + [(line, None) for line in drawn.unpriced]
    return PastMonth(
        month,
        Money(drawn.total, issuer.currency),
        tuple(
            PastLine(
                names.get(line.subject.deployment, line.subject.deployment) or line.subject.namespace,
                line,
                amount,
                _line_error(line, errors),
            )
            for line, amount in rows
        ),
        _hours(sum(one.charged for one in sums.held)),
        _hours(proved),
        _hours(sum(edge.card_units for edges in errors.values() for edge in edges)),
    )


def _line_error(line: Line, errors: dict[_Key, list[_Edge]]) -> Decimal:
    """In the line's unit; of lines of CPU and memory nothing is stated beside what their cards' lines say."""
    if line.key is None or line.kind != "gpu":
        return Decimal(0)
    subject = line.subject
    key = _Key(
        subject.deployment, subject.namespace, subject.cost_code, line.key.gpu_type, line.key.sharing, line.key.profile
    )
    units = sum(edge.units for edge in errors.get(key, ()) if line.segment.start <= edge.at < line.segment.end)
    return _hours(units)


def _errors(window: Interval, tenant_ids: Collection[UUID]) -> dict[UUID, dict[_Key, list[_Edge]]]:
    """Tenant → what a line is about → edges within the window that may be wrong. An end on the edge of two months is
    the earlier one's."""
    found: dict[UUID, dict[_Key, list[_Edge]]] = defaultdict(lambda: defaultdict(list))
    rows = DeviceAllocation.objects.filter(
        Q(start_error_ms__gt=0) | Q(end_error_ms__gt=0), tenant_id__in=list(tenant_ids), bucket=Bucket.TENANTS,
        source=EvidenceSource.RETROACTIVE, started_at__lt=window.end, ended_at__gt=window.start,
    )  # fmt: skip
    columns = (
        "tenant_id", "deployment_id", "namespace", "cost_code", "gpu_type__slug", "sharing", "profile", "share",
        "started_at", "ended_at", "start_error_ms", "end_error_ms",
    )  # fmt: skip
    for (
        tenant_id,
        deployment,
        namespace,
        code,
        gpu_type,
        sharing,
        profile,
        share,
        start,
        end,
        before,
        after,
    ) in rows.values_list(*columns):
        key = _Key(str(deployment or ""), "" if deployment else namespace, code, gpu_type or "", sharing, profile)
        per_ms = CARD if sharing == SharingMode.MIG else share
        for at, error in ((start, before), (end - MILLISECOND, after)):
            if error and at in window:
                found[tenant_id][key].append(_Edge(at, per_ms * error, share * error))
    return found


def _proved(window: Interval, tenant_ids: Collection[UUID]) -> dict[UUID, int]:
    """Millionths of a card × ms of rebuilt time that the Kubernetes API proves."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT u.tenant_id, sum(u.charged)::bigint FROM billing_usagerecord u"
            " JOIN billing_deviceallocation a ON a.id = u.allocation_id AND a.tenant_id = u.tenant_id"
            " WHERE u.tenant_id = ANY(%s) AND u.hour >= %s AND u.hour < %s AND u.source = 'retroactive'"
            " AND u.bucket = 'tenants' AND a.proved_by_api GROUP BY u.tenant_id",
            [list(tenant_ids), window.start, window.end],
        )
        return dict(cursor.fetchall())


def _hours(units: int) -> Decimal:
    return decimal_from(Fraction(units, CARD_HOUR), HOURS_PLACES)
