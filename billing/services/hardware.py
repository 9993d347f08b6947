"""The cards of a cluster's nodes as they were at an instant, in the form that metering computes shares from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from billing.metering.holdings import CardFacts, Mode, NodeCards
from infra.models import CapacitySpan, Cluster, Device, GPUType, Node
from infra.shares import physical_mib


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """A node, its GPU type, and its cards. ``overcommitted``: more of their memory was handed out than they have."""

    node_id: UUID
    gpu_type_id: UUID | None
    cards: NodeCards
    overcommitted: bool = False


@dataclass(slots=True)
class Hardware:
    """A cluster's nodes by name; a node made again under its name is another row.

    Cards go by the name: those of a node that is made again are told by the new row, and were the old one's.
    """

    nodes: dict[str, list[Node]]
    spans: dict[UUID, list[CapacitySpan]]
    devices: dict[str, list[Device]]
    seen: dict[tuple[UUID, UUID | None], NodeHardware]

    def at(self, name: str, instant: datetime) -> NodeHardware | None:
        """The node of that name at an instant; None where no such node was ever seen.

        A pod may be bound before we see its node: after one was out of service, the next of its name is meant.
        """
        rows = self.nodes.get(name)
        if not rows:
            return None
        before = [row for row in rows if row.first_seen_at <= instant]
        after = [row for row in rows if row.first_seen_at > instant]
        served = bool(before) and self._serves(before[-1], instant)
        node = before[-1] if before and (served or not after) else after[0]
        spans = self.spans.get(node.pk, [])
        span = next((row for row in reversed(spans) if row.started_at <= instant), spans[0] if spans else None)
        key = (node.pk, span.pk if span else None)
        if key not in self.seen:
            self.seen[key] = self._build(node, span)
        return self.seen[key]

    def _serves(self, node: Node, instant: datetime) -> bool:
        """Whether it had not gone out of service before the instant."""
        spans = self.spans.get(node.pk, [])
        end = spans[-1].ended_at if spans and node.gone_at is not None else node.gone_at
        return end is None or instant < end

    def _build(self, node: Node, span: CapacitySpan | None) -> NodeHardware:
        gpu_type = (span.gpu_type if span else None) or (node.pool.gpu_type if node.pool else None)
        sharing = span.sharing if span else node.pool.sharing if node.pool else Mode.WHOLE
        return NodeHardware(
            node.pk,
            gpu_type.pk if gpu_type else None,
            NodeCards(
                node=node.name,
                gpu_type=gpu_type.slug if gpu_type else "",
                mode=Mode(sharing),
                memory_mib=gpu_type.memory_mib if gpu_type else None,
                cards=tuple(CardFacts(d.uuid, _physical(d, gpu_type)) for d in self.devices.get(node.name, [])),
                compute_slices=gpu_type.compute_slices if gpu_type else 7,
                single_profile=span.mig_profile if span else node.mig_profile,
                replicas=span.timeslice_replicas if span else 1,
            ),
            overcommitted=span is not None and span.overcommit_percent > 100,
        )


def _physical(card: Device, gpu_type: GPUType | None) -> int:
    """Its memory; of one that only HAMi's register tells of, which may be scaled, its type's where that is known."""
    return physical_mib(card.memory_mib, card.register_memory_mib, gpu_type.memory_mib if gpu_type else 0)


def hardware_of(cluster: Cluster, names: Collection[str]) -> Hardware:
    """Read the nodes of these names, with their spans and cards: three queries."""
    nodes: dict[str, list[Node]] = defaultdict(list)
    rows = Node.objects.filter(cluster=cluster, name__in=names).select_related("pool__gpu_type")
    for node in rows.order_by("first_seen_at"):
        nodes[node.name].append(node)
    name_of = {node.pk: node.name for found in nodes.values() for node in found}
    ids = list(name_of)
    spans: dict[UUID, list[CapacitySpan]] = defaultdict(list)
    for span in CapacitySpan.objects.filter(node_id__in=ids).select_related("gpu_type").order_by("started_at"):
        spans[span.node_id].append(span)
    devices: dict[str, list[Device]] = defaultdict(list)
    for device in Device.objects.filter(node_id__in=ids):
        devices[name_of[device.node_id]].append(device)
    return Hardware(nodes, spans, devices, {})
