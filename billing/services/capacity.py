"""Where the cards' hours went (``CapacityHour``), from capacity spans and allocations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Count, Q

from billing.metering.buckets import Account, Capacity, Key, Load, account, mig_stranded
from billing.metering.intervals import Bucket
from billing.models import DeviceAllocation
from billing.services.usage import Slot
from infra.models import CapacitySpan, GPUType, Node
from infra.models.hardware import SharingMode
from infra.pod_devices import mig_profile
from infra.quantity import parse_quantity, whole
from infra.shares import CARD, parse_mig
from portal.kernel.clock import Interval, clip
from portal.kernel.ids import uuid7
from tenants.models import Tenant

_COLUMNS = (
    "tenants", "idle", "starting", "overhead", "unavailable", "unattributed", "in_service", "overbooked", "outside",
)  # fmt: skip

_UPSERT = f"""
INSERT INTO billing_capacityhour AS c
    (id, cluster_id, node_id, gpu_type_id, sharing, hour, revision, {", ".join(_COLUMNS)}, idle_tenant_id, per_card,
     source)
SELECT id, %s, node_id, gpu_type_id, sharing, hour, 0, {", ".join(_COLUMNS)}, idle_tenant_id, per_card, source
FROM json_to_recordset(%s::json) AS r (id uuid, node_id uuid, gpu_type_id uuid, sharing text, hour timestamptz,
    {", ".join(f"{name} bigint" for name in _COLUMNS)}, idle_tenant_id uuid, per_card boolean, source text)
ON CONFLICT (cluster_id, node_id, gpu_type_id, sharing, hour) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)},
    per_card = excluded.per_card, revision = c.revision + 1, updated_at = statement_timestamp()
WHERE ({", ".join(f"c.{name}" for name in _COLUMNS)}, c.per_card)
    IS DISTINCT FROM ({", ".join(f"excluded.{name}" for name in _COLUMNS)}, excluded.per_card)
"""  # noqa: S608  # constants only

Group = tuple[UUID, UUID | None, str]
"""Node, GPU type, sharing."""


class Span(NamedTuple):
    """A :class:`~infra.models.CapacitySpan`, as far as it matters here."""

    node_id: UUID
    gpu_type_id: UUID | None
    sharing: str
    zone_id: UUID | None
    cards: int
    unavailable_cards: int
    lost: bool
    started_at: datetime
    ended_at: datetime | None
    source: str

    def covers(self, slot: Interval) -> bool:
        """Whether nothing changes within the slot."""
        return self.started_at <= slot.start and (self.ended_at is None or self.ended_at >= slot.end)


class Held(NamedTuple):
    """What a node's pods held in one bucket within a slot: Σ shares; whether all of it was there all the time, on
    cards that are known, and for certain."""

    bucket: str
    share: int
    steady: bool
    per_card: bool
    certain: bool


@dataclass(slots=True)
class Fleet:
    """What is true for all slots of a window. ``payer``: zone → its only tenant."""

    spans: dict[UUID, list[Span]]
    stranded: dict[UUID, int]
    payer: dict[UUID, UUID]


def capacity_write(
    cluster_id: UUID, slots: Sequence[Slot], node_ids: Collection[UUID] | None = None
) -> dict[tuple[UUID, datetime], int]:
    """Write the capacity hours of these slots, and say what each allocation occupied where that is not its share.

    Rows that are right already are left alone. A node's payer of idle time is fixed when its hour is first written.
    Needs a system scope.

    Returns:
        (allocation, slot) → millionths·milliseconds, only where it differs from share x milliseconds.
    """
    fleet = _fleet(cluster_id, Interval(slots[0][1], slots[-1][2]), node_ids)
    hours: dict[tuple[Group, datetime], _Row] = defaultdict(_Row)
    physical: dict[tuple[UUID, datetime], int] = {}
    for hour, start, end in slots:
        slot = Interval(start, end)
        held = _held(cluster_id, slot, node_ids)
        still = {node_id for node_id in fleet.spans if _is_still(fleet.spans[node_id], held.get(node_id, ()), slot)}
        alike: dict[object, Account] = {}
        for node_id in still:
            whole_slot = next(one for one in fleet.spans[node_id] if one.covers(slot))
            result = _still_account(whole_slot, held.get(node_id, ()), slot, fleet, alike)
            per_card = all(one.per_card for one in held.get(node_id, ()))
            group = (node_id, whole_slot.gpu_type_id, whole_slot.sharing)
            hours[group, hour].add(result, per_card, whole_slot, fleet)
        moving = (fleet.spans.keys() | held.keys()) - still
        loads = _loads(cluster_id, slot, moving) if moving else {}
        for node_id in moving:
            occupied: dict[Key, int] = defaultdict(int)
            for group, result, span in _accounts(node_id, slot, fleet, loads.get(node_id, [])):
                hours[group, hour].add(result, result.per_card, span, fleet)
                for key, units in result.physical.items():
                    occupied[key] += units
            for load in loads.get(node_id, ()):
                if occupied[load.key] != load.share * load.interval.ms:
                    physical[UUID(str(load.key[0])), start] = occupied[load.key]
    _upsert(cluster_id, hours)
    return physical


# --- reading ---------------------------------------------------------------------------------------------------------


def _fleet(cluster_id: UUID, window: Interval, node_ids: Collection[UUID] | None) -> Fleet:
    rows = CapacitySpan.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=window.start), cluster_id=cluster_id, started_at__lt=window.end
    )
    if node_ids is not None:
        rows = rows.filter(node_id__in=list(node_ids))
    spans: dict[UUID, list[Span]] = defaultdict(list)
    for values in rows.order_by("started_at").values_list(*Span._fields):
        spans[values[0]].append(Span(*values))
    mig = [node_id for node_id, found in spans.items() if found[-1].sharing == SharingMode.MIG]
    alone = Tenant.objects.values("zone_id").annotate(tenants=Count("id")).filter(tenants=1).values("zone_id")
    return Fleet(
        spans,
        {node.pk: _stranded(node, spans[node.pk][-1]) for node in Node.objects.filter(pk__in=mig)},
        dict(Tenant.objects.filter(zone_id__in=alone).values_list("zone_id", "id")),
    )


_HELD = """
SELECT node_id, bucket, sum(share)::bigint, bool_and(started_at <= %(start)s AND coalesce(ended_at >= %(end)s, true)),
    bool_and(device_uuid <> ''), bool_and(bucket <> 'unattributed' OR tenant_id IS NULL)
FROM billing_deviceallocation
WHERE cluster_id = %(cluster)s AND node_id IS NOT NULL AND started_at < %(end)s
    AND (ended_at IS NULL OR ended_at > %(start)s) AND (ended_at IS NULL OR ended_at > started_at)
    AND (%(nodes)s::uuid[] IS NULL OR node_id = ANY(%(nodes)s::uuid[]))
GROUP BY node_id, bucket
"""


def _held(cluster_id: UUID, slot: Interval, node_ids: Collection[UUID] | None) -> dict[UUID, list[Held]]:
    found: dict[UUID, list[Held]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(
            _HELD,
            {"cluster": cluster_id, "start": slot.start, "end": slot.end,
             "nodes": None if node_ids is None else list(node_ids)},
        )  # fmt: skip
        for node_id, *values in cursor.fetchall():
            found[node_id].append(Held(*values))
    return found


def _loads(cluster_id: UUID, slot: Interval, node_ids: Collection[UUID]) -> dict[UUID, list[Load]]:
    """Each allocation of these nodes within the slot. What is charged to nobody because an end was only concluded must
    not displace what was there for sure."""
    rows = DeviceAllocation.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=slot.start),
        cluster_id=cluster_id,
        node_id__in=list(node_ids),
        started_at__lt=slot.end,
    ).values_list("id", "node_id", "started_at", "ended_at", "bucket", "share", "device_uuid", "tenant_id")
    found: dict[UUID, list[Load]] = defaultdict(list)
    for pk, node_id, started_at, ended_at, bucket, share, device, tenant_id in rows:
        part = clip(Interval(started_at, ended_at or slot.end), slot) if (ended_at or slot.end) > started_at else None
        if part is not None:
            certain = bucket != Bucket.UNATTRIBUTED or tenant_id is None
            found[node_id].append(Load((pk,), part, Bucket(bucket), share, device, certain))
    return found


# --- accounts --------------------------------------------------------------------------------------------------------


def _is_still(spans: Sequence[Span], held: Iterable[Held], slot: Interval) -> bool:
    """Whether nothing on the node changes within the slot and its sums are enough: no card can be overcommitted."""
    span = next((one for one in spans if one.covers(slot)), None)
    if span is None or span.lost or span.sharing == SharingMode.HAMI:
        return False
    return all(one.steady and one.certain for one in held) and sum(one.share for one in held) <= CARD * span.cards


def _still_account(
    span: Span, held: Iterable[Held], slot: Interval, fleet: Fleet, alike: dict[object, Account]
) -> Account:
    """The account of a node on which nothing changes; made once for all nodes that are ``alike``."""
    shares = tuple(sorted((one.bucket, one.share) for one in held))
    key = (span.cards, span.unavailable_cards, fleet.stranded.get(span.node_id, 0), shares)
    if key not in alike:
        loads = [Load((bucket,), slot, Bucket(bucket), share) for bucket, share in shares]
        alike[key] = account(slot, (_capacity(span, slot, fleet),), loads)
    return alike[key]


def _accounts(
    node_id: UUID, slot: Interval, fleet: Fleet, loads: list[Load]
) -> Iterable[tuple[Group, Account, Span | None]]:
    """The slot cut where the node's type or mode changes, each piece with its account; also where nothing is known."""
    spans = fleet.spans.get(node_id, [])
    at = slot.start
    for span in spans:
        part = clip(Interval(span.started_at, max(span.started_at, span.ended_at or slot.end)), slot)
        if part is None:
            continue
        group = (node_id, span.gpu_type_id, span.sharing)
        if at < part.start and loads:
            yield group, account(Interval(at, part.start), (), loads), None
        yield group, account(part, (_capacity(span, part, fleet),), loads), span
        at = part.end
    if at < slot.end and loads:
        last = spans[-1] if spans else None
        group = (node_id, last.gpu_type_id, last.sharing) if last else (node_id, None, SharingMode.WHOLE.value)
        rest = account(Interval(at, slot.end), (), loads)
        if rest.outside:
            yield group, rest, None


def _capacity(span: Span, part: Interval, fleet: Fleet) -> Capacity:
    return Capacity(part, span.cards, span.unavailable_cards, span.lost, fleet.stranded.get(span.node_id, 0))


def _stranded(node: Node, span: Span) -> int:
    """Millionths of the node's cards that its MIG geometry leaves unusable; 0 where the geometry is not known."""
    gpu_type = GPUType.objects.filter(pk=span.gpu_type_id).first() if span.gpu_type_id else None
    configured: dict[int, int] = defaultdict(int)
    for resource, amount in node.allocatable.items():
        if profile := mig_profile(resource):
            configured[parse_mig(profile).compute_slices] += whole(parse_quantity(str(amount)))
    if gpu_type is None or not gpu_type.compute_slices or not configured:
        return 0
    try:
        return mig_stranded(span.cards, gpu_type.compute_slices, configured)
    except ValueError:
        return 0  # more slices than the cards have: the type's figure is wrong, and nothing can be said


# --- writing ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Row:
    """A capacity hour while it is summed from its slots and spans."""

    figures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COLUMNS, 0))
    idle_tenant_id: UUID | None = None
    per_card: bool = True
    source: str = "watch"

    def add(self, result: Account, per_card: bool, span: Span | None, fleet: Fleet) -> None:
        for bucket, units in result.buckets.items():
            self.figures[bucket] += units
        self.figures["in_service"] += result.in_service
        self.figures["overbooked"] += result.overbooked
        self.figures["outside"] += result.outside
        self.per_card = self.per_card and per_card
        if span is not None:
            self.source = span.source
            if span.zone_id is not None:
                self.idle_tenant_id = fleet.payer.get(span.zone_id)


def _upsert(cluster_id: UUID, hours: dict[tuple[Group, datetime], _Row]) -> None:
    rows: list[dict[str, Any]] = [
        {
            "id": str(uuid7()),
            "node_id": str(node_id),
            "gpu_type_id": str(type_id) if type_id else None,
            "sharing": sharing,
            "hour": hour.isoformat(),
            "idle_tenant_id": str(row.idle_tenant_id) if row.idle_tenant_id else None,
            "per_card": row.per_card,
            "source": row.source,
            **row.figures,
        }
        for ((node_id, type_id, sharing), hour), row in sorted(
            hours.items(), key=lambda item: (item[0][1], item[0][0][0])
        )
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(_UPSERT, [cluster_id, json.dumps(rows)])
