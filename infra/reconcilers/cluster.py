"""The probe of a connected cluster: does it answer, is it still the same one, are the credentials good, and now and
then (and when somebody asks for it) whether every right that its mode needs is still there."""

from datetime import datetime, timedelta

from django.utils import timezone

from infra.credentials import warn_from
from infra.kube.client import KubeClient
from infra.kube.errors import Forbidden, KubeError, Unauthorized, Unreachable, WrongCluster
from infra.kube.kubeconfig import issued_at
from infra.models import Cluster
from infra.reconcilers.renewal import Renewal, renew
from infra.rights import RightsReport, sentence
from infra.selectors.clusters import cluster_list
from infra.services.clusters import WORK_KIND
from infra.services.preflight import ask_rights
from infra.services.renewal import renewal_store
from infra.services.rights import rights_store
from portal.kernel import ticks, workqueue
from portal.kernel.conditions import Condition, set_condition
from portal.kernel.workqueue import Claimed, Done, Mark, Outcome

PROBE_SECONDS = 60
RIGHTS_EVERY = timedelta(minutes=10)

REACHABLE = "Reachable"
RIGHTS_COMPLETE = "RightsComplete"
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
    client: KubeClient | None = None
    error: KubeError | None = None
    try:
        client = KubeClient.for_cluster(cluster)
        version = str(client.version().get("gitVersion") or "")[:40]
        client.require_identity()
    except KubeError as caught:
        error = caught
    now = timezone.now()
    report = _rights(client, cluster, now) if client is not None and error is None else None
    renewed: Renewal | None = None
    if client is not None and error is None:
        renewed = renew(client, cluster, now, ask=report is not None)
    found = [_reachable(error), _credentials_valid(error, cluster, renewed, now)]
    if renewed is not None:
        found.append(renewed.condition)
    if isinstance(report, KubeError):
        found.append(Condition(RIGHTS_COMPLETE, "Unknown", report.reason, f"Not known: {report.sentence}"))
    elif report is not None:
        found.append(rights_condition(report))
    with item.fenced():
        row = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        if isinstance(report, RightsReport) and row.mode == report.mode:
            rights_store(row, report, at=now)
        if renewed is not None and renewed.credentials is not None:
            renewal_store(row, renewed.credentials, instead_of=bytes(cluster.kubeconfig_ciphertext))
        for condition in found:
            row.conditions = set_condition(row.conditions, condition, now=now)
        if error is None:
            row.last_seen_at = now
            row.kubernetes_version = version or row.kubernetes_version
        row.save(update_fields=["conditions", "last_seen_at", "kubernetes_version", "rights", "rights_checked_at"])
    return Done()


def _rights(client: KubeClient, cluster: Cluster, now: datetime) -> RightsReport | KubeError | None:
    """The rights, where it is time to ask for them; the error where the cluster does not tell."""
    asked = cluster.rights_checked_at
    if asked is not None and now - asked < RIGHTS_EVERY and cluster.rights.get("mode") == cluster.mode:
        return None
    try:
        return ask_rights(client, cluster.mode, cluster)
    except KubeError as error:
        return error


def rights_condition(report: RightsReport) -> Condition:
    """What the rights come to, each missing one named."""
    if report.missing:
        message = (
            f"For mode {report.mode} these rights are missing: {sentence(report.missing)}. "
            f"Apply deploy/clusterroles/{report.mode}.yaml (again, after an upgrade) and bind its ClusterRole "
            f"aifactory-{report.mode}."
        )
        return Condition(RIGHTS_COMPLETE, "False", "RightsMissing", message)
    told = []
    if report.lacking:
        told.append(f"Optional rights that are not there: {sentence(report.lacking)}.")
    if report.could_write:
        told.append("These credentials could write; the portal never does in observe mode.")
    return Condition(RIGHTS_COMPLETE, "True", "CouldWrite" if report.could_write else "Complete", " ".join(told))


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


def _credentials_valid(error: KubeError | None, cluster: Cluster, renewed: Renewal | None, now: datetime) -> Condition:
    expires_at, begun_at = cluster.credential_expires_at, cluster.credential_issued_at
    if renewed is not None and renewed.credentials is not None:
        expires_at, begun_at = renewed.credentials.expires_at, issued_at(renewed.credentials)
    if isinstance(error, Unauthorized | Forbidden):
        return Condition(CREDENTIALS_VALID, "False", error.reason, error.sentence)
    if expires_at is not None and expires_at <= now:
        message = f"They expired at {expires_at:%Y-%m-%d %H:%M} UTC. Rotate the cluster's kubeconfig."
        return Condition(CREDENTIALS_VALID, "False", "Expired", message)
    if error is not None:
        return Condition(CREDENTIALS_VALID, "Unknown", error.reason, "The cluster could not be asked.")
    if expires_at is not None and now >= warn_from(begun_at, expires_at):
        message = f"They expire at {expires_at:%Y-%m-%d %H:%M} UTC. Rotate the cluster's kubeconfig before that."
        return Condition(CREDENTIALS_VALID, "True", "ExpiresSoon", message)
    return Condition(CREDENTIALS_VALID, "True", "Accepted")
