"""What a quota's figures are made of: reservations, pods, parts that were handed over. Millionths of a card."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Sum

from infra.models import Cluster, GPUType, PodObservation, Reservation
from tenants.models import ModelDeployment, QuotaAllotment, Tenant
from tenants.selectors.quota import unreserved_pods


@dataclass(frozen=True)
class Held:
    """What a deployment has reserved of a GPU type in one namespace of one cluster. ``used``: by running pods."""

    deployment: str
    cluster: str
    namespace: str
    replicas: int
    reserved: int
    used: int


@dataclass(frozen=True)
class SeenPod:
    """A GPU pod that no reservation stands for, and whether it lies inside a part that was handed over.
    ``used``: the same once a container of it has started."""

    name: str
    cluster: str
    namespace: str
    share: int
    inside: bool
    used: int = 0


@dataclass(frozen=True)
class Makings:
    """Σ ``deployments`` + Σ over namespaces of the larger of handed over and seen = admitted."""

    gpu_type: GPUType
    deployments: tuple[Held, ...]
    pods: tuple[SeenPod, ...]
    handed: tuple[QuotaAllotment, ...]

    @property
    def reserved(self) -> int:
        """Of all deployments together."""
        return sum(held.reserved for held in self.deployments)

    @property
    def seen(self) -> int:
        """In all pods without a reservation."""
        return sum(pod.share for pod in self.pods)

    @property
    def handed_over(self) -> int:
        """To all namespaces together."""
        return sum(part.handed for part in self.handed)

    @property
    def inside(self) -> int:
        """Of what is seen: what lies inside what was handed over, so that it is not counted twice."""
        seen: dict[tuple[str, str], int] = defaultdict(int)
        for pod in self.pods:
            seen[pod.cluster, pod.namespace] += pod.share
        return sum(min(part.handed, seen[part.cluster.slug, part.namespace]) for part in self.handed)

    @property
    def largest(self) -> tuple[Held, ...]:
        """The deployments that hold most: where scaling down brings most."""
        return tuple(sorted(self.deployments, key=lambda held: -held.reserved)[:5])


def quota_makings(tenant: Tenant, gpu_types: list[GPUType]) -> dict[UUID, Makings]:
    """By GPU type. Call it inside a scope of the tenant."""
    clusters = dict(Cluster.objects.values_list("pk", "slug"))
    running = PodObservation.objects.filter(
        replica_id=OuterRef("replica_id"), started_at__isnull=False, ended_at__isnull=True, gone_at__isnull=True
    )
    live = Reservation.objects.filter(tenant_id=tenant.pk, released_at__isnull=True)
    keys = ("gpu_type_id", "deployment_id", "cluster_id", "namespace")
    used = {row[:4]: row[4] for row in live.filter(Exists(running)).values_list(*keys).annotate(sum=Sum("share"))}
    names = dict(ModelDeployment.objects.filter(tenant=tenant).values_list("pk", "name"))
    held: dict[UUID, list[Held]] = defaultdict(list)
    rows = live.values_list(*keys).annotate(sum=Sum("share"), replicas=Count("replica_id", distinct=True))
    for type_id, deployment_id, cluster_id, namespace, total, replicas in rows:
        held[type_id].append(
            Held(
                deployment=names.get(deployment_id, ""),
                cluster=clusters[cluster_id],
                namespace=namespace,
                replicas=replicas,
                reserved=total,
                used=used.get((type_id, deployment_id, cluster_id, namespace), 0),
            )
        )
    handed: dict[UUID, list[QuotaAllotment]] = defaultdict(list)
    parts = QuotaAllotment.objects.filter(tenant=tenant, fixed=True).select_related("cluster", "quota")
    for part in parts.order_by("cluster__slug", "namespace"):
        handed[part.quota.gpu_type_id].append(part)
    pods: dict[UUID, list[SeenPod]] = defaultdict(list)
    for pod in unreserved_pods(tenant.pk):
        inside = any(
            (part.cluster_id, part.namespace) == (pod.cluster_id, pod.namespace) for part in handed[pod.gpu_type_id]
        )
        runs = pod.share if pod.running else 0
        pods[pod.gpu_type_id].append(
            SeenPod(pod.name, clusters[pod.cluster_id], pod.namespace, pod.share, inside, runs)
        )
    return {
        gpu_type.pk: Makings(
            gpu_type=gpu_type,
            deployments=tuple(sorted(held[gpu_type.pk], key=lambda one: (one.deployment, one.cluster))),
            pods=tuple(sorted(pods[gpu_type.pk], key=lambda one: (one.cluster, one.namespace, one.name))),
            handed=tuple(handed[gpu_type.pk]),
        )
        for gpu_type in gpu_types
    }
