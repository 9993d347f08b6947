"""What a tenant's namespace on a cluster shall look like, from the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

from infra.holdings import load_holds
from infra.models import Node, NodePool, PodObservation, Reservation
from infra.models.hardware import SharingMode
from infra.pod_devices import GPU, MIG_PREFIX, mig_resource
from infra.shares import CARD, floor_millionths, mig_share, parse_mig
from tenants.bundle import GpuLimits, HamiLimits, is_gpu_resource
from tenants.models import QuotaAllotment, TenantNamespace
from tenants.selectors.profiles import profiles_reserved
from tenants.selectors.quota import observed_unreserved

MEMBER_LENGTH = Reservation._meta.get_field("member").max_length
"""A longer name is cut, and says no longer which pod it is of."""


def gpu_resources_offered(cluster_id: UUID) -> set[str]:
    """The names of the GPU resources that any node of the cluster offers."""
    rows = Node.objects.filter(cluster_id=cluster_id, gone_at__isnull=True).values_list("allocatable", flat=True)
    return {name for allocatable in rows for name in allocatable if is_gpu_resource(name)}


def gpu_limits(namespace: TenantNamespace, parts: list[QuotaAllotment]) -> GpuLimits:
    """What the namespace may request of each offered GPU resource: what is reserved, and what else was allotted.

    Call it with the quota rows locked, so that reservations and ``parts`` are of one moment.
    """
    allowed: dict[str, int] = defaultdict(int, dict.fromkeys(gpu_resources_offered(namespace.cluster_id), 0))
    rows = list(
        Reservation.objects.filter(
            tenant_id=namespace.tenant_id,
            cluster_id=namespace.cluster_id,
            namespace=namespace.name,
            released_at__isnull=True,
        ).select_related("node")
    )
    shares: dict[UUID, int] = defaultdict(int)
    for row in rows:
        shares[row.gpu_type_id] += row.share
        if row.profile and row.node.mig_profile:  # the device plugin's strategy "single" calls slices cards
            allowed[GPU] += row.slices
        elif row.profile:
            allowed[mig_resource(row.profile)] += row.slices
        elif row.sharing == SharingMode.HAMI:
            allowed[GPU] += 1
        else:
            allowed[GPU] += row.cards
    shared = set(
        NodePool.objects.filter(cluster_id=namespace.cluster_id, sharing=SharingMode.HAMI).values_list(
            "gpu_type_id", flat=True
        )
    )
    hami = _hami_reserved(row for row in rows if row.sharing == SharingMode.HAMI)
    beyond = cards = 0
    seen = observed_unreserved(namespace.tenant_id)
    fits = True
    for part in parts:
        # What was allotted beyond our reservations is for pods that somebody else makes there.
        rest = max(0, part.target - shares[part.quota.gpu_type_id])
        beyond += rest
        fits = fits and seen.on(namespace.cluster_id, namespace.name, part.quota.gpu_type_id) <= rest
        for resource, count, unit in _instances(part, rest, allowed):
            allowed[resource] += count
            rest -= count * unit
        cards += rest // CARD
        if part.quota.gpu_type_id in shared:
            memory = rest * part.quota.gpu_type.memory_mib // CARD
            hami += HamiLimits(memory, rest * 100 // CARD, memory)
    allowed[GPU] += cards
    # More is seen there than was allotted (it was lowered, or somebody was faster): then there is room for no more.
    if beyond and fits:
        _room_for_seen(namespace, allowed, cards)
    return GpuLimits(dict(allowed), hami if shared or hami.memory_mib else None)


def _hami_reserved(rows: Iterable[Reservation]) -> HamiLimits:
    """HAMi sums over cards; the API server adds each pod's figure once, however many cards the pod has."""
    memory = cores = fence = 0
    pods: dict[tuple[UUID, str], int] = defaultdict(int)
    for row in rows:
        memory += row.memory_mib
        cores += row.cores
        if len(row.member) == MEMBER_LENGTH:
            fence += row.memory_mib
        else:
            key = (row.replica_id, row.member.rpartition("/")[0])
            pods[key] = max(pods[key], row.memory_mib)
    return HamiLimits(memory, cores, fence + sum(pods.values()))


def _instances(part: QuotaAllotment, rest: int, offered: Iterable[str]) -> list[tuple[str, int, int]]:
    """(resource, instances, millionths of each) of MIG that a part that was handed over holds room for: those that the
    quota names, where no other part was handed over that could hold them too."""
    slices = part.quota.gpu_type.compute_slices
    if not part.fixed or not part.quota.profiles or not slices:
        return []
    others = QuotaAllotment.objects.filter(tenant_id=part.tenant_id, quota=part.quota, fixed=True).exclude(pk=part.pk)
    if others.exists():
        return []
    names = {str(parse_mig(name)): name for name in offered if name.startswith(MIG_PREFIX)}
    reserved = profiles_reserved(part.tenant_id, part.quota.gpu_type_id)
    found = []
    for profile, limit in sorted(part.quota.profiles.items()):
        unit = floor_millionths(mig_share(profile, slices))
        count = min(max(0, limit - reserved.get(profile, 0)), rest // unit)
        if profile in names and count:
            found.append((names[profile], count, unit))
            rest -= count * unit
    return found


def _room_for_seen(namespace: TenantNamespace, allowed: dict[str, int], cards: int) -> None:
    """Pods that somebody made there are counted by the API server too: without room for them ours would be refused.

    ``cards``: how many whole cards beyond our reservations ``allowed`` has room for already.
    """
    whole = shared = 0
    holds = PodObservation.objects.filter(
        cluster_id=namespace.cluster_id, namespace=namespace.name, replica_id__isnull=True, ended_at__isnull=True,
        gone_at__isnull=True,
    ).exclude(node_name="").values_list("node_name", "holds")  # fmt: skip
    cut = Node.objects.filter(cluster_id=namespace.cluster_id, gone_at__isnull=True).exclude(mig_profile="")
    single = set(cut.values_list("name", flat=True))  # what these call a card is a slice
    for node, hold in ((node, hold) for node, stored in holds for hold in load_holds(stored)):
        whole += hold.unpinned + (0 if node in single else hold.cards)
        shared += (1 if hold.uuid else 0) + (hold.cards if node in single else 0)
        if hold.profile and hold.slices:
            allowed[mig_resource(hold.profile)] += hold.slices
    # Whole cards never get more room than was allotted, or one more would come in for each that did.
    allowed[GPU] += max(0, min(whole, cards) + shared - cards)
