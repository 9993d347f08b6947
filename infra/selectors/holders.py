"""Who holds cards of some nodes now: what is promised, and what pods are seen that nobody promised anything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from infra.models import NamespaceClaim, Node, PodObservation, Reservation
from infra.owners import zones_of

SOME_CARD = "?"


@dataclass(frozen=True, slots=True)
class Held:
    """One holder on one node. ``tenant_id`` None: a namespace that is nobody's; ``zone_id`` None: no zone known.

    ``card``: the UUID of a shared card, :data:`SOME_CARD` where a share is seen and not which card it is of;
    ``profile``: MIG slices, of which it is not known on which card they are; neither: whole cards.
    """

    node: str
    node_id: UUID
    namespace: str
    tenant_id: UUID | None
    zone_id: UUID | None
    card: str = ""
    profile: str = ""

    def __str__(self) -> str:
        return f"{self.namespace} on node {self.node}" + (f" (card {self.card})" if self.card else "")


def namespaces_of(tenant_id: UUID) -> dict[UUID, set[str]]:
    """Cluster → the namespaces that are the tenant's now."""
    found: dict[UUID, set[str]] = defaultdict(set)
    rows = NamespaceClaim.objects.filter(tenant_id=tenant_id, valid_to__isnull=True)
    for cluster_id, namespace in rows.values_list("cluster_id", "namespace"):
        found[cluster_id].add(namespace)
    return dict(found)


def shared_with(tenant_id: UUID, held: Iterable[Held]) -> list[Held]:
    """What others hold of the very cards of the tenant; of MIG, and of shares whose card is not known, of its nodes."""
    held = list(held)
    own = [one for one in held if one.tenant_id == tenant_id]
    cards = {(one.node_id, one.card) for one in own if one.card}
    with_shares = {one.node_id for one in own if one.card}
    unsure = {node for node, card in cards if card == SOME_CARD}
    sliced = {one.node_id for one in own if one.profile}
    return [
        one
        for one in held
        if one.tenant_id != tenant_id
        and (
            (one.node_id, one.card) in cards
            or (bool(one.card) and one.node_id in unsure)
            or (one.card == SOME_CARD and one.node_id in with_shares)
            or (bool(one.profile) and one.node_id in sliced)
        )
    ]


def held_on(node_ids: Collection[UUID]) -> list[Held]:
    """Everything that is held on these nodes. Call it under the nodes' locks where it decides something."""
    nodes = Node.objects.in_bulk(list(node_ids))
    promised = [
        Held(
            nodes[row.node_id].name, row.node_id, row.namespace, row.tenant_id, row.zone_id, row.device_uuid,
            row.profile,
        )
        for row in Reservation.objects.filter(node__in=node_ids, released_at__isnull=True)
    ]  # fmt: skip
    return sorted({*promised, *_seen(nodes.values())}, key=lambda one: (str(one), one.profile))


def _seen(nodes: Iterable[Node]) -> list[Held]:
    by_place = {(node.cluster_id, node.name): node for node in nodes if node.gone_at is None}
    pods = list(
        PodObservation.objects.filter(
            cluster__in={cluster for cluster, _ in by_place}, node_name__in={name for _, name in by_place},
            ended_at__isnull=True, gone_at__isnull=True,
        ).exclude(holds=[])
    )  # fmt: skip
    claims = {
        (claim.cluster_id, claim.namespace): claim.tenant_id
        for claim in NamespaceClaim.objects.filter(
            cluster__in={pod.cluster_id for pod in pods}, namespace__in={pod.namespace for pod in pods},
            valid_to__isnull=True,
        )
    }  # fmt: skip
    zones = zones_of(set(claims.values()))
    found = []
    for pod in pods:
        node = by_place.get((pod.cluster_id, pod.node_name))
        if node is None:
            continue
        tenant = claims.get((pod.cluster_id, pod.namespace))
        for row in pod.holds:
            profile = node.mig_profile if node.mig_profile and row.get("cards") else row.get("profile") or ""
            found.append(
                Held(
                    node.name, node.pk, pod.namespace, tenant, zones.get(tenant) if tenant else None,
                    row.get("uuid") or (SOME_CARD if row.get("unpinned") else ""), profile,
                )
            )  # fmt: skip
    return found
