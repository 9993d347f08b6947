"""What was there beside the meter's own figures of a node: who held which part, what was promised, who waited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Q

from billing.metering.idle import Demand, Lacks, Promise
from billing.metering.promises import Kept, promises_of
from infra.models import Device, GPUType, Node, Reservation
from infra.models.hardware import SharingMode
from infra.shares import floor_millionths, mig_share, parse_mig
from portal.kernel.clock import Interval, epoch_ms
from tenants.models import Tenant, WaitSpan
from tenants.waiting import NO_CAPACITY, QUOTA_EXCEEDED

Group = tuple[UUID, UUID | None, str]
"""Node, GPU type, sharing."""


class Moment(NamedTuple):
    """A node that did not change from ``start`` to ``end`` (ms): its idle and stranded amounts, millionths of a card.

    ``holders``: whether any pod held a part of it. ``layout``: how its cards were cut up (MIG): profile → instances.
    """

    group: Group
    zone_id: UUID | None
    hour: datetime
    start: int
    end: int
    cards: int
    idle: int
    stranded: int
    holders: bool
    layout: Mapping[str, int]


class Held(NamedTuple):
    """An allocation as far as it matters here; times in ms."""

    node_id: UUID
    uuid: str
    share: int
    memory_mib: int
    cores: int
    profile: str
    start: int
    end: int
    zone: str
    replica_id: UUID | None


@dataclass(slots=True)
class Facts:
    """What is known of the nodes beside their moments."""

    held: dict[UUID, list[Held]] = field(default_factory=lambda: defaultdict(list))
    cards: dict[UUID, list[Device]] = field(default_factory=lambda: defaultdict(list))
    pools: dict[UUID, UUID | None] = field(default_factory=dict)
    types: dict[UUID, GPUType] = field(default_factory=dict)
    promises: list[Promise] = field(default_factory=list)
    demands: dict[UUID | None, list[Demand]] = field(default_factory=lambda: defaultdict(list))


def facts_of(cluster_id: UUID, window: Interval, moments: Sequence[Moment]) -> Facts:
    facts = Facts()
    ids = {one.group[0] for one in moments if one.idle or one.stranded or one.holders}
    if not ids:
        return facts
    facts.pools = dict(Node.objects.filter(pk__in=ids).values_list("pk", "pool_id"))
    facts.types = {row.pk: row for row in GPUType.objects.all()}
    zones = {pk: str(zone_id) for pk, zone_id in Tenant.objects.values_list("pk", "zone_id")}
    facts.demands = _demands(cluster_id, window, facts.types, zones)
    hami = {one.group[0] for one in moments if one.group[2] == SharingMode.HAMI}
    mig = {
        one.group[0]
        for one in moments
        if one.group[2] == SharingMode.MIG and one.idle and facts.pools[one.group[0]] in facts.demands
    }
    idle = {one.group[0] for one in moments if one.idle}
    reserved = _reserved(cluster_id, window, idle)
    detailed = {one.group[0] for one in moments if one.group[0] in hami and one.holders} | mig
    detailed |= {one.node for one in reserved if isinstance(one.node, UUID)}
    for row in _held(cluster_id, window, detailed, zones):
        facts.held[row.node_id].append(row)
    for card in Device.objects.filter(
        Q(gone_at__isnull=True) | Q(gone_at__gt=window.start), node_id__in=hami, first_seen_at__lt=window.end
    ).order_by("node_id", "index"):
        facts.cards[card.node_id].append(card)
    facts.promises = promises_of(
        reserved,
        [
            Kept(
                row.node_id, row.replica_id, row.start, row.end, row.share, row.uuid, row.profile, row.memory_mib,
                row.cores,
            )
            for rows in facts.held.values()
            for row in rows
            if row.replica_id is not None
        ],
    )  # fmt: skip
    return facts


def _within(window: Interval, start: str, end: str) -> Q:
    return Q(**{f"{start}__lt": window.end}) & (Q(**{f"{end}__isnull": True}) | Q(**{f"{end}__gt": window.start}))


def _demands(
    cluster_id: UUID, window: Interval, types: Mapping[UUID, GPUType], zones: Mapping[UUID, str]
) -> dict[UUID | None, list[Demand]]:
    """Pool → who waited for its cards. Only a full quota and missing room say that cards were wanted."""
    found: dict[UUID | None, list[Demand]] = defaultdict(list)
    rows = WaitSpan.objects.filter(
        _within(window, "started_at", "ended_at"), cluster_id=cluster_id,
        reason__in=[QUOTA_EXCEEDED, NO_CAPACITY],
    )  # fmt: skip
    for row in rows.order_by("started_at", "pk"):
        gpu_type = types.get(row.gpu_type_id) if row.gpu_type_id else None
        unit = 0
        if row.profile and gpu_type is not None and gpu_type.compute_slices:
            unit = floor_millionths(mig_share(row.profile, gpu_type.compute_slices))
        lacks = Lacks.QUOTA if row.reason == QUOTA_EXCEEDED else Lacks.DEVICES
        found[row.pool_id].append(
            Demand(
                epoch_ms(row.started_at), epoch_ms(row.ended_at or window.end),
                Lacks.HOST if row.rule == "node-resources" else lacks, row.count, row.pods,
                zone=zones.get(row.tenant_id, ""), memory_mib=row.memory_mib, cores=row.cores,
                profile=spelled(row.profile), unit=unit, who=(row.tenant_id, row.deployment_id),
                owner=row.owner_tenant_id,
            )
        )  # fmt: skip
    return found


def _reserved(cluster_id: UUID, window: Interval, node_ids: Collection[UUID]) -> list[Kept]:
    rows = Reservation.objects.filter(
        _within(window, "created_at", "released_at"), cluster_id=cluster_id, node_id__in=node_ids
    )
    return [
        Kept(
            node_id, replica_id, epoch_ms(created), epoch_ms(released or window.end), share, uuid, profile, memory,
            cores,
        )
        for node_id, replica_id, created, released, share, uuid, profile, memory, cores in rows.values_list(
            "node_id", "replica_id", "created_at", "released_at", "share", "device_uuid", "profile", "memory_mib",
            "cores",
        )
    ]  # fmt: skip


_HELD = """
SELECT a.node_id, a.device_uuid, a.share, coalesce(a.memory_mib, 0), coalesce(a.cores, 0),
    CASE WHEN a.sharing = 'mig' THEN a.profile ELSE '' END, a.started_at,
    a.ended_at, a.tenant_id, p.replica_id
FROM billing_deviceallocation a
LEFT JOIN infra_podobservation p ON p.cluster_id = a.cluster_id AND p.uid = a.pod_uid
WHERE a.cluster_id = %(cluster)s AND a.node_id = ANY(%(nodes)s) AND a.started_at < %(end)s
    AND (a.ended_at IS NULL OR (a.ended_at > %(start)s AND a.ended_at > a.started_at))
"""


def _held(cluster_id: UUID, window: Interval, node_ids: Collection[UUID], zones: Mapping[UUID, str]) -> list[Held]:
    if not node_ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            _HELD, {"cluster": cluster_id, "nodes": list(node_ids), "start": window.start, "end": window.end}
        )
        rows = cursor.fetchall()
    end = epoch_ms(window.end)
    return [
        Held(
            node_id, uuid, share, memory, cores, profile, epoch_ms(started), epoch_ms(ended) if ended else end,
            zones.get(tenant_id, ""), replica_id,
        )
        for node_id, uuid, share, memory, cores, profile, started, ended, tenant_id, replica_id in rows
    ]  # fmt: skip


def spelled(profile: str) -> str:
    """A MIG profile in the one spelling that profiles are compared in."""
    return str(parse_mig(profile)) if profile else ""
