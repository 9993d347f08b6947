"""The probe of a connected cluster: does it answer, is it still the same one, are the credentials good."""

from datetime import datetime, timedelta

from django.utils import timezone

from infra.kube.client import KubeClient
from infra.kube.errors import Forbidden, KubeError, Unauthorized, Unreachable, WrongCluster
from infra.models import Cluster
from infra.selectors.clusters import cluster_list
from infra.services.clusters import WORK_KIND
from portal.kernel import ticks, workqueue
from portal.kernel.conditions import Condition, set_condition
from portal.kernel.workqueue import Claimed, Done, Mark, Outcome

PROBE_SECONDS = 60
EXPIRES_SOON = timedelta(days=14)

REACHABLE = "Reachable"
CREDENTIALS_VALID = "CredentialsValid"


@ticks.every(PROBE_SECONDS, "infra.clusters.probe")
def mark_all() -> None:
    """Have every connected cluster probed."""
    ids = cluster_list().values_list("pk", flat=True)
    workqueue.mark_many(Mark(WORK_KIND, pk, cluster_id=pk, cause="resync") for pk in ids)


@workqueue.register(WORK_KIND, lease_seconds=120)
def reconcile(item: Claimed) -> Outcome:
    """Probe, and write conditions, version and ``last_seen_at``. A cluster that fails is a finding, no failure."""
    cluster = Cluster.objects.filter(pk=item.object_id, abandoned_at__isnull=True).first()
    if cluster is None:
        return Done()
    version = ""
    error: KubeError | None = None
    try:
        client = KubeClient.for_cluster(cluster)
        version = str(client.version().get("gitVersion") or "")[:40]
        client.require_identity()
    except KubeError as caught:
        error = caught
    now = timezone.now()
    found = (_reachable(error), _credentials_valid(error, cluster.credential_expires_at, now))
    with item.fenced():
        row = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        for condition in found:
            row.conditions = set_condition(row.conditions, condition, now=now)
        if error is None:
            row.last_seen_at = now
            row.kubernetes_version = version or row.kubernetes_version
        row.save(update_fields=["conditions", "last_seen_at", "kubernetes_version"])
    return Done()


def _reachable(error: KubeError | None) -> Condition:
    match error:
        case None:
            return Condition(REACHABLE, "True", "Answered")
        case Unreachable() | WrongCluster():
            return Condition(REACHABLE, "False", error.reason, error.sentence)
        case Unauthorized() | Forbidden():
            return Condition(REACHABLE, "True", "Answered", "It answered, but does not accept the credentials.")
        case _:
            return Condition(REACHABLE, "Unknown", error.reason, error.sentence)


def _credentials_valid(error: KubeError | None, expires_at: datetime | None, now: datetime) -> Condition:
    if isinstance(error, Unauthorized | Forbidden):
        return Condition(CREDENTIALS_VALID, "False", error.reason, error.sentence)
    if expires_at is not None and expires_at <= now:
        message = f"They expired at {expires_at:%Y-%m-%d %H:%M} UTC. Rotate the cluster's kubeconfig."
        return Condition(CREDENTIALS_VALID, "False", "Expired", message)
    if error is not None:
        return Condition(CREDENTIALS_VALID, "Unknown", error.reason, "The cluster could not be asked.")
    if expires_at is not None and expires_at - now < EXPIRES_SOON:
        message = f"They expire at {expires_at:%Y-%m-%d %H:%M} UTC. Rotate the cluster's kubeconfig before that."
        return Condition(CREDENTIALS_VALID, "True", "ExpiresSoon", message)
    return Condition(CREDENTIALS_VALID, "True", "Accepted")
