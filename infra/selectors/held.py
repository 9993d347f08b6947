"""How much of cards pods hold that are there, whoever made them: for quotas and for pages of pools. Millionths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from infra.holdings import Hold, load_holds
from infra.models import Device, GPUType, Node, PodObservation
from infra.shares import CARD, SLICES, floor_millionths, hami_share, mig_share, physical_mib


@dataclass(frozen=True)
class NodeFacts:
    """What of a node says how much a hold is of a card. ``registered``: UUID → physical MiB (0: not known) of the cards
    that its register ever had; ``single``: the MIG profile that its ``nvidia.com/gpu`` stands for."""

    pool_id: UUID
    gpu_type: GPUType
    registered: Mapping[str, int]
    single: str = ""


def hold_share(hold: Hold, node: NodeFacts) -> int:
    """What a hold counts against a quota: whole cards, slices ÷ those of the card, or the larger of memory and cores.

    What is not known counts as the whole card: a share of a card that the node's register never had or whose memory
    nobody knows, a slice of no profile that such a card can be cut into.
    """
    share = hold.unpinned * CARD + hold.slices * _slice_share(hold.profile, node.gpu_type)
    share += hold.cards * (_slice_share(node.single, node.gpu_type) if node.single else CARD)
    if hold.uuid:
        physical = node.registered.get(hold.uuid, 0)
        share += floor_millionths(hami_share(hold.memory_mib, hold.cores, physical)) if physical else CARD
    return share


def _slice_share(profile: str, gpu_type: GPUType) -> int:
    if not profile:
        return 0
    try:
        return floor_millionths(mig_share(profile, gpu_type.compute_slices or SLICES))
    except ValueError:
        return CARD


def node_facts(clusters: Collection[UUID], names: Collection[str]) -> dict[tuple[UUID, str], NodeFacts]:
    """By cluster and name, of the nodes whose GPU type is known. Two queries."""
    rows = Node.objects.filter(cluster_id__in=clusters, name__in=names, gone_at__isnull=True)
    registered: dict[tuple[UUID, str], dict[str, int]] = defaultdict(dict)
    cards = Device.objects.filter(cluster_id__in=clusters, node__name__in=names)
    for cluster_id, name, uuid, own, register, of_type in cards.values_list(
        "cluster_id", "node__name", "uuid", "memory_mib", "register_memory_mib", "node__pool__gpu_type__memory_mib"
    ):
        registered[cluster_id, name][uuid] = physical_mib(own, register, of_type or 0)
    return {
        (node.cluster_id, node.name): NodeFacts(
            node.pool.pk, node.pool.gpu_type, registered[node.cluster_id, node.name], node.mig_profile
        )
        for node in rows.select_related("pool__gpu_type")
        if node.pool is not None and node.pool.gpu_type is not None
    }


def held_by_pool(cluster_ids: Collection[UUID]) -> dict[UUID, int]:
    """Pool → what pods that are bound to its nodes hold, ours and others'. Three queries."""
    live = PodObservation.objects.filter(cluster_id__in=cluster_ids, ended_at__isnull=True, gone_at__isnull=True)
    pods = list(live.exclude(node_name="").exclude(holds=[]).values_list("cluster_id", "node_name", "holds"))
    facts = node_facts({pod[0] for pod in pods}, {pod[1] for pod in pods})
    found: dict[UUID, int] = defaultdict(int)
    for cluster_id, name, holds in pods:
        node = facts.get((cluster_id, name))
        if node is not None:
            found[node.pool_id] += sum(hold_share(hold, node) for hold in load_holds(holds))
    return dict(found)
