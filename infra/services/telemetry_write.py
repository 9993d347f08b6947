"""Writing what metrics told: hours, sightings, cards, gaps. All within the caller's transaction."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Q

from infra.dcgm import CardFacts, HeldCard
from infra.models import Cluster, Device, DeviceSighting, Node, PodObservation, TelemetryGap
from infra.models.evidence import EvidenceSource
from infra.services.changes import lock_changes
from infra.telemetry import HourRow
from portal.kernel.clock import from_epoch_ms
from portal.kernel.ids import uuid7

BINDS_AFTER = timedelta(seconds=30)
"""A sighting is worth binding a card by when it lasted so long: labels of a pod that is gone stay on for a while."""
_SAME_UNKNOWN = timedelta(minutes=10)
_NAMELESS_FOR = timedelta(days=1)

_HOURS = """
INSERT INTO infra_telemetryhour AS t (id, cluster_id, hour, node, uuid, mig_instance, mig_profile, scope, namespace,
    pod, container, busy_ms, observed_ms, memory_mib_ms, memory_observed_ms, memory_max_mib, energy_mj, source)
SELECT id, %s, hour, node, uuid, mig_instance, mig_profile, scope, namespace, pod, container, busy_ms, observed_ms,
    memory_mib_ms, memory_observed_ms, memory_max_mib, energy_mj, %s
FROM json_to_recordset(%s::json) AS r (id uuid, hour timestamptz, node text, uuid text, mig_instance text,
    mig_profile text, scope text, namespace text, pod text, container text, busy_ms bigint, observed_ms bigint,
    memory_mib_ms numeric, memory_observed_ms bigint, memory_max_mib bigint, energy_mj bigint)
ON CONFLICT (cluster_id, hour, uuid, mig_instance, scope, namespace, pod, container) DO UPDATE SET
    node = CASE WHEN excluded.node = '' THEN t.node ELSE excluded.node END,
    busy_ms = coalesce(t.busy_ms + excluded.busy_ms, t.busy_ms, excluded.busy_ms),
    observed_ms = coalesce(t.observed_ms + excluded.observed_ms, t.observed_ms, excluded.observed_ms),
    memory_mib_ms = coalesce(t.memory_mib_ms + excluded.memory_mib_ms, t.memory_mib_ms, excluded.memory_mib_ms),
    memory_observed_ms = coalesce(t.memory_observed_ms + excluded.memory_observed_ms, t.memory_observed_ms,
        excluded.memory_observed_ms),
    memory_max_mib = greatest(t.memory_max_mib, excluded.memory_max_mib),
    energy_mj = coalesce(t.energy_mj + excluded.energy_mj, t.energy_mj, excluded.energy_mj)
"""

_SIGHTINGS = """
INSERT INTO infra_devicesighting AS t (id, cluster_id, namespace, pod, pod_uid, container, node, uuid, mig_instance,
    mig_profile, shared, first_seen, last_seen, source, changed_seq)
SELECT id, %s, namespace, pod, pod_uid, container, node, uuid, mig_instance, mig_profile, shared, first_seen, last_seen,
    source, changed_seq
FROM json_to_recordset(%s::json) AS r (id uuid, namespace text, pod text, pod_uid text, container text, node text,
    uuid text, mig_instance text, mig_profile text, shared boolean, first_seen timestamptz, last_seen timestamptz,
    source text, changed_seq bigint)
ON CONFLICT (cluster_id, pod_uid, container, uuid, mig_instance) WHERE pod_uid <> '' DO UPDATE SET
    first_seen = least(t.first_seen, excluded.first_seen), last_seen = greatest(t.last_seen, excluded.last_seen),
    shared = t.shared OR excluded.shared, node = CASE WHEN excluded.node = '' THEN t.node ELSE excluded.node END,
    changed_seq = greatest(t.changed_seq, excluded.changed_seq)
"""


def hours_add(cluster: Cluster, rows: Iterable[HourRow], source: str = EvidenceSource.WATCH) -> None:
    """Add what a window told to the hours. A window must be added once: move its mark in the same transaction."""
    data = []
    for row in sorted(rows, key=lambda one: (one.hour_ms, one.subject)):
        figures = row.figures
        data.append(
            {
                "id": str(uuid7()), "hour": from_epoch_ms(row.hour_ms).isoformat(), "node": row.node,
                "mig_profile": row.mig_profile, **row.subject._asdict(),
                "busy_ms": row.busy_ms, "observed_ms": figures.observed_ms,
                "memory_mib_ms": None if figures.memory is None else int(figures.memory),
                "memory_observed_ms": figures.memory_observed_ms,
                "memory_max_mib": None if figures.memory_max is None else int(figures.memory_max),
                "energy_mj": figures.energy_mj,
            }
        )  # fmt: skip
    if data:
        with connection.cursor() as cursor:
            cursor.execute(_HOURS, [cluster.pk, str(source), json.dumps(data)])


# --- sightings -------------------------------------------------------------------------------------------------------


class PodLife(NamedTuple):
    """A pod, as far as its name and life are needed. ``until`` ``None``: it lives."""

    uid: str
    node: str
    since: datetime
    until: datetime | None


def pod_lives(cluster: Cluster, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], list[PodLife]]:
    """Everything that is known under these (namespace, name)."""
    found: dict[tuple[str, str], list[PodLife]] = defaultdict(list)
    if not names:
        return found
    # What was rebuilt of the time before speaks of the same pods once more.
    watched = PodObservation.objects.exclude(source=EvidenceSource.RETROACTIVE)
    rows = watched.filter(
        cluster=cluster,
        namespace__in={namespace for namespace, _ in names},
        name__in={name for _, name in names},
    ).values_list("namespace", "name", "uid", "node_name", "scheduled_at", "first_seen_at", "ended_at", "gone_at")
    for namespace, name, uid, node, scheduled_at, first_seen_at, ended_at, gone_at in rows:
        found[namespace, name].append(PodLife(uid, node, scheduled_at or first_seen_at, ended_at or gone_at))
    return found


def uid_of(lives: Iterable[PodLife], first: datetime, last: datetime, node: str, slack: timedelta) -> str:
    """The pod that lived in ``[first, last]``; empty where none or several did. Labels stay on for about ``slack``."""
    fit = [
        life.uid
        for life in lives
        if life.since <= last
        and (life.until is None or life.until + slack >= first)
        and (not node or not life.node or life.node == node)
    ]
    return fit[0] if len(fit) == 1 else ""


def sightings_merge(
    cluster: Cluster,
    held: Iterable[HeldCard],
    *,
    slack: timedelta,
    now: datetime,
    source: str = EvidenceSource.WATCH,
) -> int:
    """Merge what was seen of who held which card; how many sightings metering has to look at.

    Sightings whose pod was not known before are looked at again.
    """
    held = list(held)
    nameless = list(
        DeviceSighting.objects.filter(cluster=cluster, pod_uid="", last_seen__gte=now - _NAMELESS_FOR).order_by("pk")
    )
    names = {(one.workload.namespace, one.workload.pod) for one in held}
    lives = pod_lives(cluster, names | {(row.namespace, row.pod) for row in nameless})
    wanted: list[dict[str, Any]] = []
    for one in held:
        first, last = from_epoch_ms(one.first_ms), from_epoch_ms(one.last_ms)
        known = lives.get((one.workload.namespace, one.workload.pod), [])
        uid = one.pod_uid or uid_of(known, first, last, one.node, slack)
        row = _sighting(one, uid, first, last, source)
        if uid:
            wanted.append(row)
        else:
            _keep_nameless(cluster, row, nameless)
    named = []
    for old in nameless:
        uid = uid_of(lives.get((old.namespace, old.pod), []), old.first_seen, old.last_seen, old.node, slack)
        if uid:
            named.append(old.pk)
            wanted.append(_plain(old) | {"pod_uid": uid})
    DeviceSighting.objects.filter(pk__in=named).delete()
    return _write_sightings(cluster, wanted)


def _write_sightings(cluster: Cluster, wanted: list[dict[str, Any]]) -> int:
    if not wanted:
        return 0
    known = {
        (row.pod_uid, row.container, row.uuid, row.mig_instance): row
        for row in DeviceSighting.objects.filter(cluster=cluster, pod_uid__in={row["pod_uid"] for row in wanted})
    }
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in wanted:
        key: tuple[Any, ...] = (row["pod_uid"], row["container"], row["uuid"], row["mig_instance"])
        other = merged.setdefault(key, row)
        other["first_seen"] = min(row["first_seen"], other["first_seen"])
        other["last_seen"] = max(row["last_seen"], other["last_seen"])
        other["shared"] = row["shared"] or other["shared"]
    changes = None
    drawn = 0
    for key, row in sorted(merged.items()):
        old = known.get(key)
        lasted = row["last_seen"] - row["first_seen"]
        if old is not None:
            lasted = max(row["last_seen"], old.last_seen) - min(row["first_seen"], old.first_seen)
        fresh = old is None or (old.last_seen - old.first_seen < BINDS_AFTER <= lasted) or row["shared"] > old.shared
        if fresh:
            changes = changes or lock_changes(cluster.pk)
            drawn += 1
        row["changed_seq"] = changes.draw() if fresh and changes else 0
        row["id"] = str(uuid7())
    if changes is not None:
        changes.save()
    with connection.cursor() as cursor:
        cursor.execute(_SIGHTINGS, [cluster.pk, json.dumps([merged[key] for key in sorted(merged)], default=_text)])
    return drawn


def _sighting(one: HeldCard, uid: str, first: datetime, last: datetime, source: str) -> dict[str, Any]:
    instance, profile = one.mig or ("", "")
    return {
        "namespace": one.workload.namespace, "pod": one.workload.pod, "pod_uid": uid,
        "container": one.workload.container, "node": one.node, "uuid": one.uuid, "mig_instance": instance,
        "mig_profile": profile, "shared": one.shared, "first_seen": first, "last_seen": last, "source": str(source),
    }  # fmt: skip


def _plain(row: DeviceSighting) -> dict[str, Any]:
    names = ("namespace", "pod", "container", "node", "uuid", "mig_instance", "mig_profile", "shared", "first_seen",
             "last_seen", "source")  # fmt: skip
    return {name: getattr(row, name) for name in names}


def _keep_nameless(cluster: Cluster, row: dict[str, Any], nameless: list[DeviceSighting]) -> None:
    """Extend the sighting of a pod that is not known yet, or begin one."""
    same = ("namespace", "pod", "container", "uuid", "mig_instance")
    for old in nameless:
        near = old.last_seen + _SAME_UNKNOWN >= row["first_seen"] and row["last_seen"] + _SAME_UNKNOWN >= old.first_seen
        if near and all(getattr(old, name) == row[name] for name in same):
            old.first_seen = min(old.first_seen, row["first_seen"])
            old.last_seen = max(old.last_seen, row["last_seen"])
            old.save(update_fields=["first_seen", "last_seen"])
            return
    DeviceSighting.objects.create(cluster=cluster, **row)


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


# --- cards -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeenCard:
    """A card by its facts, the node that it is on, and its memory (``None``: not told)."""

    facts: CardFacts
    node: str
    memory_mib: int | None


def devices_ensure(cluster: Cluster, cards: Iterable[SeenCard], at: datetime) -> None:
    """Rows for cards that are first known by their metrics; HAMi's register, where there is one, leads."""
    cards = [card for card in cards if card.node]
    nodes = {
        node.name: node
        for node in Node.objects.filter(
            cluster=cluster, gone_at__isnull=True, name__in={card.node for card in cards}
        ).select_related("pool__gpu_type")
    }
    known = {
        device.uuid: device
        for device in Device.objects.filter(cluster=cluster, uuid__in={card.facts.uuid for card in cards})
    }
    fresh: dict[str, Device] = {}
    for card in sorted(cards, key=lambda one: one.facts.uuid):
        node, device = nodes.get(card.node), known.get(card.facts.uuid)
        if node is None or (device is not None and device.register_slots is not None):
            continue
        gpu_type = node.pool.gpu_type if node.pool else None
        memory = gpu_type.memory_mib if gpu_type else card.memory_mib
        if device is None:
            if memory:
                fresh[card.facts.uuid] = Device(
                    cluster=cluster, node=node, uuid=card.facts.uuid, index=card.facts.index, memory_mib=memory,
                    first_seen_at=at,
                )  # fmt: skip
        elif device.node_id != node.pk or device.gone_at is not None or device.index != card.facts.index:
            device.node, device.gone_at, device.index = node, None, card.facts.index
            device.save(update_fields=["node", "gone_at", "index"])
    Device.objects.bulk_create(fresh.values(), batch_size=1000)


# --- gaps ------------------------------------------------------------------------------------------------------------


def gaps_extend(
    cluster: Cluster, gaps: Mapping[tuple[str, str], Iterable[tuple[datetime, datetime]]], slack: timedelta
) -> None:
    """Add gaps by (kind, node); one that goes on where another ended becomes one with it."""
    for (kind, node), found in sorted(gaps.items()):
        for start, end in found:
            old = (
                TelemetryGap.objects.filter(
                    Q(ended_at__gte=start - slack) & Q(started_at__lte=end), cluster=cluster, kind=kind, node=node
                )
                .order_by("-ended_at")
                .first()
            )
            if old is None:
                TelemetryGap.objects.create(cluster=cluster, kind=kind, node=node, started_at=start, ended_at=end)
            elif end > old.ended_at:
                old.ended_at = end
                old.save(update_fields=["ended_at"])


def node_of_cards(cluster_id: UUID, uuids: Collection[str]) -> dict[str, str]:
    """UUID → name of the node on which the card was last known."""
    rows = Device.objects.filter(cluster_id=cluster_id, uuid__in=list(uuids), gone_at__isnull=True)
    return dict(rows.values_list("uuid", "node__name"))
