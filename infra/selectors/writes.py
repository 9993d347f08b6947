"""How we know that nothing was written to a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from infra.models import AppliedObject, Cluster
from infra.rights import RightsReport
from portal.kernel.models import AuditEvent


@dataclass(frozen=True, slots=True)
class WriteProof:
    """``writes`` is 0 where the cluster was in observe mode since it was connected (each write asks for the mode first,
    :mod:`infra.kube.guard`); None where it was managed at some time, or nobody knows how it was connected: then writes
    are not counted. ``objects``: ours that are on it, as far as we know. ``could_write``: None: not asked yet."""

    writes: int | None
    since: datetime | None
    objects: int
    could_write: bool | None


def write_proof(cluster: Cluster) -> WriteProof:
    """From the audit, the inventory and the last check of our rights. Needs a system scope."""
    events = AuditEvent.objects.filter(
        object_kind="cluster", object_id=cluster.pk, verb__in=["cluster_connect", "cluster_set_mode"], outcome="done"
    ).order_by("id")
    modes = [(event.verb, (event.after or {}).get("mode"), event.at) for event in events]
    connected = next((at for verb, _, at in modes if verb == "cluster_connect"), None)
    only_observed = cluster.mode == Cluster.Mode.OBSERVE and all(mode == "observe" for _, mode, _ in modes)
    report = RightsReport.load(cluster.rights)
    objects = AppliedObject.objects.filter(cluster=cluster).count()
    proved = connected is not None and only_observed and not objects
    return WriteProof(0 if proved else None, connected, objects, report.could_write if report else None)
