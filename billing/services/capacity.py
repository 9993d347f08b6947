"""Where the cards' hours went (``CapacityHour``), from capacity spans and allocations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count, Q

from billing.metering.buckets import Account, Capacity, Load, account, mig_stranded
from billing.metering.intervals import Bucket
from billing.models import DeviceAllocation
from billing.services.usage import Slot
from infra.models import CapacitySpan, Node
from infra.models.hardware import SharingMode
from infra.pod_devices import mig_profile
from infra.quantities import parse_quantity, whole
from infra.shares.exact import mig_compute_slices
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


@dataclass(slots=True)
class Fleet:
    """A cluster's spans and loads in a window, by node."""

    spans: dict[UUID, list[CapacitySpan]] = field(default_factory=lambda: defaultdict(list))
    loads: dict[UUID, list[Load]] = field(default_factory=lambda: defaultdict(list))
    stranded: dict[UUID, int] = field(default_factory=dict)
    payer: dict[UUID, UUID] = field(default_factory=dict)
    """Zone → its only tenant."""


def fleet_of(cluster_id: UUID, window: Interval, node_ids: Collection[UUID] | None = None) -> Fleet:
    """Read what the accounts of a window need, of all the cluster's nodes or only some. Needs a system scope."""
    fleet = Fleet()
    inside = Q(started_at__lt=window.end) & (Q(ended_at__isnull=True) | Q(ended_at__gt=window.start))
    nodes = Q() if node_ids is None else Q(node_id__in=list(node_ids))
    for span in CapacitySpan.objects.filter(inside, nodes, cluster_id=cluster_id).select_related("gpu_type", "node"):
        fleet.spans[span.node_id].append(span)
    rows = DeviceAllocation.objects.filter(inside, nodes, cluster_id=cluster_id, node_id__isnull=False).values_list(
        "id", "node_id", "started_at", "ended_at", "bucket", "share", "device_uuid", "tenant_id"
    )
    for pk, node_id, start, end, bucket, share, device, tenant_id in rows.iterator(chunk_size=10_000):
        end = window.end if end is None else min(end, window.end)
        # What is charged to nobody because its end was only concluded must not displace what was there for sure.
        certain = bucket != Bucket.UNATTRIBUTED or tenant_id is None
        if start < end:
            fleet.loads[node_id].append(Load((pk,), Interval(start, end), Bucket(bucket), share, device, certain))
    fleet.stranded = {
        node_id: stranded
        for node_id, spans in fleet.spans.items()
        if spans[-1].sharing == SharingMode.MIG and (stranded := _stranded(spans[-1]))
    }
    alone = Tenant.objects.values("zone_id").annotate(tenants=Count("id")).filter(tenants=1).values("zone_id")
    fleet.payer = dict(Tenant.objects.filter(zone_id__in=alone).values_list("zone_id", "id"))
    return fleet


def capacity_write(
    cluster_id: UUID, slots: Sequence[Slot], node_ids: Collection[UUID] | None = None
) -> dict[tuple[UUID, datetime], int]:
    """Write the capacity hours of these slots, and say what each allocation occupied where that is not its share.

    Rows that are right already are left alone. A node's payer of idle time is fixed when its hour is first written.

    Returns:
        (allocation, slot) → millionths·milliseconds, only where it differs from share × milliseconds.
    """
    window = Interval(slots[0][1], slots[-1][2])
    fleet = fleet_of(cluster_id, window, node_ids)
    hours: dict[tuple[Group, datetime], _Row] = defaultdict(_Row)
    physical: dict[tuple[UUID, datetime], int] = {}
    for node_id in fleet.spans.keys() | fleet.loads.keys():
        spans, loads = fleet.spans.get(node_id, []), fleet.loads.get(node_id, [])
        for hour, start, end in slots:
            slot = Interval(start, end)
            present = [load for load in loads if load.interval.start < end and load.interval.end > start]
            occupied: dict[UUID, int] = defaultdict(int)
            for group, result, span in _accounts(node_id, slot, spans, present, fleet):
                hours[group, hour].add(result, span, fleet)
                for key, units in result.physical.items():
                    occupied[key[0]] += units  # type: ignore[index]  # our keys hold the allocation's id
            for load in present:
                part = clip(load.interval, slot)
                assert part is not None
                if occupied[load.key[0]] != load.share * part.ms:  # type: ignore[index]
                    physical[load.key[0], start] = occupied[load.key[0]]  # type: ignore[index]
    _upsert(cluster_id, hours)
    return physical


@dataclass(slots=True)
class _Row:
    """A capacity hour while it is summed from its slots and spans."""

    figures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COLUMNS, 0))
    idle_tenant_id: UUID | None = None
    per_card: bool = True
    source: str = "watch"

    def add(self, result: Account, span: CapacitySpan | None, fleet: Fleet) -> None:
        for bucket, units in result.buckets.items():
            self.figures[bucket] += units
        self.figures["in_service"] += result.in_service
        self.figures["overbooked"] += result.overbooked
        self.figures["outside"] += result.outside
        self.per_card = self.per_card and result.per_card
        if span is not None:
            self.source = span.source
            if span.zone_id is not None:
                self.idle_tenant_id = fleet.payer.get(span.zone_id)


def _accounts(
    node_id: UUID, slot: Interval, spans: Sequence[CapacitySpan], loads: list[Load], fleet: Fleet
) -> Iterable[tuple[Group, Account, CapacitySpan | None]]:
    """The slot cut where the node's type or mode changes, each piece with its account; also where nothing is known."""
    at = slot.start
    for span in sorted(spans, key=lambda one: one.started_at):
        part = clip(Interval(span.started_at, max(span.started_at, span.ended_at or slot.end)), slot)
        if part is None:
            continue
        if at < part.start and loads:
            yield (node_id, span.gpu_type_id, span.sharing), account(Interval(at, part.start), (), loads), None
        capacity = Capacity(
            part, span.cards, span.unavailable_cards, span.lost, stranded=fleet.stranded.get(node_id, 0)
        )
        yield (node_id, span.gpu_type_id, span.sharing), account(part, (capacity,), loads), span
        at = part.end
    if at < slot.end and loads:
        last = max(spans, key=lambda one: one.started_at, default=None)
        group = (node_id, last.gpu_type_id, last.sharing) if last else (node_id, None, SharingMode.WHOLE.value)
        rest = account(Interval(at, slot.end), (), loads)
        if rest.outside:
            yield group, rest, None


def _stranded(span: CapacitySpan) -> int:
    """Millionths of the node's cards that its MIG geometry leaves unusable; 0 where the geometry is not known."""
    node: Node = span.node
    slices = span.gpu_type.compute_slices if span.gpu_type else 0
    configured: dict[int, int] = defaultdict(int)
    for resource, amount in node.allocatable.items():
        if profile := mig_profile(resource):
            configured[mig_compute_slices(profile)] += whole(parse_quantity(str(amount)))
    if not slices or not configured:
        return 0
    try:
        return mig_stranded(span.cards, slices, configured)
    except ValueError:
        return 0  # more slices than the cards have: the type's figure is wrong, and nothing can be said


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
