"""Credits for faults as lines of a bill, and as lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from billing.drawing import charges
from billing.models import BillingPeriod, DeviceAllocation, FaultCredit, Issuer
from billing.prices import segments_of
from billing.rates import Rate, RateBook, RateKey, Resource
from billing.rating import HostPart, Kind, Line, Subject, UsageSum
from infra.models.hardware import SharingMode
from infra.shares import CARD
from portal.kernel.clock import Interval, hours
from portal.kernel.money import exact_sum


@dataclass(slots=True)
class Credited:
    """A tenant's lines; ``late`` ones are of a month that was closed before."""

    current: list[Line] = field(default_factory=list)
    late: list[Line] = field(default_factory=list)


def held_of(allocation: DeviceAllocation) -> dict[str, Any]:
    """What a credit keeps of an allocation (with its ``gpu_type``): all that its price depends on."""
    return {
        "cluster": str(allocation.cluster_id), "type": allocation.gpu_type.slug if allocation.gpu_type else "",
        "sharing": allocation.sharing, "profile": allocation.profile, "share": allocation.share,
        "cpu_millicores": allocation.cpu_millicores, "memory_mib": allocation.host_memory_mib,
        "cost_code": allocation.cost_code,
    }  # fmt: skip


def credit_lines_of(credit: FaultCredit, rates: Sequence[Rate], book: RateBook) -> list[Line]:
    """The negative lines of one credit: what the allocation is charged in that time, one for each rate. What has no
    price yet is among them, without an amount."""
    held = credit.held
    window = Interval(credit.charge_from, credit.charge_to)
    edges = {edge for one in rates for edge in (one.valid_from, one.valid_to) if edge is not None}
    hourly = any(one.hourly for one in rates)
    if hourly:
        edges |= {hour.start for hour in hours(window)}
    key = RateKey(Resource.GPU, held["type"], held["sharing"], held["profile"])
    deployment = str(credit.deployment_id) if credit.deployment_id else ""
    subject = Subject(str(credit.tenant_id), "" if deployment else credit.namespace, deployment, held["cost_code"])
    cpu, memory = held["cpu_millicores"], held["memory_mib"]
    share = CARD if held["sharing"] == SharingMode.MIG else held["share"]
    sums = [
        UsageSum(
            subject, key, segment, -segment.ms, -held["share"] * segment.ms,
            (HostPart(cpu, memory, share, -segment.ms),) if cpu or memory else (),
            cluster=held["cluster"] if hourly else "",
        )
        for segment in segments_of(edges, window)
        if segment.ms
    ]  # fmt: skip
    return [
        replace(line, kind=Kind.CREDIT, reason=credit.sentence, credit_id=str(credit.pk))
        for line in charges(sums, (), book)
    ]


def amount_of(lines: Iterable[Line]) -> Decimal | None:
    """What lines take off, positive; None where some of it has no price yet: a part of it would pass for all of it."""
    amounts = [line.amount for line in lines]
    known = [amount for amount in amounts if amount is not None]
    return -exact_sum(known) if amounts and len(known) == len(amounts) else None


def credits_due(issuer: Issuer, window: Interval, *, is_first: bool) -> QuerySet[FaultCredit]:
    """Approved credits of the bills of a month: those that they have, or, while it is open, those they would get.

    Args:
        is_first: the month before is not closed, so what lies before this one is not its.
    """
    period = BillingPeriod.objects.filter(issuer=issuer, starts_at=window.start).first()
    if period is not None and period.state != BillingPeriod.State.OPEN:
        return FaultCredit.objects.filter(issuer=issuer, state=FaultCredit.State.APPROVED, period=period)
    return credits_open(issuer, window, is_first=is_first)


def credits_open(issuer: Issuer, window: Interval, *, is_first: bool) -> QuerySet[FaultCredit]:
    """Approved credits that are on no bill yet, and belong on that of this month."""
    rows = FaultCredit.objects.filter(
        issuer=issuer, state=FaultCredit.State.APPROVED, period__isnull=True, settled=True, charge_from__lt=window.end
    )
    return rows.filter(charge_from__gte=window.start) if is_first else rows


def credited_lines(
    issuer: Issuer, window: Interval, rates: Sequence[Rate], book: RateBook, *, is_first: bool,
    tenant_ids: Collection[UUID] | None,
) -> dict[UUID, Credited]:  # fmt: skip
    """The credit lines of a month's bills by tenant. One without a price is left out: the usage itself says so."""
    rows = credits_due(issuer, window, is_first=is_first)
    if tenant_ids is not None:
        rows = rows.filter(tenant_id__in=tenant_ids)
    found: dict[UUID, Credited] = defaultdict(Credited)
    for credit in rows.order_by("charge_from", "id"):
        lines = [line for line in credit_lines_of(credit, rates, book) if line.is_priced]
        own = found[credit.tenant_id]
        (own.current if credit.charge_from >= window.start else own.late).extend(lines)
    return found


def first_credited(issuer: Issuer, window: Interval, *, is_first: bool) -> datetime:
    """From when on the rates of a month's bills are needed for its credits."""
    first = credits_due(issuer, window, is_first=is_first).order_by("charge_from").values_list("charge_from").first()
    return min(window.start, first[0]) if first else window.start


def fault_credits(*, tenant_id: UUID | None = None, state: str = "") -> QuerySet[FaultCredit]:
    """All credits that the scope shows, the latest fault first."""
    rows = FaultCredit.objects.select_related("tenant", "issuer", "period").order_by("-happened_at", "-id")
    if tenant_id is not None:
        rows = rows.filter(tenant_id=tenant_id)
    return rows.filter(state=state) if state else rows
