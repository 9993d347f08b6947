"""What a bill's line is made of: the parts of allocations that its predicate finds, in one query."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from django.db import connection

from billing.models import BillLine, Bucket, DeviceAllocation
from billing.rating import AMOUNT_PLACES, QUANTITY_PLACES
from infra.models import Node
from infra.models.hardware import SharingMode
from infra.shares import CARD
from portal.kernel.clock import hour_start
from portal.kernel.money import decimal_from

HOUR_MS = 3_600_000
TOLERANCE = Fraction(1, 10**9)
"""Of quantities: a line sums parts that were each rounded to the 12th decimal."""

_HOST = {BillLine.Kind.CPU: ("cpu_millicores", 1000), BillLine.Kind.MEMORY: ("host_memory_mib", 1024)}


@dataclass(frozen=True, slots=True)
class LineAllocation:
    """An allocation's part in a line. ``charged``: millionths of a card × milliseconds; ``allocation`` is None for
    reserved idle time, which belongs to a node. ``quantity`` is in the line's unit, exact."""

    allocation: DeviceAllocation | None
    node_id: UUID | None
    node_name: str
    first: datetime
    last: datetime
    milliseconds: int
    charged: int
    revisions: int
    quantity: Fraction

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
    rows = _rows(line, limit, offset)
    allocations = {
        row.pk: row
        for row in DeviceAllocation.objects.filter(pk__in=[row[0] for row in rows if row[0]]).select_related(
            "node", "cluster", "gpu_type"
        )
    }
    nodes = dict(Node.objects.filter(pk__in={row[1] for row in rows if row[1]}).values_list("pk", "name"))
    parts = tuple(
        LineAllocation(
            allocations.get(pk), node_id, nodes.get(node_id, ""), first, last, int(ms), int(charged), revision,
            _quantity(line, int(ms), int(charged), int(excess)),
        )
        for pk, node_id, first, last, ms, charged, excess, revision, *_ in rows
        if first is not None  # a page without rows still has the totals
    )  # fmt: skip
    count, all_ms, all_charged, all_excess = rows[0][-4:]
    total = _quantity(line, int(all_ms), int(all_charged), int(all_excess))
    return LineParts(parts, int(count), int(all_ms), total)


def line_adds_up(line: BillLine, parts: LineParts) -> bool:
    """Whether the parts are the line, in quantity and in money."""
    amount = decimal_from(parts.quantity * Fraction(line.unit_price), AMOUNT_PLACES)
    close = abs(parts.quantity - Fraction(line.quantity)) <= TOLERANCE
    return close and abs(amount - line.amount_exact) <= Decimal("0.000001")


def _rows(line: BillLine, limit: int | None, offset: int) -> list[Any]:
    column, _ = _HOST.get(BillLine.Kind(line.kind), ("cpu_millicores", 1))
    share = "1000000" if line.sharing == SharingMode.MIG else "share"
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
                    AND bucket = %(bucket)s
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
                "namespace": line.namespace, "type": line.gpu_type_id, "sharing": line.sharing,
                "profile": line.profile, "limit": limit, "offset": offset,
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
