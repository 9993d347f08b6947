"""Whether a cluster may be written to, asked of the database at the moment of the write."""

from uuid import UUID

from django.conf import settings
from django.db.models import Subquery, TextField, Value
from django.db.models.functions import Concat

from infra.kube.errors import Call, ClusterAbandoned, ClusterPaused, ObserveOnly
from infra.models import Cluster, WriteStop


def require_writable(cluster_id: UUID | None, call: Call) -> None:
    """Raise unless the cluster is in manage mode, not paused, not abandoned, and writing is not stopped.

    Args:
        cluster_id: ``None``: a cluster that is not connected yet.

    Raises:
        ObserveOnly, ClusterPaused, ClusterAbandoned: with a sentence; nothing was sent.
    """
    if settings.AIF_STOP_WRITES:
        raise ClusterPaused(
            call,
            f"All writing to clusters is stopped (AIF_STOP_WRITES is set), so {call.what} on {call.cluster} waits.",
        )
    rows = Cluster.objects.none() if cluster_id is None else Cluster.objects.filter(pk=cluster_id)
    # One statement: what it sees of the switch and of the cluster is of the same instant.
    told = Concat("stopped_by", Value(": "), "reason", output_field=TextField())
    stopped = WriteStop.objects.annotate(told=told).values("told")[:1]
    row = rows.annotate(stopped=Subquery(stopped)).values("mode", "paused", "abandoned_at", "stopped").first()
    if row is None:
        raise ObserveOnly(call, f"Cluster {call.cluster} is not connected, so nothing is written to it.")
    if row["abandoned_at"] is not None:
        raise ClusterAbandoned(call, f"Cluster {call.cluster} was abandoned; nothing is written to it any more.")
    if row["mode"] != Cluster.Mode.MANAGE:
        raise ObserveOnly(
            call,
            f"Cluster {call.cluster} is in observe mode and never written to: {call.verb} of {call.what} "
            "was not sent. Switch it to manage if the portal shall deploy there.",
        )
    if row["stopped"] is not None:
        raise ClusterPaused(
            call,
            f"All writing to clusters was stopped by {row['stopped']} (Operations page, or manage.py resume_writes), "
            f"so {call.what} on {call.cluster} waits.",
        )
    if row["paused"]:
        raise ClusterPaused(
            call,
            f"Writing to cluster {call.cluster} is paused, so {call.what} waits. Resume the cluster to go on.",
        )
