"""Where the cards' hours went (``CapacityHour``), from capacity spans and allocations."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Count, Q, QuerySet

from billing.metering.buckets import Account, Capacity, Key, Load, account, mig_stranded
from billing.metering.intervals import Bucket
from billing.models import CapacityHour, DeviceAllocation
from billing.services.idle import idle_write
from billing.services.idle_facts import Moment
from billing.services.usage import Idle, Slot, Written
from infra.models import CapacitySpan, GPUType, Node, PodObservation
from infra.models.evidence import EvidenceSource
from infra.models.hardware import SharingMode
from infra.node_reading import mig_layout
from infra.shares import CARD, parse_mig
from portal.kernel.clock import Interval, clip, epoch_ms, from_epoch_ms
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
    per_card = excluded.per_card, source = excluded.source, revision = c.revision + 1,
    updated_at = statement_timestamp()
WHERE ({", ".join(f"c.{name}" for name in _COLUMNS)}, c.per_card, c.source)
    IS DISTINCT FROM ({", ".join(f"excluded.{name}" for name in _COLUMNS)}, excluded.per_card, excluded.source)
"""  # noqa: S608  # constants only

Group = tuple[UUID, UUID | None, str]
"""Node, GPU type, sharing."""


class Span(NamedTuple):
    """A :class:`~infra.models.CapacitySpan`, as far as it matters here. ``stranded``: what its MIG geometry leaves
    unusable, millionths of a card."""

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
    unavailable_devices: list[str]
    mig_layout: dict[str, int]
    stranded: int = 0

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
    payer: dict[UUID, UUID]


def capacity_write(cluster_id: UUID, slots: Sequence[Slot], node_ids: Collection[UUID] | None = None) -> Written:
    """Write the capacity hours of these slots, and say what usage needs to know of them.

    Rows that are right already are left alone. A node's payer of idle time is fixed when its hour is first written.
    Needs a system scope.
    """
    window = Interval(slots[0][1], slots[-1][2])
    fleet = _fleet(cluster_id, window, node_ids)
    held_in = _held(cluster_id, slots, node_ids)
    hours: dict[tuple[Group, datetime], _Row] = defaultdict(_Row)
    physical: dict[tuple[UUID, datetime], int] = {}
    moving_in: dict[datetime, set[UUID]] = {}
    alike: dict[object, Account] = {}
    moments: list[Moment] = []
    for hour, start, end in slots:
        slot, held = Interval(start, end), held_in.get(start, {})
        moving_in[start] = held.keys() - fleet.spans.keys()
        for node_id, spans in fleet.spans.items():
            holders = held.get(node_id, ())
            span = _still(spans, holders, slot)
            if span is None:
                moving_in[start].add(node_id)
                continue
            result = _still_account(span, holders, slot, alike)
            per_card = all(one.per_card for one in holders)
            hours[(node_id, span.gpu_type_id, span.sharing), hour].add(result, per_card, span, start)
            moments += _moments(result, span, hour, epoch_ms(start), bool(holders))
    loads_in = _loads(cluster_id, slots, moving_in)
    for hour, start, end in slots:
        slot = Interval(start, end)
        for node_id in moving_in[start]:
            loads = loads_in.get((start, node_id), [])
            occupied: dict[Key, int] = defaultdict(int)
            for group, result, at in _accounts(node_id, slot, fleet, loads):
                hours[group, hour].add(result, result.per_card, at, start)
                if at is not None:
                    moments += _moments(result, at, hour, epoch_ms(result.window.start), bool(loads))
                for key, units in result.physical.items():
                    occupied[key] += units
            for load in loads:
                if occupied[load.key] != load.share * load.interval.ms:
                    physical[UUID(str(load.key[0])), start] = occupied[load.key]
    known = _known(cluster_id, window, node_ids)
    for key in known.keys() - hours.keys():
        hours[key] = _Row()  # nothing was there after all
    idle = _paid_idle(hours, known, fleet)
    _upsert(cluster_id, hours)
    idle_write(cluster_id, window, moments, {key: row.figures["idle"] for key, row in hours.items()}, node_ids)
    return Written(physical, idle, bool(known))


# --- reading ---------------------------------------------------------------------------------------------------------


def _fleet(cluster_id: UUID, window: Interval, node_ids: Collection[UUID] | None) -> Fleet:
    rows = CapacitySpan.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=window.start), cluster_id=cluster_id, started_at__lt=window.end
    )
    if node_ids is not None:
        rows = rows.filter(node_id__in=list(node_ids))
    spans: dict[UUID, list[Span]] = defaultdict(list)
    for values in rows.order_by("started_at").values_list(*Span._fields[:-1]):
        spans[values[0]].append(Span(*values))
    _strand(spans)
    alone = Tenant.objects.values("zone_id").annotate(tenants=Count("id")).filter(tenants=1).values("zone_id")
    return Fleet(
        spans,
        dict(Tenant.objects.filter(zone_id__in=alone).values_list("zone_id", "id")),
    )


def _known(
    cluster_id: UUID, window: Interval, node_ids: Collection[UUID] | None
) -> dict[tuple[Group, datetime], UUID | None]:
    """The capacity hours that were written before, with their payer of idle time."""
    rows = CapacityHour.objects.filter(cluster_id=cluster_id, hour__gte=window.start, hour__lt=window.end)
    if node_ids is not None:
        rows = rows.filter(node_id__in=list(node_ids))
    found = rows.values_list("node_id", "gpu_type_id", "sharing", "hour", "idle_tenant_id")
    return {((node_id, type_id, sharing), hour): payer for node_id, type_id, sharing, hour, payer in found}


_HELD = """
SELECT s.slot, a.node_id, a.bucket, sum(a.share)::bigint,
    bool_and(a.started_at <= s.slot AND coalesce(a.ended_at >= s.ends, true)), bool_and(a.device_uuid <> ''),
    bool_and(a.bucket <> 'unattributed' OR (a.tenant_id IS NULL AND NOT a.inferred))
FROM billing_deviceallocation a
JOIN unnest(%(slots)s::timestamptz[], %(ends)s::timestamptz[]) AS s (slot, ends)
    ON a.started_at < s.ends AND (a.ended_at IS NULL OR a.ended_at > s.slot)
WHERE a.cluster_id = %(cluster)s AND a.node_id IS NOT NULL AND a.started_at < %(end)s
    AND (a.ended_at IS NULL OR a.ended_at > %(start)s) AND (a.ended_at IS NULL OR a.ended_at > a.started_at)
    AND (%(nodes)s::uuid[] IS NULL OR a.node_id = ANY(%(nodes)s::uuid[]))
GROUP BY s.slot, a.node_id, a.bucket
"""


def _held(
    cluster_id: UUID, slots: Sequence[Slot], node_ids: Collection[UUID] | None
) -> dict[datetime, dict[UUID, list[Held]]]:
    """Start of a slot → node → what its pods held in each bucket. One query, summed by the database."""
    found: dict[datetime, dict[UUID, list[Held]]] = defaultdict(lambda: defaultdict(list))
    with connection.cursor() as cursor:
        cursor.execute(
            _HELD,
            {
                "cluster": cluster_id,
                "start": slots[0][1],
                "end": slots[-1][2],
                "slots": [start for _, start, _ in slots],
                "ends": [end for _, _, end in slots],
                "nodes": None if node_ids is None else list(node_ids),
            },
        )
        for start, node_id, *values in cursor.fetchall():
            found[start][node_id].append(Held(*values))
    return found


def _loads(
    cluster_id: UUID, slots: Sequence[Slot], moving_in: Mapping[datetime, Collection[UUID]]
) -> dict[tuple[datetime, UUID], list[Load]]:
    """(start of a slot, node) → each allocation within it, of the nodes that move in it. One query.

    What is charged to nobody because an end was only concluded must not displace what was there for sure.
    """
    found: dict[tuple[datetime, UUID], list[Load]] = defaultdict(list)
    nodes = set().union(*moving_in.values())
    if not nodes:
        return found
    starts = [start for _, start, _ in slots]
    rows = DeviceAllocation.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=starts[0]),
        cluster_id=cluster_id,
        node_id__in=list(nodes),
        started_at__lt=slots[-1][2],
    )
    proofs = _proofs(cluster_id, rows)
    values = rows.values_list(
        "id", "node_id", "started_at", "ended_at", "bucket", "share", "device_uuid", "tenant_id", "pod_uid"
    )
    for pk, node_id, started_at, ended_at, bucket, share, device, tenant_id, uid in values:
        if ended_at is not None and ended_at <= started_at:
            continue
        certain = (bucket != Bucket.UNATTRIBUTED or tenant_id is None) and not _is_doubtful(started_at, proofs.get(uid))
        for number in range(max(0, bisect_right(starts, started_at) - 1), len(slots)):
            _, start, end = slots[number]
            if ended_at is not None and start >= ended_at:
                break
            part = clip(Interval(started_at, ended_at or end), Interval(start, end))
            if part is not None and node_id in moving_in[start]:
                found[start, node_id].append(Load((pk,), part, Bucket(bucket), share, device, certain))
    return found


def _is_doubtful(started_at: datetime, proof: datetime | None) -> bool:
    return proof is not None and started_at >= proof


def _proofs(cluster_id: UUID, rows: QuerySet[DeviceAllocation]) -> dict[str, datetime]:
    """Of pods in namespaces that nobody claimed, whose end was only concluded: until when they were there for sure."""
    uids = rows.filter(bucket=Bucket.UNATTRIBUTED, tenant__isnull=True, inferred=True).values("pod_uid")
    found = PodObservation.objects.filter(cluster_id=cluster_id, uid__in=uids, ended_at__isnull=False)
    return {uid: from_epoch_ms(epoch_ms(proof)) for uid, proof in found.values_list("uid", "ended_at") if proof}


# --- accounts --------------------------------------------------------------------------------------------------------


def _still(spans: Sequence[Span], held: Collection[Held], slot: Interval) -> Span | None:
    """The span of a node on which nothing changes within the slot and whose sums are enough, since no card can be
    overcommitted; None where something may."""
    span = next((one for one in spans if one.covers(slot)), None)
    if span is None or span.lost or (held and (span.sharing == SharingMode.HAMI or span.unavailable_devices)):
        return None
    steady = all(one.steady and one.certain for one in held)
    return span if steady and sum(one.share for one in held) <= CARD * span.cards else None


def _still_account(span: Span, held: Iterable[Held], slot: Interval, alike: dict[object, Account]) -> Account:
    """The account of a node on which nothing changes; made once for all nodes and slots that are ``alike``."""
    shares = tuple(sorted((one.bucket, one.share) for one in held))
    key = (slot.ms, span.cards, span.unavailable_cards, span.stranded, shares)
    if key not in alike:
        loads = [Load((bucket,), slot, Bucket(bucket), share) for bucket, share in shares]
        alike[key] = account(slot, (_capacity(span, slot),), loads)
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
        yield group, account(part, (_capacity(span, part),), loads), span
        at = part.end
    if at < slot.end and loads:
        last = spans[-1] if spans else None
        group = (node_id, last.gpu_type_id, last.sharing) if last else (node_id, None, SharingMode.WHOLE.value)
        rest = account(Interval(at, slot.end), (), loads)
        if rest.outside:
            yield group, rest, None


def _moments(result: Account, span: Span, hour: datetime, start: int, holders: bool) -> Iterable[Moment]:
    """The stretches of an account, which may be one that was made for a like node at another time."""
    group = (span.node_id, span.gpu_type_id, span.sharing)
    shift = start - epoch_ms(result.window.start)
    for free in result.free:
        yield Moment(
            group, span.zone_id, hour, free.start + shift, free.end + shift, span.cards, int(free.idle),
            free.stranded, holders, span.mig_layout,
        )  # fmt: skip


def _capacity(span: Span, part: Interval) -> Capacity:
    return Capacity(part, span.cards, span.unavailable_cards, span.lost, span.stranded, tuple(span.unavailable_devices))


def _strand(spans: dict[UUID, list[Span]]) -> None:
    """Work out what each span's MIG geometry strands. One that does not say how its cards were cut up (it is from
    before that was kept) is taken to have been cut as its node is now."""
    mig = [
        (node_id, number, span)
        for node_id, found in spans.items()
        for number, span in enumerate(found)
        if span.sharing == SharingMode.MIG
    ]
    if not mig:
        return
    slices = dict(GPUType.objects.values_list("pk", "compute_slices"))
    untold = {node_id for node_id, _, span in mig if not span.mig_layout}
    now = {
        node.pk: mig_layout(node.capacity or node.allocatable, node.mig_profile)
        for node in Node.objects.filter(pk__in=untold)
        if spans[node.pk][-1].sharing == SharingMode.MIG
    }
    for node_id, number, span in mig:
        layout = span.mig_layout or now.get(node_id, {})
        stranded = _stranded(span.cards, slices.get(span.gpu_type_id, 0) if span.gpu_type_id else 0, layout)
        spans[node_id][number] = span._replace(mig_layout=layout, stranded=stranded)


def _stranded(cards: int, slices: int, layout: Mapping[str, int]) -> int:
    """Millionths of the node's cards that its MIG geometry leaves unusable; 0 where the geometry is not known."""
    if not slices:
        return 0
    configured: dict[int, int] = defaultdict(int)
    for profile, number in layout.items():
        # No profile: beside cards that are cut up, those that are not.
        configured[parse_mig(profile).compute_slices if profile else slices] += number
    if not configured:
        return 0
    try:
        return mig_stranded(cards, slices, configured)
    except ValueError:
        return 0  # more slices than the cards have: the type's figure is wrong, and nothing can be said


# --- writing ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Row:
    """A capacity hour while it is summed from its slots and spans."""

    figures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COLUMNS, 0))
    zones: dict[UUID, None] = field(default_factory=dict)
    idle: dict[tuple[datetime, UUID], int] = field(default_factory=lambda: defaultdict(int))
    idle_tenant_id: UUID | None = None
    per_card: bool = True
    source: str = "watch"

    def add(self, result: Account, per_card: bool, span: Span | None, slot: datetime) -> None:
        for bucket, units in result.buckets.items():
            self.figures[bucket] += units
        self.figures["in_service"] += result.in_service
        self.figures["overbooked"] += result.overbooked
        self.figures["outside"] += result.outside
        self.per_card = self.per_card and per_card
        if span is not None:
            if self.source != EvidenceSource.RETROACTIVE:  # an hour of which some was rebuilt is not a watched one
                self.source = span.source
            if span.zone_id is not None:
                self.zones.pop(span.zone_id, None)  # the last one comes last
                self.zones[span.zone_id] = None
                self.idle[slot, span.zone_id] += result.buckets[Bucket.IDLE]


def _paid_idle(
    hours: Mapping[tuple[Group, datetime], _Row], known: Mapping[tuple[Group, datetime], UUID | None], fleet: Fleet
) -> list[Idle]:
    """The idle time that is a tenant's; each hour's payer is noted on its row, and stays who it was."""
    idle: list[Idle] = []
    for key, row in hours.items():
        payers = {zone: fleet.payer.get(zone) for zone in row.zones}
        if key in known and len(payers) == 1:
            payers = dict.fromkeys(payers, known[key])
        row.idle_tenant_id = next(reversed(payers.values()), None)
        group, hour = key
        for (slot, zone), units in row.idle.items():
            payer = payers[zone]
            if units and payer is not None:
                idle.append(Idle(*group, hour, slot, payer, row.source, units))
    return idle


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
