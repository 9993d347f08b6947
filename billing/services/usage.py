"""Usage from allocations, in one statement: what the hours should hold, less what is recorded, is what is added.

The same statement serves a new hour (nothing is recorded yet), a repeated run (the difference is empty) and late
evidence (the difference is signed). Writers hold the tenants' shared locks (:mod:`billing.locks`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from billing.locks import hold_usage_locks
from infra.shares import OVERCOMMIT
from portal.kernel.clock import Interval, hours, split_at

_FACTS = (
    "cluster_id, allocation_id, node_id, hour, slot, tenant_id, namespace, deployment_id, cost_code, gpu_type_id,"
    " sharing, profile, bucket, share, memory_mib, cores, slices, cpu_millicores, host_memory_mib, source"
)
"""What a row is about. Rows that agree in all of it add up."""


def _statement(wanted: str, recorded: str) -> str:
    """Insert what ``wanted`` (a query) says less the rows that the condition ``recorded`` finds."""
    return f"""
        INSERT INTO billing_usagerecord ({_FACTS}, revision, milliseconds, charged, physical)
        SELECT {_FACTS}, revision, milliseconds, charged, physical FROM (
            SELECT {_FACTS}, max(revision) + 1 AS revision, sum(milliseconds)::bigint AS milliseconds,
                sum(charged)::bigint AS charged, sum(physical)::bigint AS physical
            FROM (
                {wanted}
                UNION ALL
                SELECT {_FACTS}, revision, -milliseconds, -charged, -physical FROM billing_usagerecord
                WHERE cluster_id = %(cluster)s AND hour >= %(start)s AND hour < %(end)s AND {recorded}
            ) AS both_sides GROUP BY {_FACTS}
        ) AS difference
        WHERE milliseconds <> 0 OR charged <> 0 OR physical <> 0
        ORDER BY tenant_id, slot
    """  # noqa: S608  # constants only; values are parameters


_HELD = """
    SELECT a.cluster_id, a.id AS allocation_id, a.node_id, s.hour, s.slot, a.tenant_id, a.namespace,
        a.deployment_id, a.cost_code, a.gpu_type_id, a.sharing, a.profile, a.bucket, a.share, a.memory_mib,
        a.cores, a.slices, a.cpu_millicores, a.host_memory_mib, a.source, -1 AS revision,
        t.milliseconds, a.share * t.milliseconds AS charged,
        coalesce(p.physical, a.share * t.milliseconds) AS physical
    FROM billing_deviceallocation a
    JOIN unnest(%(hours)s::timestamptz[], %(slots)s::timestamptz[], %(ends)s::timestamptz[]) AS s (hour, slot, ends)
        ON a.started_at < s.ends AND (a.ended_at IS NULL OR a.ended_at > s.slot)
    CROSS JOIN LATERAL (
        SELECT (extract(epoch FROM least(a.ended_at, s.ends) - greatest(a.started_at, s.slot)) * 1000)::bigint
            AS milliseconds
    ) AS t
    LEFT JOIN unnest(%(p_ids)s::uuid[], %(p_slots)s::timestamptz[], %(p_values)s::bigint[]) AS p (id, slot, physical)
        ON p.id = a.id AND p.slot = s.slot
    WHERE a.cluster_id = %(cluster)s AND a.started_at < %(end)s AND (a.ended_at IS NULL OR a.ended_at > %(start)s)
        AND (%(ids)s::uuid[] IS NULL OR a.id = ANY(%(ids)s::uuid[]))
"""

_IDLE = """
    SELECT %(cluster)s::uuid AS cluster_id, NULL::uuid AS allocation_id, c.node_id, c.hour, c.slot, c.tenant_id,
        '' AS namespace, NULL::uuid AS deployment_id, t.cost_code, c.gpu_type_id,
        CASE WHEN c.sharing = 'mig' THEN 'whole' ELSE c.sharing END AS sharing,
        CASE WHEN c.sharing = 'hami' AND EXISTS (
            SELECT FROM infra_capacityspan o WHERE o.node_id = c.node_id AND o.overcommit_percent > 100
                AND o.started_at <= c.slot AND (o.ended_at IS NULL OR o.ended_at > c.slot)
        ) THEN %(overcommit)s ELSE '' END AS profile, 'idle' AS bucket,
        1000000::bigint AS share, NULL::bigint AS memory_mib, NULL::int AS cores, NULL::int AS slices,
        0::bigint AS cpu_millicores, 0::bigint AS host_memory_mib, c.source, -1 AS revision,
        c.units / 1000000 AS milliseconds, c.units AS charged, c.units AS physical
    FROM unnest(%(nodes)s::uuid[], %(types)s::uuid[], %(sharings)s::text[], %(hours)s::timestamptz[],
        %(slots)s::timestamptz[], %(tenants)s::uuid[], %(sources)s::text[], %(units)s::bigint[])
        AS c (node_id, gpu_type_id, sharing, hour, slot, tenant_id, source, units)
    JOIN tenants_tenant t ON t.id = c.tenant_id
"""

Slot = tuple[datetime, datetime, datetime]
"""The hour, and the start and end of the piece of it."""


class Idle(NamedTuple):
    """Idle time in a slot of cards that only that tenant's zone may use; ``units``: millionths·milliseconds."""

    node_id: UUID
    gpu_type_id: UUID | None
    sharing: str
    hour: datetime
    slot: datetime
    tenant_id: UUID
    source: str
    units: int


@dataclass(frozen=True, slots=True)
class Written:
    """What usage takes from the capacity: ``physical`` by (allocation, slot), millionths·milliseconds, only where it
    is not share x milliseconds; and the idle time that tenants pay for. ``again``: some hours were written before."""

    physical: Mapping[tuple[UUID, datetime], int]
    idle: Sequence[Idle] = ()
    again: bool = False


def slots_of(window: Interval, cuts: Iterable[datetime]) -> list[Slot]:
    """The hours of a window (which begins and ends on full hours), each cut at the instants inside it."""
    inside = sorted(cut for cut in cuts if cut in window)
    slots: list[Slot] = []
    for hour in hours(window):
        pieces = split_at(hour, (cut for cut in inside if cut in hour)) if inside else [hour]
        slots += [(hour.start, piece.start, piece.end) for piece in pieces]
    return slots


def partitions_ensure(window: Interval) -> None:
    """Make the monthly partitions that the window needs, where they are missing."""
    months = sorted({hour.start.replace(day=1, hour=0) for hour in hours(window)})
    with connection.cursor() as cursor:
        for month in months:
            cursor.execute("SELECT billing_usage_partition(%s)", [month])


def usage_write(
    cluster_id: UUID,
    slots: Sequence[Slot],
    *,
    allocation_ids: Collection[UUID] | None = None,
    physical: Mapping[tuple[UUID, datetime], int] | None = None,
) -> int:
    """Add what these slots lack of the cluster's allocations. Needs a system scope.

    Args:
        slots: from :func:`slots_of`: full hours without a gap, all of them final.
        allocation_ids: only these (late evidence); ``None``: all.
        physical: what an allocation occupied in a slot, where that is not what it is charged.

    Returns:
        How many rows were added; 0 when everything is recorded already.
    """
    if not slots:
        return 0
    window = Interval(slots[0][1], slots[-1][2])
    partitions_ensure(window)
    hold_usage_locks(_tenants(cluster_id, window, allocation_ids))
    ids = None if allocation_ids is None else list(allocation_ids)
    contended = physical or {}
    return _insert(
        _HELD,
        "allocation_id IS NOT NULL AND (%(ids)s::uuid[] IS NULL OR allocation_id = ANY(%(ids)s::uuid[]))",
        {
            "cluster": cluster_id,
            "start": window.start,
            "end": window.end,
            "hours": [hour for hour, _, _ in slots],
            "slots": [start for _, start, _ in slots],
            "ends": [end for _, _, end in slots],
            "ids": ids,
            "p_ids": [key[0] for key in contended],
            "p_slots": [key[1] for key in contended],
            "p_values": list(contended.values()),
        },
    )


def idle_usage_write(
    cluster_id: UUID, window: Interval, written: Written, *, node_ids: Sequence[UUID] | None = None
) -> int:
    """Add the idle time of cards that only one tenant's zone may use, on that tenant's account.

    Args:
        written: what :func:`billing.services.capacity.capacity_write` said of this window (and these nodes).
    """
    tenants = {part.tenant_id for part in written.idle}
    ids = None if node_ids is None else list(node_ids)
    if written.again:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT DISTINCT tenant_id FROM billing_usagerecord WHERE cluster_id = %s AND hour >= %s AND hour < %s"
                " AND allocation_id IS NULL AND (%s::uuid[] IS NULL OR node_id = ANY(%s::uuid[]))",
                [cluster_id, window.start, window.end, ids, ids],
            )
            tenants |= {row[0] for row in cursor.fetchall()}
    if not tenants:
        return 0
    hold_usage_locks(tenants)
    columns = list(zip(*written.idle, strict=True)) or [()] * 8
    names = ("nodes", "types", "sharings", "hours", "slots", "tenants", "sources", "units")
    return _insert(
        _IDLE,
        "allocation_id IS NULL AND (%(ids)s::uuid[] IS NULL OR node_id = ANY(%(ids)s::uuid[]))",
        {
            "cluster": cluster_id,
            "start": window.start,
            "end": window.end,
            "ids": ids,
            "overcommit": OVERCOMMIT,
            **{name: list(column) for name, column in zip(names, columns, strict=True)},
        },
    )


def _insert(wanted: str, recorded: str, parameters: dict[str, Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_statement(wanted, recorded), parameters)
        return int(cursor.rowcount)


def _tenants(cluster_id: UUID, window: Interval, allocation_ids: Collection[UUID] | None) -> list[UUID]:
    with connection.cursor() as cursor:
        if allocation_ids is not None:
            cursor.execute(
                "SELECT DISTINCT tenant_id FROM billing_deviceallocation WHERE id = ANY(%s) AND tenant_id IS NOT NULL",
                [list(allocation_ids)],
            )
        else:
            cursor.execute(
                "SELECT DISTINCT tenant_id FROM billing_deviceallocation WHERE cluster_id = %s AND started_at < %s"
                " AND (ended_at IS NULL OR ended_at > %s) AND tenant_id IS NOT NULL",
                [cluster_id, window.end, window.start],
            )
        return [row[0] for row in cursor.fetchall()]
