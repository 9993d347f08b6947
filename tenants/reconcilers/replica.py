"""One replica on one cluster: render → apply → observe, or delete until nothing of it is left.

No transaction is open while a cluster is asked; the state is written behind the fencing token, and only where it
changed. An unreachable cluster leaves the last state standing, with a condition that says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from infra.adapters.kueue import VERSIONS, read_workload
from infra.kube.apply import ObjectKey, Owner, force_fields
from infra.kube.client import KubeClient, Obj
from infra.kube.errors import ApiMissing, Forbidden, KubeError, NotFound, Retryable
from infra.models import AppliedObject, Cluster, Node
from infra.names import selector
from infra.selectors.inventory import applied_by
from infra.services.inventory import ApplyReport, Superseded, inventory_apply, inventory_delete, inventory_suspect
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import Claimed, Done, Outcome, RetryAfter, register
from tenants.failpoints import reached
from tenants.models import ModelDeployment, ModelReplica, Tenant, TenantNamespace
from tenants.observing import Observed, Phase, observe
from tenants.render import ReplicaFacts, render_replica
from tenants.render.facts import OWNER_KIND
from tenants.selectors.queueing import queue_in_force
from tenants.services import replicas
from tenants.stored import replica_facts

KIND = "replica"
WORKLOADS = ("Deployment", "LeaderWorkerSet")
# Everything below .spec of the workloads is the portal's: what somebody changed there is taken back. Labels and
# annotations that another tool set are left to it, and a conflict over them is told.
FORCE = force_fields(".spec")

WHILE_STARTING = 3.0
WHILE_FAILING = 15.0
WHILE_UNREACHABLE = 30.0
WHILE_REFUSED = 60.0


@dataclass(frozen=True)
class View:
    """The rows that a run works from, as of its start."""

    replica: ModelReplica
    deployment: ModelDeployment
    tenant: Tenant
    cluster: Cluster
    namespace: TenantNamespace | None
    facts: ReplicaFacts

    @property
    def owner(self) -> Owner:
        """For whom it is applied."""
        return Owner(OWNER_KIND, self.replica.pk, self.tenant.pk, self.replica.generation)


def _stalled(item: Claimed, message: str) -> None:
    with system_scope("stalled"):
        replicas.replica_stalled(item.object_id, message)


@register(KIND, lease_seconds=90, on_stalled=_stalled)
def reconcile(item: Claimed) -> Outcome:
    """Bring one replica's objects to what its row says."""
    view = _view(item)
    if view is None:
        return Done()
    reached("replica-claimed")
    try:
        if view.replica.deleting_at is not None:
            return _remove(item, view)
        return _bring(item, view)
    except Superseded:
        return Done()
    except KubeError as error:
        with item.fenced():
            replicas.replica_unreached(view.replica.pk, error)
        if isinstance(error, Retryable):
            return RetryAfter(max(error.retry_after or 0.0, WHILE_UNREACHABLE), error.sentence)
        return RetryAfter(WHILE_REFUSED, error.sentence)


def _view(item: Claimed) -> View | None:
    with system_scope("replica"):
        row = (
            ModelReplica.objects.select_related("deployment", "tenant", "cluster")
            .filter(pk=item.object_id, deleted_at__isnull=True)
            .first()
        )
        if row is None:
            return None
        namespace = TenantNamespace.objects.filter(
            tenant_id=row.tenant_id, cluster_id=row.cluster_id, name=row.tenant.namespace
        ).first()
        facts = replica_facts(row, row.deployment, row.tenant, queue=queue_in_force(row.placement, row.cluster))
        if facts.has_slices:
            plain = Node.objects.filter(cluster=row.cluster, gone_at__isnull=True).exclude(mig_profile="")
            facts = replace(facts, plain_slices=frozenset(plain.values_list("name", flat=True)))
        return View(row, row.deployment, row.tenant, row.cluster, namespace, facts)


def _bring(item: Claimed, view: View) -> Outcome:
    namespace = view.namespace
    prepared = namespace is not None and namespace.observed_generation >= namespace.generation
    # What was applied once asks for nothing more of the namespace's quota when it is applied again.
    if not prepared and view.replica.observed_generation == 0:
        message = f"Waits for namespace {view.tenant.namespace} on {view.cluster.slug} to be prepared."
        with item.fenced():
            replicas.replica_waits(view.replica.pk, "WaitingForNamespace", message)
        return RetryAfter(WHILE_STARTING, message)
    manifests = render_replica(view.facts)
    reached("replica-rendered")
    replica = view.replica
    seen: Observed | None = None

    def also(report: ApplyReport) -> None:
        nonlocal seen
        seen = _made(manifests, report)
        if seen is not None:
            replicas.replica_observed(replica.pk, replica.generation, seen, taken_back=_taken_back(report))

    report = inventory_apply(
        item=item, cluster=view.cluster, owner=view.owner, manifests=manifests, force=FORCE, also=also
    )
    reached("replica-applied")
    if seen is None:
        seen = _look(view, manifests)
        reached("replica-observed")
        with item.fenced():
            replicas.replica_observed(replica.pk, replica.generation, seen, taken_back=_taken_back(report))
    reached("replica-recorded")
    if report.remaining or not seen.ready:
        delay = WHILE_FAILING if seen.phase is Phase.FAILED else WHILE_STARTING
        return RetryAfter(delay, seen.message)
    return Done()


def _made(manifests: list[Obj], report: ApplyReport) -> Observed | None:
    """What there is to see of workloads that were all made just now: what the API server answered to that, and no pods
    yet. None where any was there before."""
    keys = [ObjectKey.of(manifest) for manifest in manifests if manifest["kind"] in WORKLOADS]
    answers = [report.written[key] for key in keys if key in report.written]
    if len(answers) < len(keys) or not all(answer.created for answer in answers):
        return None
    return observe([answer.object for answer in answers], (), was_ready=False)


def _look(view: View, manifests: list[Obj]) -> Observed:
    """Read the workloads and pods. What we applied and is not there any more is applied again by the next run."""
    client = KubeClient.for_cluster(view.cluster)
    found: list[Obj] = []
    for manifest in manifests:
        if manifest["kind"] not in WORKLOADS:
            continue
        name = manifest["metadata"]["name"]
        try:
            found.append(client.get(manifest["apiVersion"], manifest["kind"], name, view.facts.namespace))
        except NotFound:
            with system_scope("drift"):
                inventory_suspect(applied_by(OWNER_KIND, view.replica.pk, view.cluster.pk))
            message = f"{manifest['kind']} {name} was deleted by somebody; it is made again."
            return Observed(Phase.APPLYING, "ObjectMissing", message)
    pods = client.list_all(
        "v1", "Pod", namespace=view.facts.namespace, label_selector=selector(view.facts.pod_selector)
    )
    replica = view.replica
    was_ready = replica.ready_at is not None and replica.observed_generation >= replica.generation
    seen = observe(found, pods.items, was_ready=was_ready)
    return seen if seen.ready or not view.facts.queue else _queued(client, view, seen, pods.items)


def _queued(client: KubeClient, view: View, seen: Observed, pods: list[Obj]) -> Observed:
    """What Kueue says of the pods that it has not admitted, in its own words and with a hint."""
    uids = {str(pod["metadata"]["uid"]) for pod in pods}
    for api in VERSIONS:
        try:
            found = client.list_all(api, "Workload", namespace=view.facts.namespace).items
        except (ApiMissing, NotFound, Forbidden):
            continue
        waiting = [one for one in map(read_workload, found) if one.pods & uids and not one.admitted]
        if waiting:
            first = min(waiting, key=lambda one: one.name)
            return Observed(Phase.SCHEDULING, "QueuedByKueue", first.sentence, seen.ready_pods, seen.wanted_pods)
        break
    return seen


def _taken_back(report: ApplyReport) -> str:
    """Which fields were taken back from whom: ``.spec.replicas (kubectl-edit)``."""
    return ", ".join(
        sorted({f"{one.field} ({one.manager})" for conflicts in report.forced.values() for one in conflicts})
    )


def _remove(item: Claimed, view: View) -> Outcome:
    if view.cluster.abandoned_at is None:
        left = _left(item, view)
        if left:
            with item.fenced():
                replicas.replica_leaving(view.replica.pk, left)
            return RetryAfter(WHILE_STARTING, left)
    reached("replica-removed")
    with item.fenced():
        replicas.replica_ended(view.replica.pk)
    reached("replica-released")
    return Done()


def _left(item: Claimed, view: View) -> str:
    """Have its objects deleted; "" when the cluster has none of them, and no pod of it, any more."""
    with system_scope("replica"):
        ever = AppliedObject.objects.filter(owner_kind=OWNER_KIND, owner_id=view.replica.pk).exists()
    if not ever:
        return ""  # a row is written before its object is made: without one nothing was ever asked for
    report = inventory_delete(item=item, cluster=view.cluster, owner=view.owner)
    if not report.done:
        one = report.remaining[0]
        return f"Deleting on {view.cluster.slug}: {one.key}: {one.why}."
    client = KubeClient.for_cluster(view.cluster)
    client.require_identity()
    pods = client.list_all(
        "v1",
        "Pod",
        namespace=view.facts.namespace,
        label_selector=selector(view.facts.pod_selector),
        metadata_only=True,
    )
    if pods.items:
        names = ", ".join(sorted(pod["metadata"]["name"] for pod in pods.items)[:3])
        return f"Deleting on {view.cluster.slug}: {len(pods.items)} pods have not ended yet ({names})."
    return ""
