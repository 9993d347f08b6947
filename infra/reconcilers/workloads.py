"""Reading the controllers of pods, where labels don't tell what stands above them. It takes optional rights."""

from __future__ import annotations

import re

from infra.evidence import Owner
from infra.kube.client import KubeClient
from infra.kube.errors import Forbidden, NotFound
from infra.models import Cluster, OwnerSight, PodObservation
from infra.services.owner_links import owner_links_store, owner_namespaces
from infra.workloads import READABLE, Known
from portal.kernel import ticks, workqueue
from portal.kernel.clock import utcnow
from portal.kernel.workqueue import Claimed, Done, Mark, Outcome, RetryAfter

KIND = "workloads"
_AT_ONCE = 100
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""What a controller can be called. Whoever makes a pod names its owner, and the API server takes any text."""


@ticks.every(60, "infra.workloads.read")
def mark_all() -> None:
    """Look at the clusters that have pods whose controller was not read."""
    waiting = PodObservation.objects.filter(
        workload_known=Known.OWNER_NOT_READ.value, gone_at__isnull=True, cluster__abandoned_at__isnull=True
    )
    ids = waiting.order_by().values_list("cluster_id", flat=True).distinct()
    workqueue.mark_many(Mark(KIND, pk, cluster_id=pk, cause="resync") for pk in ids)


@workqueue.register(KIND, lease_seconds=120)
def reconcile(item: Claimed) -> Outcome:
    """Read up to a hundred controllers of one cluster."""
    cluster = Cluster.objects.filter(pk=item.object_id, abandoned_at__isnull=True).first()
    if cluster is None:
        return Done()
    owners = owner_namespaces(cluster, _AT_ONCE)
    if not owners:
        return Done()
    client = KubeClient.for_cluster(cluster)
    client.require_identity()
    read = [_read(client, owner, namespace) for owner, namespace in owners]
    with item.fenced():
        owner_links_store(cluster, read, at=utcnow())
    return RetryAfter(0, "More controllers are to be read.") if len(owners) == _AT_ONCE else Done()


def _read(client: KubeClient, owner: Owner, namespace: str) -> OwnerSight:
    sight = OwnerSight(
        uid=owner.uid, kind=owner.kind, namespace=namespace, name=owner.name, state=OwnerSight.State.SEEN
    )
    if _NAME.fullmatch(owner.name) is None:
        sight.state = OwnerSight.State.GONE
        return sight
    try:
        found = client.get(READABLE[owner.kind], owner.kind, owner.name, namespace, metadata_only=True)
    except Forbidden:
        sight.state = OwnerSight.State.FORBIDDEN
        return sight
    except NotFound:
        sight.state = OwnerSight.State.GONE
        return sight
    metadata = found["metadata"]
    if metadata.get("uid") != owner.uid:
        sight.state = OwnerSight.State.GONE
        return sight
    above = next((ref for ref in metadata.get("ownerReferences") or () if ref.get("controller")), None)
    if above is not None:
        sight.parent_kind, sight.parent_name = str(above.get("kind", ""))[:63], str(above.get("name", ""))[:253]
    return sight
