"""Reconciler ``kueue``: a cluster's flavors, cohorts and queues, from the same parts as its ResourceQuotas.

Switched off, it goes in steps, each seen to be done before the next: the queues hold and drain, the LocalQueues go,
then the ClusterQueues and the rest. A ClusterQueue that is deleted while something of it is admitted would stay
``Terminating``.
"""

from __future__ import annotations

from infra.adapters.kueue import VERSIONS, QueueState, read_queue
from infra.kube.apply import Manifest, ObjectKey, Owner, force_fields
from infra.kube.client import KubeClient
from infra.kube.errors import ApiMissing, ClusterPaused, Forbidden, KubeError, NotFound
from infra.models import Cluster
from infra.selectors.inventory import applied_by
from infra.services.inventory import Superseded, inventory_apply, inventory_delete
from portal.kernel.conditions import Condition, Status, set_condition
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import Claimed, Done, Outcome, RetryAfter, register
from tenants.kueue import OWNER_KIND, manifests, queue_name
from tenants.models import ClusterQueueing
from tenants.selectors.queueing import tenant_facts, type_facts

FORCE = force_fields(".spec", ".metadata.labels")
RETRY_SECONDS = 30.0
DRAIN_SECONDS = 5.0
NOT_SERVED = "The cluster serves no Kueue (kueue.x-k8s.io v1beta1 or v1beta2). Install Kueue there, or switch this off."


@register(OWNER_KIND, lease_seconds=120)
def reconcile(item: Claimed) -> Outcome:
    """Bring one cluster's Kueue (``object_id`` is the cluster's) to what its row says."""
    with system_scope("reconcile kueue"):
        row = ClusterQueueing.objects.select_related("cluster").filter(cluster_id=item.object_id).first()
    if row is None or row.cluster.mode != Cluster.Mode.MANAGE or row.cluster.abandoned_at is not None:
        return Done()
    if not row.enabled and not row.draining:
        return Done()
    try:
        client = KubeClient.for_cluster(row.cluster)
        api = _served(client)
        if not api:
            return _unserved(item, row)
        return _bring(item, row, api, client) if row.enabled else _drain(item, row, api, client)
    except Superseded:
        return RetryAfter(1, "a newer generation was applied meanwhile")
    except ClusterPaused as error:
        return _said(item, row, "False", "Paused", error.sentence, RetryAfter(RETRY_SECONDS, error.sentence))
    except Forbidden as error:
        message = f"{error.sentence} Bind the ClusterRole aifactory-kueue (deploy/clusterroles/kueue.yaml)."
        return _said(item, row, "False", error.reason, message, RetryAfter(RETRY_SECONDS, message))
    except KubeError as error:
        _said(item, row, "False", error.reason, error.sentence, Done())
        raise


def _served(client: KubeClient) -> str:
    """The version of Kueue's API that the cluster serves; "" where it serves none that we speak."""
    for api in VERSIONS:
        try:
            client.list_all(api, "ClusterQueue", metadata_only=True)
        except (ApiMissing, NotFound):
            continue
        return api
    return ""


def _unserved(item: Claimed, row: ClusterQueueing) -> Outcome:
    if row.draining:  # with the CRDs all objects of theirs are gone
        return _ended(item, row)
    return _said(item, row, "False", "NotServed", NOT_SERVED, RetryAfter(RETRY_SECONDS, NOT_SERVED), queues={})


def _manifests(row: ClusterQueueing, api: str, *, draining: bool = False) -> tuple[list[Manifest], dict[str, str]]:
    """What to apply, and namespace → tenant of those with a LocalQueue."""
    with system_scope("reconcile kueue"):
        types, tenants = type_facts(row.cluster_id), tenant_facts(row.cluster_id)
    made = manifests(api, types, tenants, draining=draining)
    spaces = {name: tenant.slug for tenant in tenants for name in tenant.namespaces} if made else {}
    return list(made), spaces


def _owner(row: ClusterQueueing, generation: int) -> Owner:
    return Owner(OWNER_KIND, row.cluster_id, None, generation)


def _bring(item: Claimed, row: ClusterQueueing, api: str, client: KubeClient) -> Outcome:
    wanted, spaces = _manifests(row, api)
    generation = row.generation
    if _applied(row) - {ObjectKey.of(each) for each in wanted}:
        generation += 1  # what is not wanted any more is pruned: it is of an older generation then
    report = inventory_apply(
        item=item, cluster=row.cluster, owner=_owner(row, generation), manifests=wanted, force=FORCE
    )
    states = _states(client, api, set(spaces.values()))
    bad = [f"{name}: {state.reason} {state.message}".strip() for name, state in states.items() if state.active is False]
    silent = [name for name, state in states.items() if state.active is None]
    said: tuple[Status, str, str]
    if bad:
        said = ("False", "QueueInactive", "; ".join(bad))
    elif silent:
        said = ("Unknown", "NotSeenYet", f"Kueue's controller has said nothing yet of {', '.join(sorted(silent))}.")
    else:
        said = ("True", "Applied", f"{len(states)} queues, {sum(state.pending for state in states.values())} wait.")
    outcome: Outcome = RetryAfter(RETRY_SECONDS, said[2]) if bad or silent or report.remaining else Done()
    status, reason, message = said
    return _said(item, row, status, reason, message, outcome, queues=spaces, api=api, generation=generation)


def _drain(item: Claimed, row: ClusterQueueing, api: str, client: KubeClient) -> Outcome:
    generation = row.generation
    if any(key.kind == "LocalQueue" for key in _applied(row)):
        wanted, spaces = _manifests(row, api, draining=True)
        inventory_apply(item=item, cluster=row.cluster, owner=_owner(row, generation), manifests=wanted, force=FORCE)
        states = _states(client, api, set(spaces.values()))
        busy = sorted(f"{name} ({state.admitted})" for name, state in states.items() if not state.empty)
        if busy:
            return _drains(item, row, f"Waits until what was admitted has ended: {', '.join(busy)}.", generation)
        generation += 1
        closed = inventory_apply(
            item=item,
            cluster=row.cluster,
            owner=_owner(row, generation),
            manifests=[each for each in wanted if each["kind"] != "LocalQueue"],
            force=FORCE,
        )
        if closed.remaining:
            one = closed.remaining[0]
            return _drains(item, row, f"Waits until {one.key} is gone: {one.why}.", generation)
    gone = inventory_delete(item=item, cluster=row.cluster, owner=_owner(row, generation))
    if not gone.done:
        one = gone.remaining[0]
        return _drains(item, row, f"Waits until {one.key} is gone: {one.why}.", generation)
    return _ended(item, row)


def _applied(row: ClusterQueueing) -> set[ObjectKey]:
    """What our books say is there of this owner's."""
    rows = applied_by(OWNER_KIND, row.cluster_id, row.cluster_id)
    return {ObjectKey(one.api_version, one.kind, one.namespace, one.name) for one in rows}


def _drains(item: Claimed, row: ClusterQueueing, message: str, generation: int) -> Outcome:
    outcome = RetryAfter(DRAIN_SECONDS, message)
    return _said(item, row, "False", "Draining", message, outcome, queues={}, generation=generation)


def _states(client: KubeClient, api: str, tenants: set[str]) -> dict[str, QueueState]:
    ours = {queue_name(slug) for slug in tenants}
    listed = client.list_all(api, "ClusterQueue").items
    return {one["metadata"]["name"]: read_queue(one) for one in listed if one["metadata"]["name"] in ours}


def _ended(item: Claimed, row: ClusterQueueing) -> Outcome:
    with item.fenced():
        now = ClusterQueueing.objects.select_for_update().get(pk=row.pk)
        if not now.enabled and now.generation == row.generation:
            now.draining, now.queues, now.conditions = False, {}, []
            now.generation += 2
            now.observed_generation = now.generation
            now.save(update_fields=["draining", "queues", "conditions", "generation", "observed_generation"])
    return Done()


def _said(
    item: Claimed,
    row: ClusterQueueing,
    status: Status,
    reason: str,
    message: str,
    outcome: Outcome,
    *,
    queues: dict[str, str] | None = None,
    api: str = "",
    generation: int = 0,
) -> Outcome:
    with item.fenced():
        now = ClusterQueueing.objects.select_for_update().get(pk=row.pk)
        now.conditions = set_condition(
            now.conditions, Condition("Ready", status, reason, message, observed_generation=row.generation)
        )
        if queues is not None:
            now.queues = queues
        now.api_version = api or now.api_version
        now.generation = max(now.generation, generation)
        now.observed_generation = max(now.observed_generation, row.generation)
        now.save(update_fields=["conditions", "queues", "api_version", "generation", "observed_generation"])
    return outcome
