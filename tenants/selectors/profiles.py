"""What tenants hold in parts of cards: MIG instances by profile, and MiB and cores of shared cards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Exists, OuterRef, Sum

from infra.holdings import load_holds
from infra.models import GPUType, NamespaceClaim, Node, PodObservation, Reservation
from infra.models.hardware import SharingMode
from infra.placement.quota import profile_key
from infra.pod_devices import mig_profile
from infra.shares import MigFormatError, MigProfile, mig_spelled, parse_mig
from tenants.models import GPUQuota, Tenant


def profiles_reserved(tenant_id: UUID, gpu_type_id: UUID) -> dict[str, int]:
    """MIG instances by profile that live reservations hold."""
    rows = (
        Reservation.objects.filter(tenant_id=tenant_id, gpu_type_id=gpu_type_id, released_at__isnull=True)
        .exclude(profile="")
        .values_list("profile")
        .annotate(total=Sum("slices"))
    )
    return dict(rows)


def profiles_offered(gpu_type_ids: Collection[UUID]) -> list[str]:
    """The MIG profiles that nodes of these types are cut into now, on any cluster; smallest first."""
    rows = Node.objects.filter(
        gone_at__isnull=True, pool__gpu_type__in=gpu_type_ids, pool__sharing=SharingMode.MIG,
        cluster__abandoned_at__isnull=True,
    ).values_list("allocatable", "mig_profile")  # fmt: skip
    found = {profile for allocatable, _ in rows for name in allocatable if (profile := mig_profile(name))}
    found |= {profile for _, profile in rows if profile}
    known = {str(parsed): parsed for profile in found if (parsed := _parsed(profile))}
    return sorted(known, key=lambda name: (known[name].compute_slices, known[name].memory_gb, name))


def _parsed(profile: str) -> MigProfile | None:
    try:
        return parse_mig(profile)
    except MigFormatError:
        return None


def profiles_left(tenant_id: UUID) -> dict[str, int]:
    """MIG instances that may still be promised, of each profile that a quota of the tenant names; by the planner's
    key (``h100/1g.10gb``). Never negative. Inside a scope of the tenant."""
    named = GPUQuota.objects.filter(tenant_id=tenant_id).exclude(profiles={}).select_related("gpu_type")
    quotas = list(named)
    held = parts_held(tenant_id) if quotas else {}
    return {
        profile_key(quota.gpu_type.slug, line.profile): max(0, line.limit - line.held)
        for quota in quotas
        for line in profile_lines(quota.profiles, held.get(quota.gpu_type_id))
        if line.limit is not None
    }


@dataclass
class PartsHeld:
    """What is held of one GPU type in parts of cards, promised or seen. ``profiles``: MIG instances by profile;
    ``memory_mib`` and ``cores`` (percent of a card) of HAMi shares; ``uncapped``: shares seen without a limit on
    cores."""

    profiles: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    shares: int = 0
    memory_mib: int = 0
    cores: int = 0
    uncapped: int = 0

    def __bool__(self) -> bool:
        return bool(self.shares or self.profiles)


def parts_held(tenant_id: UUID) -> dict[UUID, PartsHeld]:
    """By GPU type: live reservations, and GPU pods in the tenant's namespaces that no reservation stands for.

    Call it inside a scope of the tenant. HAMi writes nothing into a ResourceQuota's ``status.used``, so this sum is the
    only one there is.
    """
    found: dict[UUID, PartsHeld] = defaultdict(PartsHeld)
    live = Reservation.objects.filter(tenant_id=tenant_id, released_at__isnull=True)
    for type_id, profile, uuid, slices, memory, cores in live.values_list(
        "gpu_type_id", "profile", "device_uuid", "slices", "memory_mib", "cores"
    ):
        held = found[type_id]
        if profile:
            held.profiles[profile] += slices
        elif uuid:
            held.shares += 1
            held.memory_mib += memory
            held.cores += cores
    _add_seen(tenant_id, found)
    return dict(found)


def _add_seen(tenant_id: UUID, found: Mapping[UUID, PartsHeld]) -> None:
    claimed = NamespaceClaim.objects.filter(
        cluster=OuterRef("cluster"), namespace=OuterRef("namespace"), tenant_id=tenant_id, valid_to__isnull=True
    )
    pods = list(
        PodObservation.objects.filter(
            Exists(claimed), cluster__abandoned_at__isnull=True, replica_id__isnull=True, ended_at__isnull=True,
            gone_at__isnull=True,
        ).exclude(node_name="").values_list("cluster_id", "node_name", "holds")
    )  # fmt: skip
    if not pods:
        return
    nodes = {
        (node.cluster_id, node.name): node
        for node in Node.objects.filter(
            cluster_id__in={pod[0] for pod in pods}, name__in={pod[1] for pod in pods}, gone_at__isnull=True
        ).select_related("pool")
    }
    for cluster_id, name, holds in pods:
        node = nodes.get((cluster_id, name))
        if node is None or node.pool is None or node.pool.gpu_type_id is None:
            continue
        held = found[node.pool.gpu_type_id]
        for hold in load_holds(holds):
            profile = hold.profile or (node.mig_profile if hold.cards else "")
            if profile:
                held.profiles[mig_spelled(profile)] += hold.slices or hold.cards
            elif hold.uuid:
                held.shares += 1
                held.memory_mib += hold.memory_mib
                held.cores += hold.cores
                held.uncapped += not hold.cores


@dataclass(frozen=True, slots=True)
class ProfileLine:
    """A MIG profile of a quota: instances held, and the limit (None: by cards alone)."""

    profile: str
    held: int
    limit: int | None

    @property
    def over_by(self) -> int:
        """By how many instances more is held than the limit (after it was lowered)."""
        return max(0, self.held - self.limit) if self.limit is not None else 0


def profile_lines(limits: Mapping[str, int], held: PartsHeld | None) -> list[ProfileLine]:
    """Each profile that a quota's ``limits`` name or that is held, by name."""
    taken = dict(held.profiles) if held else {}
    return [ProfileLine(profile, taken.get(profile, 0), limits.get(profile)) for profile in sorted({*limits, *taken})]


@dataclass(frozen=True, slots=True)
class PartsRow:
    """What is held of one GPU type in parts of cards, and its MIG profiles with their limits."""

    gpu_type: GPUType
    held: PartsHeld
    profiles: list[ProfileLine]


def parts_rows(tenant: Tenant) -> list[PartsRow]:
    """A row for each GPU type of which the tenant holds parts of cards, or has a quota on MIG profiles.

    Call it inside a scope of the tenant.
    """
    held = parts_held(tenant.pk)
    quotas = {row.gpu_type_id: row for row in GPUQuota.objects.filter(tenant=tenant)}
    named = {type_id for type_id, quota in quotas.items() if quota.profiles}
    rows = []
    for gpu_type in GPUType.objects.filter(pk__in=named | {key for key, one in held.items() if one}).order_by("slug"):
        one = held.get(gpu_type.pk) or PartsHeld()
        limits = quotas[gpu_type.pk].profiles if gpu_type.pk in quotas else {}
        rows.append(PartsRow(gpu_type, one, profile_lines(limits, one)))
    return rows
