"""What nodes had in service before the watch began, as capacity spans of source ``retroactive``. In the caller's
transaction.

Spans only fill time of a node that no span covers yet: what was watched, or rebuilt before, stays as it is. History
knows nodes by their names: a node that the watch knows, too, is that row; another gets a row of its own that is gone.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from infra.models import CapacitySpan, Cluster, Device, Node
from infra.models.evidence import EvidenceSource
from infra.node_reading import NodeFacts
from infra.retroactive.nodes import NodeHistory, NodeState, Piece, facts_of
from infra.services.capacity import InService, state_of
from infra.services.changes import Changes
from infra.services.gpu_types import gpu_type_discover
from infra.services.past_pods import PREFIX
from infra.shares import overcommit_percent
from portal.kernel.clock import Interval, from_epoch_ms, subtract

_FIRST_LIST = timedelta(minutes=10)
"""Nodes are listed about when pods are: the time between the two first lists is bridged."""


@dataclass(slots=True)
class Stored:
    """What was written; ``notes`` are sentences on what could not be read."""

    spans: int = 0
    notes: list[str] = field(default_factory=list)


def past_node_uid(name: str) -> str:
    """The uid of a node's row that only history knows."""
    return PREFIX + (name if len(name) <= 58 else hashlib.sha256(name.encode()).hexdigest()[:40])


def watched_nodes(cluster: Cluster) -> frozenset[str]:
    """Names of the nodes that the watch found when it began, or that came later."""
    rows = Node.objects.filter(cluster=cluster).exclude(uid__startswith=PREFIX)
    return frozenset(rows.values_list("name", flat=True))


def store_past_nodes(cluster: Cluster, history: NodeHistory, changes: Changes, *, until: datetime) -> Stored:
    """Fill the nodes' time in service with the pieces of a window.

    Args:
        until: the watch's begin.
    """
    stored = Stored()
    nodes = _nodes(cluster, {piece.node for piece in history.pieces})
    spans: dict[UUID, list[CapacitySpan]] = defaultdict(list)
    known = CapacitySpan.objects.filter(node__in=[row.pk for row in nodes.values()]).select_related("gpu_type")
    for span in known.order_by("started_at"):
        spans[span.node_id].append(span)
    states: dict[tuple[str, NodeState], tuple[InService, NodeFacts] | None] = {}
    fresh: list[CapacitySpan] = []
    for piece in history.pieces:
        key = (piece.node, piece.state)
        if key not in states:
            row = nodes.get(piece.node)
            try:
                states[key] = _in_service(piece, history, row, spans[row.pk] if row else [])
            except ValueError as error:
                states[key] = None
                stored.notes.append(str(error))
        found = states[key]
        if found is None or not found[0].cards:
            continue
        state, facts = found
        node = nodes.get(piece.node) or _past_node(cluster, piece, facts)
        nodes[piece.node] = node
        _reach(node, piece)
        fresh += _filling(cluster, node, piece, state, spans[node.pk], until, changes)
        _cards(cluster, node, history, facts, piece)
    CapacitySpan.objects.bulk_create(fresh, batch_size=500)
    stored.spans = len(fresh)
    return stored


def _nodes(cluster: Cluster, names: Iterable[str]) -> dict[str, Node]:
    """By name: the first that the watch saw, else the one that only history knows. Locked by id, as everybody does."""
    rows = Node.objects.filter(cluster=cluster, name__in=list(names))
    locked = list(rows.order_by("pk").select_for_update(of=("self",), no_key=True).select_related("pool"))
    locked.sort(key=lambda row: (row.uid.startswith(PREFIX), row.first_seen_at), reverse=True)
    return {row.name: row for row in locked}


def _in_service(
    piece: Piece, history: NodeHistory, node: Node | None, spans: list[CapacitySpan]
) -> tuple[InService, NodeFacts]:
    """The state that a piece stands for."""
    facts = facts_of(piece.node, past_node_uid(piece.node), piece.state, history)
    gpu_type = gpu_type_discover(facts) if facts.has_cards else None
    listed = tuple(dict(history.hami_cards.get(piece.node, ())).items())
    state = InService(
        gpu_type.pk if gpu_type else None,
        facts.sharing,
        None,
        facts.cards,
        facts.unavailable,
        facts.reason[:200],
        facts.ready is None,
        overcommit_percent=max((overcommit_percent(mib, facts.memory_mib or mib) for _, mib in listed), default=100),
        mig_profile=facts.mig_profile,
        timeslice_replicas=facts.timeslice_replicas,
        mig_layout=facts.mig_layout,
    )
    watched = next((span for span in spans if span.source != EvidenceSource.RETROACTIVE), None)
    if watched is None or node is None or _tells_sharing(facts, piece.state, history):
        return state, facts
    # Resources alone say how many devices there are, not what they are: a node that had the same ones when it was
    # watched handed out its cards in the same way.
    same = {key: node.capacity.get(key) for key, _ in piece.state.capacity} == dict(piece.state.capacity)
    if not same:
        return replace(state, gpu_type_id=state.gpu_type_id or watched.gpu_type_id), facts
    seen = state_of(watched)
    free = facts.cards == facts.unavailable or not facts.cards
    unavailable = seen.cards if free else min(seen.cards, facts.unavailable if facts.cards == seen.cards else 0)
    return (
        replace(
            seen, zone_id=None, unavailable_cards=unavailable, reason=facts.reason[:200] if unavailable else "",
            lost=facts.ready is None, devices=(),
        ),
        facts,
    )  # fmt: skip


def _tells_sharing(facts: NodeFacts, state: NodeState, history: NodeHistory) -> bool:
    """Whether history itself says how the node's cards were handed out.

    GPU feature discovery counts cards; more of them to hand out than there are (HAMi, time slices) leaves it open how.
    """
    if history.hami_cards.get(facts.name):
        return True
    count = facts.labels.get("nvidia.com/gpu.count")
    return count is not None and dict(state.capacity).get("nvidia.com/gpu", "0") in ("0", count)


def _past_node(cluster: Cluster, piece: Piece, facts: NodeFacts) -> Node:
    return Node.objects.create(
        cluster=cluster,
        name=piece.node,
        uid=past_node_uid(piece.node),
        ready=None,
        labels=facts.stored_labels(),
        allocatable=dict(piece.state.allocatable),
        capacity=dict(piece.state.capacity),
        cards=facts.cards,
        mig_profile=facts.mig_profile,
        first_seen_at=from_epoch_ms(piece.start),
        gone_at=from_epoch_ms(piece.end),
    )


def _reach(node: Node, piece: Piece) -> None:
    """From when to when a node that only history knows was there."""
    if not node.uid.startswith(PREFIX) or node.gone_at is None:
        return
    first = min(node.first_seen_at, from_epoch_ms(piece.start))
    gone = max(node.gone_at, from_epoch_ms(piece.end))
    if (first, gone) != (node.first_seen_at, node.gone_at):
        node.first_seen_at, node.gone_at = first, gone
        node.save(update_fields=["first_seen_at", "gone_at"])


def _filling(
    cluster: Cluster,
    node: Node,
    piece: Piece,
    state: InService,
    spans: list[CapacitySpan],
    until: datetime,
    changes: Changes,
) -> list[CapacitySpan]:
    end = from_epoch_ms(piece.end)
    watched = next((span.started_at for span in spans if span.source != EvidenceSource.RETROACTIVE), None)
    if end >= until and watched is not None and until <= watched <= until + _FIRST_LIST:
        end = watched
    taken = [Interval(span.started_at, max(span.started_at, span.ended_at or end)) for span in spans]
    new = [
        CapacitySpan(
            cluster=cluster,
            node=node,
            started_at=part.start,
            ended_at=part.end,
            source=EvidenceSource.RETROACTIVE,
            changed_seq=changes.draw(),
            **state.fields(),
        )
        for part in subtract(Interval(from_epoch_ms(piece.start), max(from_epoch_ms(piece.start), end)), taken)
    ]
    spans += new
    spans.sort(key=lambda span: span.started_at)
    return new


def _cards(cluster: Cluster, node: Node, history: NodeHistory, facts: NodeFacts, piece: Piece) -> None:
    """The cards that HAMi's scheduler listed, so that its grants can be believed."""
    cards: Mapping[str, int] = dict(history.hami_cards.get(piece.node, ()))
    known = set(Device.objects.filter(cluster=cluster, uuid__in=list(cards)).values_list("uuid", flat=True))
    Device.objects.bulk_create(
        [
            Device(
                cluster=cluster,
                node=node,
                uuid=uuid,
                index=number,
                memory_mib=facts.memory_mib or mib,
                register_memory_mib=mib,
                first_seen_at=from_epoch_ms(piece.start),
                gone_at=from_epoch_ms(piece.end),
            )
            for number, (uuid, mib) in enumerate(sorted(cards.items()))
            if uuid not in known
        ]
    )
