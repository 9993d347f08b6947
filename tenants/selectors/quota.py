"""What tenants hold beside their reservations, and the figures of a quota page. Millionths of a card everywhere."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Exists, OuterRef, Subquery, Sum, Value

from infra.holdings import load_holds
from infra.models import NamespaceClaim, PodObservation, Reservation
from infra.selectors.held import hold_share, node_facts
from tenants.models import GPUQuota, QuotaAllotment, Tenant

Place = tuple[UUID, str, UUID]
"""(cluster, namespace, GPU type)."""


@dataclass
class Observed:
    """Shares of pods that hold cards without a reservation, by (cluster, namespace, GPU type); ``running``: of those
    in which a container has started, by GPU type."""

    shares: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    running: dict[UUID, int] = field(default_factory=lambda: defaultdict(int))

    def total(self, gpu_type_id: UUID) -> int:
        """On all clusters together."""
        return sum(share for (_, _, type_id), share in self.shares.items() if type_id == gpu_type_id)

    def on(self, cluster_id: UUID, namespace: str, gpu_type_id: UUID) -> int:
        """In one namespace of one cluster."""
        return self.shares.get((cluster_id, namespace, gpu_type_id), 0)


@dataclass(frozen=True)
class UnreservedPod:
    """A live GPU pod that no reservation stands for, and what it holds of one GPU type (millionths). ``running``: a
    container of it has started."""

    tenant_id: UUID
    cluster_id: UUID
    namespace: str
    name: str
    gpu_type_id: UUID
    share: int
    running: bool = True


def unreserved_pods(tenant_id: UUID | None = None) -> list[UnreservedPod]:
    """Live GPU pods in the tenant's namespaces (None: in any tenant's) that no reservation stands for: made by hand,
    or by another tool. What was last seen on a cluster that was given up counts no longer. Three queries."""
    claims = NamespaceClaim.objects.filter(
        cluster=OuterRef("cluster"), namespace=OuterRef("namespace"), valid_to__isnull=True
    )
    live = PodObservation.objects.filter(
        cluster__abandoned_at__isnull=True,
        replica_id__isnull=True,
        ended_at__isnull=True,
        gone_at__isnull=True,
    ).exclude(node_name="")
    if tenant_id is not None:
        live = live.filter(Exists(claims.filter(tenant_id=tenant_id))).annotate(owner=Value(tenant_id))
    else:
        live = live.annotate(owner=Subquery(claims.values("tenant_id")[:1])).filter(owner__isnull=False)
    pods = list(live.values_list("owner", "cluster_id", "namespace", "name", "node_name", "holds", "started_at"))
    if not pods:
        return []
    clusters, nodes = {pod[1] for pod in pods}, {pod[4] for pod in pods}
    facts = node_facts(clusters, nodes)
    found = []
    for owner, cluster_id, namespace, name, node_name, holds, started in pods:
        node = facts.get((cluster_id, node_name))
        if node is not None:
            share = sum(hold_share(hold, node) for hold in load_holds(holds))
            running = started is not None
            found.append(UnreservedPod(owner, cluster_id, namespace, name, node.gpu_type.pk, share, running))
    return found


def observed_unreserved(tenant_id: UUID) -> Observed:
    """:func:`unreserved_pods` of a tenant as sums."""
    observed = Observed()
    for pod in unreserved_pods(tenant_id):
        observed.shares[pod.cluster_id, pod.namespace, pod.gpu_type_id] += pod.share
        observed.running[pod.gpu_type_id] += pod.share if pod.running else 0
    return observed


@dataclass
class Taken:
    """What counts against a tenant's quotas now, by (cluster, namespace, GPU type).

    ``reserved`` by live reservations, ``seen`` in GPU pods that have none, ``handed`` in parts that were handed over.
    What was handed over counts whole, used or not; pods that are seen there lie inside it and are not counted twice.
    ``leaving`` of it is to be had by another part soon.
    """

    reserved: dict[Place, int]
    seen: Observed
    handed: dict[Place, int]
    leaving: dict[Place, int]

    @property
    def types(self) -> set[UUID]:
        """The GPU types of which anything is taken."""
        return {key[2] for key in (*self.reserved, *self.seen.shares, *self.handed)}

    def on(self, cluster_id: UUID, namespace: str, gpu_type_id: UUID) -> int:
        """In one namespace of one cluster."""
        key = (cluster_id, namespace, gpu_type_id)
        return self.reserved.get(key, 0) + max(self.handed.get(key, 0), self.seen.on(*key))

    def target(self, cluster_id: UUID, namespace: str, gpu_type_id: UUID) -> int:
        """What the namespace's part has to be: as :meth:`on`, without what is on its way to another part."""
        key = (cluster_id, namespace, gpu_type_id)
        staying = self.handed.get(key, 0) - self.leaving.get(key, 0)
        return self.reserved.get(key, 0) + max(staying, self.seen.on(*key))

    def confirm(self, place: Place, amount: int) -> None:
        """The cluster says that no more than ``amount`` is used there: what is seen beyond that has ended."""
        room = max(0, amount - self.reserved.get(place, 0))
        self.seen.shares[place] = min(self.seen.on(*place), room)

    def total(self, gpu_type_id: UUID) -> int:
        """On all clusters together: the quota's ``admitted``."""
        places = {*self.reserved, *self.seen.shares, *self.handed}
        return sum(self.on(*key) for key in places if key[2] == gpu_type_id)


def quota_taken(tenant_id: UUID) -> Taken:
    """What of a tenant's quotas is taken now. Whoever decides by it holds the quota rows' locks.

    Call it inside a scope of the tenant.
    """
    live = Reservation.objects.filter(tenant_id=tenant_id, released_at__isnull=True)
    sums = live.values_list("cluster_id", "namespace", "gpu_type_id").annotate(total=Sum("share"))
    parts = {
        (part.cluster_id, part.namespace, part.quota.gpu_type_id): part
        for part in QuotaAllotment.objects.filter(tenant_id=tenant_id, fixed=True).select_related("quota")
    }
    return Taken(
        reserved={(cluster_id, namespace, type_id): total for cluster_id, namespace, type_id, total in sums},
        seen=observed_unreserved(tenant_id),
        handed={key: part.handed for key, part in parts.items()},
        leaving={key: part.leaving for key, part in parts.items()},
    )


@dataclass(frozen=True)
class QuotaRoom:
    """What a tenant may hold of a GPU type, and what counts against it now. Millionths of a card."""

    limit: int
    admitted: int
    guaranteed: int = 0

    @property
    def left(self) -> int:
        """What may still be admitted; never negative."""
        return max(0, self.limit - self.admitted)

    @property
    def promised(self) -> int:
        """What is guaranteed and not held."""
        return max(0, self.guaranteed - self.admitted)


def quota_rooms(tenant_id: UUID) -> dict[str, QuotaRoom]:
    """The tenant's quotas by the slug of the GPU type; less to read than :func:`quota_lines`. Inside a scope of it."""
    quotas = list(
        GPUQuota.objects.filter(tenant_id=tenant_id).values_list("gpu_type_id", "gpu_type__slug", "limit", "guaranteed")
    )
    if not quotas:
        return {}
    taken = quota_taken(tenant_id)
    return {slug: QuotaRoom(limit, taken.total(type_id), promised) for type_id, slug, limit, promised in quotas}


@dataclass(frozen=True)
class QuotaLine:
    """One row of a quota page. All figures in millionths of a card; ``borrowed`` is what goes beyond guaranteed."""

    quota: GPUQuota
    admitted: int
    used: int
    allotments: tuple[QuotaAllotment, ...]

    @property
    def left(self) -> int:
        """What may still be admitted; never negative."""
        return max(0, self.quota.limit - self.admitted)

    @property
    def over_by(self) -> int:
        """By how much the tenant holds more than its limit (after the limit was lowered)."""
        return max(0, self.admitted - self.quota.limit)

    @property
    def borrowed(self) -> int:
        """What is admitted beyond the guarantee."""
        return max(0, self.admitted - self.quota.guaranteed)


def quota_lines(tenant: Tenant) -> list[QuotaLine]:
    """The tenant's quotas by GPU type: reserved, seen or handed over (admitted), and in use by running pods.

    Call it inside a scope of the tenant.
    """
    quotas = list(GPUQuota.objects.filter(tenant=tenant).select_related("gpu_type").order_by("gpu_type__slug"))
    if not quotas:
        return []
    running = PodObservation.objects.filter(
        replica_id=OuterRef("replica_id"),
        started_at__isnull=False,
        ended_at__isnull=True,
        gone_at__isnull=True,
    )
    live = Reservation.objects.filter(tenant_id=tenant.pk, released_at__isnull=True)
    in_use = dict(live.filter(Exists(running)).values_list("gpu_type_id").annotate(total=Sum("share")))
    taken = quota_taken(tenant.pk)
    parts: dict[UUID, list[QuotaAllotment]] = defaultdict(list)
    # A part that was given back whole stays as a row for the next time, and is nothing to be shown.
    rows = QuotaAllotment.objects.filter(tenant=tenant, amount__gt=0).select_related("cluster")
    for part in rows.order_by("cluster__slug", "namespace"):
        parts[part.quota_id].append(part)
    return [
        QuotaLine(
            quota=quota,
            admitted=taken.total(quota.gpu_type_id),
            used=(in_use.get(quota.gpu_type_id) or 0) + taken.seen.running.get(quota.gpu_type_id, 0),
            allotments=tuple(parts[quota.pk]),
        )
        for quota in quotas
    ]
