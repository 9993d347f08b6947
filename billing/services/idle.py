"""Why the idle cards of an hour were idle (``IdleHour``), from what the meter saw of each node, moment by moment.

Evidence: who held what (allocations), what was promised (reservations), who waited (``WaitSpan``), and which zone the
cards are kept for. It is written with the capacity hours, in their transaction, and holds the same idle time.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Any, cast
from uuid import UUID

from django.db import connection
from django.db.models import Q

from billing.metering.idle import Piece, Promise, Reason, Stretch, cut_to, split_idle
from billing.models import BlockedHour, IdleHour
from billing.services.idle_facts import Facts, Group, Held, Moment, facts_of, spelled
from infra.models import GPUType
from infra.models.hardware import SharingMode
from infra.shares import CARD, floor_millionths, mig_share
from portal.kernel.clock import HOUR, Interval, epoch_ms
from portal.kernel.ids import uuid7
from portal.kernel.money import split_units

_Blocked = tuple[Group, tuple[UUID, UUID], UUID | None]

logger = logging.getLogger(__name__)

SLOTS = 10
"""Pods that may share a HAMi card where its register does not say: HAMi's own default (deviceSplitCount)."""


def idle_write(
    cluster_id: UUID,
    window: Interval,
    moments: Sequence[Moment],
    idle: Mapping[tuple[Group, datetime], int],
    node_ids: Collection[UUID] | None = None,
) -> None:
    """Write the idle hours of a window. Rows that are right already are left alone; those without idle time go.

    Args:
        moments: all stretches in which a node was in service.
        idle: what the capacity hours hold.
        node_ids: only these nodes are looked at.
    """
    facts = facts_of(cluster_id, window, moments)
    wanted: dict[tuple[Group, datetime], dict[str, int]] = defaultdict(lambda: dict.fromkeys(_COLUMNS, 0))
    blocked: dict[tuple[Group, datetime, UUID, UUID, UUID | None], int] = defaultdict(int)
    for one in moments:
        if one.stranded:
            wanted[one.group, one.hour]["geometry"] += one.stranded * (one.end - one.start)
        if one.group[2] == SharingMode.HAMI and one.holders:
            wanted[one.group, one.hour]["lopsided"] += _lopsided(one, facts) * (one.end - one.start)

    def key(one: Moment) -> tuple[datetime, str]:
        return one.hour, str(facts.pools[one.group[0]] or "")

    some = sorted((one for one in moments if one.idle), key=lambda one: (*key(one), one.start))
    for (hour, pool), found in groupby(some, key=key):
        _split_hour(hour, UUID(pool) if pool else None, list(found), facts, wanted, blocked)
    for (group, hour), units in idle.items():
        if units or (group, hour) in wanted:
            _settle(group, hour, units, wanted[group, hour])
    _store(cluster_id, window, wanted, blocked, node_ids)


def _split_hour(
    hour: datetime,
    pool_id: UUID | None,
    moments: list[Moment],
    facts: Facts,
    wanted: dict[tuple[Group, datetime], dict[str, int]],
    blocked: dict[tuple[Group, datetime, UUID, UUID, UUID | None], int],
) -> None:
    start, end = epoch_ms(hour), epoch_ms(hour + HOUR)
    demands = [
        replace(one, start=max(one.start, start), end=min(one.end, end))
        for one in facts.demands.get(pool_id, ())
        if one.start < end and one.end > start
    ]
    stretches = [Stretch(one.group, one.start, one.end, _pieces(one, facts), str(one.zone_id or "")) for one in moments]
    groups: dict[Any, set[Group]] = defaultdict(set)
    for one in moments:
        groups[one.group[0]].add(one.group)
    promises = [
        Promise(
            group,
            max(one.start, start),
            min(one.end, end),
            one.amount,
            one.uuid,
            one.profile,
            one.memory_mib,
            one.cores,
        )
        for one in facts.promises
        if one.start < end and one.end > start
        for group in groups.get(one.node, ())
    ]  # fmt: skip
    result = split_idle(stretches, promises, demands)
    for (group, reason), units in result.reasons.items():
        wanted[cast("Group", group), hour][reason.value] += units
    for (group, (tenant_id, deployment_id), owner), units in cast("Mapping[_Blocked, int]", result.blocked).items():
        blocked[group, hour, tenant_id, deployment_id, owner] += units


def _settle(group: Group, hour: datetime, idle: int, row: dict[str, int]) -> None:
    """The row's total is the capacity hour's. Both come from the same moments: a difference is a fault, and is told."""
    row["idle"] = idle
    found = [row[reason] for reason in Reason]
    if sum(found) == idle:
        return
    logger.warning("reasons of idle time differ from it", extra={"node": str(group[0]), "hour": hour.isoformat()})
    shares = split_units(idle, found) if sum(found) else [idle, *[0] * (len(found) - 1)]
    row.update(zip((reason.value for reason in Reason), shares, strict=True))


# --- pieces ----------------------------------------------------------------------------------------------------------


def _pieces(one: Moment, facts: Facts) -> tuple[Piece, ...]:
    node_id, type_id, sharing = one.group
    held = [h for h in facts.held.get(node_id, ()) if h.start <= one.start and h.end >= one.end]
    if sharing == SharingMode.HAMI:
        return cut_to(_cards(node_id, held, facts), one.idle)
    if sharing == SharingMode.MIG:
        gpu_type = facts.types.get(type_id) if type_id else None
        return cut_to(_slices(one.layout, gpu_type, held), one.idle)
    return (Piece(one.idle),)


def _cards(node_id: UUID, held: list[Held], facts: Facts) -> Iterable[Piece]:
    """What is left of each registered card."""
    for card in facts.cards.get(node_id, ()):
        mine = [one for one in held if one.uuid == card.uuid]
        yield Piece(
            max(0, CARD - sum(one.share for one in mine)),
            card.uuid,
            shared=True,
            free_mib=(card.register_memory_mib or card.memory_mib) - sum(one.memory_mib for one in mine),
            card_mib=card.memory_mib,
            free_cores=(card.register_cores or 100) - sum(one.cores for one in mine),
            free_slots=(card.register_slots or SLOTS) - len(mine),
            zone=_zone_of(mine),
        )


def _zone_of(held: list[Held]) -> str:
    """The zone of those who hold a part; where that is more than one, or not known, one that no tenant has."""
    zones = {one.zone for one in held}
    return "" if not zones else zones.pop() if len(zones) == 1 and "" not in zones else "?"


def _slices(layout: Mapping[str, int], gpu_type: GPUType | None, held: list[Held]) -> Iterable[Piece]:
    """The free slices of each profile that the node is cut into."""
    if gpu_type is None or not gpu_type.compute_slices:
        return
    used: dict[str, int] = defaultdict(int)
    for one in held:
        used[spelled(one.profile)] += 1
    for name, number in layout.items():
        if name:
            profile = spelled(name)
            unit = floor_millionths(mig_share(profile, gpu_type.compute_slices))
            yield Piece(max(0, number - used[profile]) * unit, profile=profile, unit=unit)
        else:
            yield Piece(max(0, number - used[""]) * CARD)


def _lopsided(one: Moment, facts: Facts) -> int:
    """Σ over the node's shared cards: by how many millionths of a card free memory and free cores differ."""
    node_id = one.group[0]
    held = [h for h in facts.held.get(node_id, ()) if h.start <= one.start and h.end >= one.end]
    total = 0
    for card in facts.cards.get(node_id, ()):
        mine = [h for h in held if h.uuid == card.uuid]
        if mine and card.memory_mib:
            memory = max(0, CARD - sum(h.memory_mib for h in mine) * CARD // card.memory_mib)
            cores = max(0, CARD - sum(h.cores for h in mine) * CARD // 100)
            total += abs(memory - cores)
    return total


# --- writing ---------------------------------------------------------------------------------------------------------

_COLUMNS = ("idle", *(reason.value for reason in Reason), "geometry", "lopsided")

_UPSERT = f"""
INSERT INTO billing_idlehour AS i (id, cluster_id, node_id, gpu_type_id, sharing, hour, {", ".join(_COLUMNS)})
SELECT id, %s, node_id, gpu_type_id, sharing, hour, {", ".join(_COLUMNS)}
FROM json_to_recordset(%s::json) AS r (id uuid, node_id uuid, gpu_type_id uuid, sharing text, hour timestamptz,
    {", ".join(f"{name} bigint" for name in _COLUMNS)})
ON CONFLICT (cluster_id, node_id, gpu_type_id, sharing, hour) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)}, updated_at = statement_timestamp()
WHERE ({", ".join(f"i.{name}" for name in _COLUMNS)})
    IS DISTINCT FROM ({", ".join(f"excluded.{name}" for name in _COLUMNS)})
"""  # noqa: S608  # constants only


def _store(
    cluster_id: UUID,
    window: Interval,
    wanted: Mapping[tuple[Group, datetime], dict[str, int]],
    blocked: Mapping[tuple[Group, datetime, UUID, UUID, UUID | None], int],
    node_ids: Collection[UUID] | None,
) -> None:
    some = {key: row for key, row in wanted.items() if any(row.values())}
    rows = [
        {
            "id": str(uuid7()), "node_id": str(node_id), "gpu_type_id": str(type_id) if type_id else None,
            "sharing": sharing, "hour": hour.isoformat(), **row,
        }
        for ((node_id, type_id, sharing), hour), row in sorted(some.items(), key=lambda one: (one[0][1], one[0][0][0]))
    ]  # fmt: skip
    here = Q(cluster_id=cluster_id, hour__gte=window.start, hour__lt=window.end)
    if node_ids is not None:
        here &= Q(node_id__in=list(node_ids))
    known = IdleHour.objects.filter(here).values_list("pk", "node_id", "gpu_type_id", "sharing", "hour")
    gone = [pk for pk, *group, hour in known if (tuple(group), hour) not in some]
    if gone:
        IdleHour.objects.filter(pk__in=gone).delete()
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(_UPSERT, [cluster_id, json.dumps(rows)])
    _store_blocked(cluster_id, here, blocked)


def _store_blocked(
    cluster_id: UUID, here: Q, blocked: Mapping[tuple[Group, datetime, UUID, UUID, UUID | None], int]
) -> None:
    names = ("node_id", "gpu_type_id", "sharing", "hour", "tenant_id", "deployment_id", "owner_tenant_id", "units")
    wanted = {(*group, hour, *who, units) for (group, hour, *who), units in blocked.items() if units}
    known = {tuple(values): pk for pk, *values in BlockedHour.objects.filter(here).values_list("pk", *names)}
    gone = [pk for values, pk in known.items() if values not in wanted]
    if gone:
        BlockedHour.objects.filter(pk__in=gone).delete()
    BlockedHour.objects.bulk_create(
        BlockedHour(cluster_id=cluster_id, **dict(zip(names, values, strict=True)))
        for values in sorted(wanted - known.keys(), key=str)
    )
