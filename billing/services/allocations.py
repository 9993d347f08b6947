"""DeviceAllocations from evidence: which pods changed, what they hold, when and for whom, and what that changes."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Max, Min, Q

from billing.metering.holdings import Holding, UnknownHardwareError, holdings
from billing.metering.intervals import Claim, Lifetime, Phase, Rules, Segment, Surroundings, lifetime, lost_intervals
from billing.models import DeviceAllocation, MeterProgress
from billing.services.bindings import NO_CARD, Bindings, Card, bindings_of
from billing.services.hardware import Hardware, NodeHardware, hardware_of
from infra.evidence import PodEvidence
from infra.models import (
    CapacitySpan,
    Cluster,
    DeviceSighting,
    NamespaceClaim,
    PodObservation,
    WatchSpan,
    WatchTarget,
)
from infra.models.evidence import EvidenceSource
from infra.pod_reading import load_evidence
from infra.selectors.history import Rebuilt, rebuilt
from infra.shares import OVERCOMMIT
from portal.kernel.clock import epoch_ms, format_rfc3339, from_epoch_ms
from portal.kernel.ids import uuid7
from tenants.models import ModelDeployment, Tenant

logger = logging.getLogger(__name__)

FAR = datetime(9000, 1, 1, tzinfo=UTC)
"""Stands for "until further notice" while segments are made; stored as an empty ``ended_at``."""

Key = tuple[UUID | None, str, str, int, str, int]
"""Tenant, pod uid, resource, ordinal, bucket, segment: a row's key within its cluster."""

_SAME = (
    "namespace", "pod_name", "node_id", "deployment_id", "cost_code", "gpu_type_id", "sharing", "profile",
    "device_uuid", "mig_instance", "memory_mib", "card_memory_mib", "cores", "slices", "card_slices", "share",
    "cpu_millicores", "host_memory_mib", "source",
)  # fmt: skip
"""Facts whose change re-writes the whole stretch, not only its ends."""

_LOOSE = (
    "bound_at", "running_at", "started_at", "ended_at", "inferred", "uncapped", "first_day", "evidence_seq",
    "proved_by_api", "start_error_ms", "end_error_ms",
)  # fmt: skip

_TYPES = {
    "node_id": "uuid", "deployment_id": "uuid", "gpu_type_id": "uuid", "memory_mib": "bigint",
    "card_memory_mib": "bigint", "cores": "int", "slices": "int", "card_slices": "int", "share": "bigint",
    "cpu_millicores": "bigint", "host_memory_mib": "bigint", "bound_at": "timestamptz",
    "running_at": "timestamptz", "started_at": "timestamptz", "ended_at": "timestamptz", "inferred": "boolean",
    "uncapped": "boolean", "first_day": "boolean", "evidence_seq": "bigint", "proved_by_api": "boolean",
    "start_error_ms": "bigint",
    "end_error_ms": "bigint",
}  # fmt: skip
_KEY = ("tenant_id", "pod_uid", "resource", "ordinal", "bucket", "segment")
_REST = (*_SAME, *_LOOSE)

_UPSERT = f"""
INSERT INTO billing_deviceallocation (id, cluster_id, {", ".join(_KEY)}, {", ".join(_REST)})
SELECT id, %s, {", ".join(_KEY)}, {", ".join(_REST)} FROM json_to_recordset(%s::json) AS r (
    id uuid, tenant_id uuid, pod_uid text, resource text, ordinal int, bucket text, segment int,
    {", ".join(f"{name} {_TYPES.get(name, 'text')}" for name in _REST)})
ON CONFLICT (tenant_id, cluster_id, pod_uid, resource, ordinal, bucket, segment) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in _REST)}
"""  # noqa: S608  # constants only


@dataclass(frozen=True, slots=True)
class Change:
    """An allocation that is not what it was between two instants (``end`` None: from then on)."""

    allocation_id: UUID
    node_id: UUID | None
    start: datetime
    end: datetime | None


@dataclass(slots=True)
class Context:
    """What dates a pod's holding, read once for all pods of a run."""

    hardware: Hardware
    rules: Rules
    since: datetime | None
    past: Rebuilt | None
    claims: dict[str, tuple[Claim, ...]]
    lost: dict[UUID, list[tuple[datetime, datetime | None]]]
    deployments: dict[UUID, tuple[UUID, str]]
    tenant_codes: dict[UUID, str]
    bindings: Bindings
    unmetered: dict[str, dict[str, str]] = field(default_factory=dict)


def allocations_update(
    cluster: Cluster, progress: MeterProgress, *, everything_since: datetime | None = None
) -> list[Change]:
    """Work evidence that is newer than ``progress.through_seq`` into allocations. Needs a system scope.

    The caller stores ``progress`` (its ``unmetered`` is replaced here) and draws the usage of final hours again for
    the changes that come back, in the same transaction.

    Args:
        everything_since: look at every pod that held something after this instant, whether it changed or not.
    """
    observations = _dirty(cluster, progress, everything_since)
    if not observations:
        return []
    context = _context(cluster, observations)
    wanted = {key: row for observation in observations for key, row in _rows(observation, context)}
    looked_at = {observation.uid for observation in observations}
    # What can't be computed now keeps its last good state.
    known = {
        (row.tenant_id, row.pod_uid, row.resource, row.ordinal, row.bucket, row.segment): row
        for row in DeviceAllocation.objects.filter(
            cluster=cluster, pod_uid__in=sorted(looked_at - context.unmetered.keys())
        )
    }
    progress.unmetered = {
        uid: entry for uid, entry in progress.unmetered.items() if uid not in looked_at
    } | context.unmetered
    return _write(cluster, wanted, known)


# --- which pods ------------------------------------------------------------------------------------------------------


def _dirty(cluster: Cluster, progress: MeterProgress, since: datetime | None) -> list[PodObservation]:
    """Pods whose evidence, namespace or node has changed; and those that could not be metered so far."""
    seq = progress.through_seq
    namespaces = NamespaceClaim.objects.filter(cluster=cluster, changed_seq__gt=seq).values("namespace")
    sighted = DeviceSighting.objects.filter(cluster=cluster, changed_seq__gt=seq).exclude(pod_uid="").values("pod_uid")
    which = Q(changed_seq__gt=seq) | Q(namespace__in=namespaces) | Q(uid__in=list(progress.unmetered))
    which |= Q(uid__in=sighted)
    # A node that was lost, came back, came anew under its name, or became of another kind.
    nodes = (
        CapacitySpan.objects.filter(Q(lost=True) | Q(ended_at__isnull=True), cluster=cluster, changed_seq__gt=seq)
        .values("node__name")
        .annotate(first=Min("started_at"))
    )
    for name, first in nodes.values_list("node__name", "first"):
        which |= Q(node_name=name) & (Q(ended_at__isnull=True) | Q(ended_at__gt=first))
    if since is not None:
        which |= Q(gone_at__isnull=True) | Q(gone_at__gt=since)
    return list(PodObservation.objects.filter(which, cluster=cluster).order_by("uid"))


def _context(cluster: Cluster, observations: Sequence[PodObservation]) -> Context:
    claims: dict[str, list[Claim]] = defaultdict(list)
    for claim in NamespaceClaim.objects.filter(cluster=cluster).order_by("valid_from"):
        claims[claim.namespace].append(Claim(str(claim.tenant_id), claim.valid_from, claim.valid_to, claim.cost_code))
    since = WatchSpan.objects.filter(target__cluster=cluster, target__resource=WatchTarget.Resource.PODS).aggregate(
        first=Min("started_at")
    )["first"]
    deployment_ids = {o.deployment_id for o in observations if o.deployment_id}
    return Context(
        hardware=hardware_of(cluster, {o.node_name for o in observations if o.node_name}),
        rules=Rules(
            starting_limit=timedelta(minutes=settings.AIF_STARTING_MINUTES),
            system_namespaces=frozenset(cluster.system_namespaces),
        ),
        since=since,
        past=rebuilt(cluster.pk),
        claims={namespace: tuple(found) for namespace, found in claims.items()},
        lost=_lost(cluster),
        deployments={
            pk: (tenant_id, code)
            for pk, tenant_id, code in ModelDeployment.objects.filter(pk__in=deployment_ids).values_list(
                "pk", "tenant_id", "cost_code"
            )
        },
        tenant_codes=dict(Tenant.objects.values_list("pk", "cost_code")),
        bindings=bindings_of(cluster, [o.uid for o in observations]),
    )


def _lost(cluster: Cluster) -> dict[UUID, list[tuple[datetime, datetime | None]]]:
    """When each node was lost. One that was removed while it was lost never came back (None)."""
    found: dict[UUID, list[tuple[datetime, datetime | None]]] = defaultdict(list)
    rows = CapacitySpan.objects.filter(cluster=cluster, lost=True)
    last = dict(
        CapacitySpan.objects.filter(cluster=cluster, node__in=rows.values("node"))
        .values_list("node")
        .annotate(last=Max("started_at"))
    )
    for node_id, start, end, gone_at in rows.values_list("node_id", "started_at", "ended_at", "node__gone_at"):
        removed = gone_at is not None and start == last[node_id]
        found[node_id].append((start, None if removed else end))
    return found


# --- what a pod holds ------------------------------------------------------------------------------------------------


def _rows(observation: PodObservation, context: Context) -> Iterable[tuple[Key, dict[str, Any]]]:
    """The pod's rows by key; none for a pod that never was bound, or whose share can't be computed."""
    past = observation.source == EvidenceSource.RETROACTIVE
    if past and context.past is None:
        return
    pod: PodEvidence | None = None
    try:
        pod = load_evidence(observation.evidence)
        if not pod.node:
            return
        node = context.hardware.at(pod.node, pod.scheduled_at or pod.first_seen_at)
        held = holdings(pod, node.cards if node else None)
    except (UnknownHardwareError, ValueError) as error:
        if pod is not None and _never_ran(pod, context.rules):
            return
        context.unmetered[observation.uid] = {
            "namespace": observation.namespace, "name": observation.name, "reason": str(error),
            "since": format_rfc3339(observation.scheduled_at or observation.first_seen_at),
            "source": observation.source,
        }  # fmt: skip
        return
    if held and held[0].doubt:
        logger.warning(
            "Pod %s/%s is charged by its requests; HAMi's record of its cards is not believed: %s",
            pod.namespace, pod.name, held[0].doubt,
        )  # fmt: skip
    life = lifetime(
        pod,
        Surroundings(
            # What was rebuilt from history ends where the watch's own proof begins.
            until=context.past.end if past and context.past else FAR,
            since=context.past.start if past and context.past else context.since,
            lost=lost_intervals(context.lost.get(node.node_id, ()) if node else (), FAR),
            claims=context.claims.get(pod.namespace, ()),
        ),
        context.rules,
    )
    cards = context.bindings.of(pod.uid, held)
    numbers: dict[tuple[str, str], int] = defaultdict(int)
    for segment in life.segments:
        if segment.phase is Phase.LOST:
            continue
        number = numbers[segment.tenant, segment.bucket]
        numbers[segment.tenant, segment.bucket] += 1
        stretch = _stretch(observation, segment, life, context) | _error(observation, segment, life)
        tenant_id = UUID(segment.tenant) if segment.tenant else None
        for holding in held:
            key = (tenant_id, pod.uid, holding.resource, holding.ordinal, segment.bucket.value, number)
            card = cards.get((holding.resource, holding.ordinal), Card(holding.device_uuid))
            yield key, {**stretch, **_device(holding, node, card)}


def _never_ran(pod: PodEvidence, rules: Rules) -> bool:
    """Whether it is over, no container of it ever started, and the platform carries all its time anyhow.

    So are pods that name a node themselves and ask for what it has not: the kubelet refuses them. What cards they asked
    for need not be known, and nobody's bills wait for it.
    """
    end = pod.end
    if end is None or pod.started_at is not None:
        return False
    return end.at - (pod.scheduled_at or pod.first_seen_at) <= rules.starting_limit


def _stretch(observation: PodObservation, segment: Segment, life: Lifetime, context: Context) -> dict[str, Any]:
    """When, and on whose account.

    The cost code is the deployment's, else that of the pod's label, else the claim's, else the tenant's.
    """
    assert life.bound_at is not None  # it has segments
    tenant_id = UUID(segment.tenant) if segment.tenant else None
    codes = [
        observation.label_cost_code[:60],
        segment.cost_code,
        context.tenant_codes.get(tenant_id, "") if tenant_id else "",
    ]  # fmt: skip
    deployment_id = None
    if observation.deployment_id is not None and tenant_id is not None:
        owner, code = context.deployments.get(observation.deployment_id, (None, ""))
        if owner == tenant_id:
            deployment_id, codes = observation.deployment_id, [code, *codes]
    return {
        "deployment_id": deployment_id,
        "cost_code": next((code for code in codes if code), ""),
        "namespace": observation.namespace,
        "pod_name": observation.name,
        "bound_at": whole_ms(life.bound_at),
        "running_at": whole_ms(life.running_at) if life.running_at else None,
        "started_at": whole_ms(segment.interval.start),
        "ended_at": None if segment.interval.end == FAR else whole_ms(segment.interval.end),
        "inferred": life.inferred,
        "first_day": life.first_day,
        "source": observation.source,
        "evidence_seq": observation.changed_seq,
    }


def _error(observation: PodObservation, segment: Segment, life: Lifetime) -> dict[str, Any]:
    """Of rebuilt time, by how much its edges may be wrong: the pod's own edges, not those where history was cut."""
    past = observation.past or {}
    certain = [one for one in life.segments if one.phase.is_certain]
    first = segment == life.segments[0] and not life.first_day
    last = bool(certain) and segment == certain[-1] and not life.open
    return {
        "proved_by_api": bool(past.get("api")),
        "start_error_ms": past.get("start_error_ms", 0) if first else 0,
        "end_error_ms": past.get("end_error_ms", 0) if last else 0,
    }


def _device(holding: Holding, node: NodeHardware | None, card: Card = NO_CARD) -> dict[str, Any]:
    hami = holding.memory_mib is not None
    return {
        "node_id": node.node_id if node else None,
        "gpu_type_id": node.gpu_type_id if node else None,
        "sharing": holding.mode.value,
        "profile": OVERCOMMIT if hami and node is not None and node.overcommitted else holding.profile,
        "device_uuid": card.uuid,
        "mig_instance": card.mig_instance,
        "memory_mib": holding.memory_mib,
        "card_memory_mib": node.cards.card_memory_mib(holding.device_uuid) if node and hami else None,
        "cores": holding.cores,
        "slices": holding.slices,
        "card_slices": node.cards.compute_slices if node and holding.slices is not None else None,
        "share": holding.share_millionths,
        "uncapped": holding.compute_uncapped,
        "cpu_millicores": holding.cpu_millicores,
        "host_memory_mib": holding.host_memory_mib,
    }


def whole_ms(instant: datetime) -> datetime:
    """The instant floored to its millisecond: what is stored adds up wherever it is cut."""
    return from_epoch_ms(epoch_ms(instant))


# --- what that changes -----------------------------------------------------------------------------------------------


def _write(
    cluster: Cluster, wanted: Mapping[Key, dict[str, Any]], known: Mapping[Key, DeviceAllocation]
) -> list[Change]:
    changes: list[Change] = []
    rows: list[dict[str, Any]] = []
    for key, row in wanted.items():
        old = known.get(key)
        pk = old.pk if old else uuid7()
        different = _difference(pk, old, row)
        if different is not None:
            changes.append(different)
            if old is not None and old.node_id != row["node_id"]:  # what it held there is held no longer
                changes.append(replace(different, node_id=old.node_id))
        if old is None or any(getattr(old, name) != row[name] for name in _REST):
            rows.append({"id": pk, **dict(zip(_KEY, key, strict=True)), **row})
    void = [row for key, row in known.items() if key not in wanted and row.ended_at != row.started_at]
    changes += [Change(row.pk, row.node_id, row.started_at, row.ended_at) for row in void]
    with connection.cursor() as cursor:
        if rows:
            cursor.execute(_UPSERT, [cluster.pk, json.dumps(rows, default=_plain)])
        if void:
            cursor.execute(
                "UPDATE billing_deviceallocation SET ended_at = started_at WHERE id = ANY(%s)",
                [[row.pk for row in void]],
            )
    return changes


def _difference(pk: UUID, old: DeviceAllocation | None, row: Mapping[str, Any]) -> Change | None:
    """From when until when the stretch is not what it was; None where it is."""
    start, end = row["started_at"], row["ended_at"]
    if old is None:
        return Change(pk, row["node_id"], start, end) if start != end else None
    ends = (old.ended_at or FAR, end or FAR)
    moved = old.started_at != start and ends[0] != ends[1]
    if moved or any(getattr(old, name) != row[name] for name in _SAME):
        first, last = min(old.started_at, start), max(ends)
    elif old.started_at != start:
        first, last = min(old.started_at, start), max(old.started_at, start)
    elif ends[0] != ends[1]:
        first, last = min(ends), max(ends)
    else:
        return None
    return Change(pk, row["node_id"], first, None if last == FAR else last)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
