"""What a bill's line is made of: the parts of allocations that its predicate finds, in one query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count, QuerySet, Sum

from billing.models import BillLine, BillLineHour, Bucket, DeviceAllocation, EstimatedCost, FaultCredit, Rate
from billing.rating import AMOUNT_PLACES, QUANTITY_PLACES
from infra.models import Node, PodObservation
from infra.models.hardware import SharingMode
from infra.shares import CARD
from portal.kernel.clock import Interval, hour_start
from portal.kernel.money import decimal_from

HOUR_MS = 3_600_000
TOLERANCE = Fraction(1, 10**9)
"""Of quantities: a line sums parts that were each rounded to the 12th decimal."""

ESTIMATED = (BillLine.Kind.STORAGE, BillLine.Kind.NETWORK)
"""Kinds of lines that are made of OpenCost's costs, not of allocations."""

_HOST = {BillLine.Kind.CPU: ("cpu_millicores", 1000), BillLine.Kind.MEMORY: ("host_memory_mib", 1024)}


@dataclass(frozen=True, slots=True)
class LineAllocation:
    """An allocation's part in a line. ``charged``: millionths of a card × milliseconds; ``allocation`` is None for
    reserved idle time, which belongs to a node. ``quantity`` is in the line's unit, exact. ``workload``: what made the
    pod (``Job/train``; "" where its evidence does not say), ``workload_known``: of ``infra.workloads.Known``."""

    allocation: DeviceAllocation | None
    node_id: UUID | None
    node_name: str
    first: datetime
    last: datetime
    milliseconds: int
    charged: int
    revisions: int
    quantity: Fraction
    workload: str = ""
    workload_known: str = ""
    queue: str = ""

    @property
    def seconds(self) -> Decimal:
        """Seconds that it was held within the line."""
        return decimal_from(Fraction(self.milliseconds, 1000), 3)

    @property
    def shown_quantity(self) -> Decimal:
        """The quantity to 12 decimals."""
        return decimal_from(self.quantity, QUANTITY_PLACES)


@dataclass(frozen=True, slots=True)
class LineParts:
    """Some of a line's parts, and what all of them are together."""

    rows: tuple[LineAllocation, ...]
    count: int
    milliseconds: int
    quantity: Fraction

    @property
    def shown_quantity(self) -> Decimal:
        """Σ of all parts, to 12 decimals."""
        return decimal_from(self.quantity, QUANTITY_PLACES)


def bill_line_allocations(line: BillLine) -> list[LineAllocation]:
    """All parts of a line; Σ of them is the line's quantity. Within a scope of its tenant.

    Args:
        line: with its ``bill``.
    """
    return list(bill_line_parts(line).rows)


def bill_line_parts(line: BillLine, *, limit: int | None = None, offset: int = 0) -> LineParts:
    """Some of the parts, by their first moment; the totals are of all. Within a scope of its tenant.

    Args:
        line: with its ``bill``, and ``gpu_rate`` for a line of CPU or memory.
    """
    if line.kind == BillLine.Kind.CREDIT:
        return _credit_parts(line)
    if line.kind in ESTIMATED:
        return LineParts((), 0, 0, Fraction(line.quantity))
    rows = _rows(line, limit, offset)
    allocations = {
        row.pk: row
        for row in DeviceAllocation.objects.filter(pk__in=[row[0] for row in rows if row[0]]).select_related(
            "node", "cluster", "gpu_type"
        )
    }
    nodes = dict(Node.objects.filter(pk__in={row[1] for row in rows if row[1]}).values_list("pk", "name"))
    made_by = _workloads(allocations.values())
    parts = tuple(
        LineAllocation(
            allocations.get(pk), node_id, nodes.get(node_id, ""), first, last, int(ms), int(charged), revision,
            _quantity(line, int(ms), int(charged), int(excess)), *made_by.get(pk, ("", "", "")),
        )
        for pk, node_id, first, last, ms, charged, excess, revision, *_ in rows
        if first is not None  # a page without rows still has the totals
    )  # fmt: skip
    count, all_ms, all_charged, all_excess = rows[0][-4:]
    total = _quantity(line, int(all_ms), int(all_charged), int(all_excess))
    return LineParts(parts, int(count), int(all_ms), total)


def _credit_parts(line: BillLine) -> LineParts:
    """What a credit takes back: the time of one allocation."""
    credit = FaultCredit.objects.filter(pk=line.credit_id).first() if line.credit_id else None
    row = (
        DeviceAllocation.objects.filter(pk=credit.allocation_id).select_related("node", "cluster", "gpu_type").first()
        if credit is not None
        else None
    )
    quantity = Fraction(line.quantity)
    if row is None:
        return LineParts((), 0, 0, quantity)
    ms = Interval(line.charge_from, line.charge_to).ms
    part = LineAllocation(
        row, row.node_id, row.node.name if row.node else "", line.charge_from, line.charge_to, -ms,
        -ms * (credit.held["share"] if credit is not None else row.share), 0,
        quantity,
    )  # fmt: skip
    return LineParts((part,), 1, -ms, quantity)


def _workloads(allocations: Iterable[DeviceAllocation]) -> dict[UUID, tuple[str, str, str]]:
    """Allocation → (workload, how it is known, queue), for those whose pod's evidence says it. One query."""
    rows = list(allocations)
    pods = PodObservation.objects.filter(
        cluster_id__in={row.cluster_id for row in rows}, uid__in={row.pod_uid for row in rows}
    ).exclude(workload_kind="")
    known = {
        (cluster_id, uid): (f"{kind}/{name}", how, queue)
        for cluster_id, uid, kind, name, how, queue in pods.values_list(
            "cluster_id", "uid", "workload_kind", "workload_name", "workload_known", "queue"
        )
    }
    found = ((row.pk, known.get((row.cluster_id, row.pod_uid))) for row in rows)
    return {pk: workload for pk, workload in found if workload is not None}


def line_adds_up(line: BillLine, parts: LineParts) -> bool:
    """Whether the parts are the line, in quantity and in money. Of an hourly rate: the parts in quantity, its hours in
    money. Of an estimate: the hours' costs. Within a scope of its tenant."""
    if line.kind in ESTIMATED:
        cost = sum((one.cost for one in estimated_hours(line)), Decimal(0))
        return cost == line.quantity
    hours = line_hours(line)
    count, quantity, amount = hours.aggregate(n=Count("pk"), q=Sum("quantity"), a=Sum("amount_exact")).values()
    close = abs(parts.quantity - Fraction(line.quantity)) <= TOLERANCE * (1 + count)
    if count:
        return bool(close and quantity == line.quantity and amount == line.amount_exact)
    exact = decimal_from(parts.quantity * Fraction(line.unit_price), AMOUNT_PLACES)
    return close and abs(exact - line.amount_exact) <= Decimal("0.000001")


def line_hours(line: BillLine) -> QuerySet[BillLineHour]:
    """The hours of a line with an hourly rate, each with its unit cost; none of other lines. In its tenant's scope."""
    rows = BillLineHour.objects.filter(tenant_id=line.tenant_id, line_id=line.pk)
    return rows.select_related("cluster", "unit_cost__answer").order_by("charge_from", "cluster__slug")


@dataclass(frozen=True, slots=True)
class EstimatedHour:
    """What OpenCost says that a namespace's storage or network cost in an hour, as far as it is on the line."""

    cluster: str
    hour: datetime
    namespace: str
    cost: Decimal
    revisions: int


def estimated_hours(line: BillLine) -> list[EstimatedHour]:
    """The hours behind a line of storage or network; Σ of their costs is its quantity. In its tenant's scope.

    Args:
        line: with its ``bill``.
    """
    if line.kind not in ESTIMATED:
        return []
    rows = EstimatedCost.objects.filter(
        tenant_id=line.tenant_id, resource=line.kind, namespace=line.namespace, cost_code=line.cost_code,
        hour__gte=line.charge_from, hour__lt=line.charge_to, seq__lte=line.bill.seq_upto, currency=line.bill.currency,
        seq__gt=line.bill.seq_after if line.correction else 0,
    )  # fmt: skip
    sums = rows.order_by("hour", "cluster__slug").values_list("cluster__slug", "hour", "namespace")
    return [EstimatedHour(*row) for row in sums.annotate(sum_amount=Sum("amount"), rows=Count("pk"))]


def _rows(line: BillLine, limit: int | None, offset: int) -> list[Any]:
    column, _ = _HOST.get(BillLine.Kind(line.kind), ("cpu_millicores", 1))
    # A line of CPU or memory names no card: its devices are those of the GPU rate that says what is included.
    kind: BillLine | Rate = line.gpu_rate or line
    share = "1000000" if kind.sharing == SharingMode.MIG else "share"
    included = 0
    if line.gpu_rate is not None:
        name = "included_cpu_millicores" if line.kind == BillLine.Kind.CPU else "included_memory_mib"
        included = getattr(line.gpu_rate, name) or 0
    # Nothing but constants and column names of ours is put into the text.
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH parts AS (
                SELECT allocation_id, node_id, min(slot) AS first, max(hour) AS last, sum(milliseconds) AS ms,
                    sum(charged) AS charged,
                    sum(greatest(0, {column}::numeric * {CARD} - %(included)s::numeric * {share}) * milliseconds)
                        AS excess, max(revision) AS revision
                FROM billing_usagerecord
                WHERE tenant_id = %(tenant)s AND hour >= %(first_hour)s AND hour < %(end)s
                    AND slot >= %(start)s AND slot < %(end)s AND seq > %(after)s AND seq <= %(upto)s
                    AND deployment_id IS NOT DISTINCT FROM %(deployment)s AND cost_code = %(code)s
                    AND (%(idle)s OR deployment_id IS NOT NULL OR namespace = %(namespace)s)
                    AND gpu_type_id IS NOT DISTINCT FROM %(type)s AND sharing = %(sharing)s AND profile = %(profile)s
                    AND bucket = %(bucket)s AND source <> 'retroactive'
                GROUP BY allocation_id, node_id
                HAVING sum(milliseconds) <> 0 OR sum(charged) <> 0
            ), totals AS (
                SELECT count(*), coalesce(sum(ms), 0), coalesce(sum(charged), 0), coalesce(sum(excess), 0) FROM parts
            )
            SELECT shown.*, totals.* FROM totals LEFT JOIN (
                SELECT * FROM parts ORDER BY first, allocation_id LIMIT %(limit)s OFFSET %(offset)s
            ) AS shown ON true
            ORDER BY first, allocation_id
            """,  # noqa: S608
            {
                "included": included, "tenant": line.tenant_id, "first_hour": hour_start(line.charge_from),
                "start": line.charge_from, "end": line.charge_to,
                "after": line.bill.seq_after if line.correction else 0, "upto": line.bill.seq_upto,
                "deployment": line.deployment_id, "code": line.cost_code, "idle": line.kind == BillLine.Kind.IDLE,
                "namespace": line.namespace, "type": kind.gpu_type_id, "sharing": kind.sharing,
                "profile": kind.profile, "limit": limit, "offset": offset,
                "bucket": Bucket.IDLE if line.kind == BillLine.Kind.IDLE else Bucket.TENANTS,
            },
        )  # fmt: skip
        rows: list[Any] = cursor.fetchall()
        return rows


def _quantity(line: BillLine, ms: int, charged: int, excess: int) -> Fraction:
    """The line's units: core-hours and GiB-hours beyond what the card includes, instance-hours, or GPU-hours."""
    host = _HOST.get(BillLine.Kind(line.kind))
    if host is not None:
        return Fraction(excess, CARD * host[1] * HOUR_MS)
    if line.unit == "instance-hour":
        return Fraction(ms, HOUR_MS)
    return Fraction(charged, CARD * HOUR_MS)
