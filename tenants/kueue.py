"""What Kueue on a cluster shall be told of the tenants' quotas. Pure: facts in, manifests out.

The figures are those of the parts on the cluster, the same that its ResourceQuotas enforce: so Kueue orders what
waits, and never refuses what the portal has admitted. The guaranteed part of a tenant is its ClusterQueue's nominal
quota, the rest of its part what it may borrow. Tenants of one zone share a Cohort; above those stands one with the
cards that are guaranteed to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.adapters.kueue import (
    HOLD_AND_DRAIN,
    NO_STOP,
    Figure,
    Flavor,
    Groups,
    Manifest,
    cluster_queue,
    cohort,
    local_queue,
    resource_flavor,
)
from infra.pod_devices import GPU_CORES, GPU_MEMORY

OWNER_KIND = "kueue"
LOCAL_QUEUE = "aifactory"
ROOT_COHORT = "aifactory"
PLAIN_FLAVOR = "aifactory-any-node"
PRODUCT = "nvidia.com/gpu.product"
# Not limited here: the queue must cover every resource that a pod asks for, or it never admits it.
PLENTY = {
    "cpu": "1000000",
    "memory": "1000000Gi",
    "ephemeral-storage": "1000000Gi",
    GPU_MEMORY: "1000000000",
    GPU_CORES: "1000000000",
}


@dataclass(frozen=True)
class TypeFacts:
    """A GPU type on the cluster: ``offered`` is how much of each GPU resource its nodes have together."""

    slug: str
    product: str
    offered: Mapping[str, int]

    @property
    def flavor(self) -> Flavor:
        """Its ResourceFlavor."""
        return Flavor(f"aifactory-{self.slug}"[:63], node_labels(self.product))


@dataclass(frozen=True)
class TenantFacts:
    """A tenant on the cluster. ``parts``: slug of the type → GPU resource → (guaranteed, all) of its parts there."""

    slug: str
    zone: str
    namespaces: Sequence[str]
    parts: Mapping[str, Mapping[str, tuple[int, int]]]


def node_labels(product: str) -> dict[str, str]:
    """By which the nodes of a type are known; none where its product was never seen."""
    return {PRODUCT: product} if product else {}


def queue_name(tenant: str) -> str:
    """The tenant's ClusterQueue."""
    return f"t-{tenant}"


def zone_cohort(zone: str) -> str:
    """The Cohort of a zone's tenants."""
    return f"zone-{zone}"


def manifests(
    api: str,
    types: Sequence[TypeFacts],
    tenants: Sequence[TenantFacts],
    *,
    draining: bool = False,
) -> list[Manifest]:
    """Everything that the cluster's Kueue is told, in the order in which it is applied.

    Args:
        draining: the queues take nothing more and what was admitted is asked to end.
    """
    if not types:
        return []
    covered = sorted({name for one in types for name in one.offered})
    objects = [resource_flavor(api, Flavor(PLAIN_FLAVOR)), *(resource_flavor(api, one.flavor) for one in types)]
    objects.append(cohort(api, ROOT_COHORT, groups=_groups(types, covered, _unpromised(types, tenants), lent=True)))
    objects += [
        cohort(api, zone_cohort(zone), parent=ROOT_COHORT) for zone in sorted({tenant.zone for tenant in tenants})
    ]
    for tenant in tenants:
        figures = {
            one.slug: {
                name: Figure(nominal, total - nominal)
                for name in covered
                for nominal, total in [tenant.parts.get(one.slug, {}).get(name, (0, 0))]
            }
            for one in types
        }
        objects.append(
            cluster_queue(
                api,
                queue_name(tenant.slug),
                cohort=zone_cohort(tenant.zone),
                namespaces=tenant.namespaces,
                groups=_groups(types, covered, figures),
                stop=HOLD_AND_DRAIN if draining else NO_STOP,
            )
        )
        objects += [
            local_queue(api, LOCAL_QUEUE, namespace, queue=queue_name(tenant.slug))
            for namespace in sorted(tenant.namespaces)
        ]
    return objects


def _unpromised(types: Sequence[TypeFacts], tenants: Sequence[TenantFacts]) -> dict[str, dict[str, Figure]]:
    """Of each type what is no tenant's nominal quota: anybody may borrow it."""
    return {
        one.slug: {
            name: Figure(
                max(0, offered - sum(tenant.parts.get(one.slug, {}).get(name, (0, 0))[0] for tenant in tenants))
            )
            for name, offered in one.offered.items()
        }
        for one in types
    }


def _groups(
    types: Sequence[TypeFacts],
    covered: Sequence[str],
    figures: Mapping[str, Mapping[str, Figure]],
    *,
    lent: bool = False,
) -> Groups:
    cards = {one.flavor.name: {name: figures[one.slug].get(name, Figure(0)) for name in covered} for one in types}
    plain = {name: Figure(0 if lent else amount) for name, amount in PLENTY.items()}
    return [(covered, cards), (tuple(plain), {PLAIN_FLAVOR: plain})]


def split(total: int, guaranteed: int) -> tuple[int, int]:
    """(guaranteed, all) of a part: no more is guaranteed of it than it has."""
    return min(total, guaranteed), total
