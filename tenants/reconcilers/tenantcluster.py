"""Reconciler ``tenantcluster``: namespace → apply → pause or resume → observe → look inside; or remove, until nothing
is left.

No transaction is open while a cluster is asked; the state is written behind the fencing token. A host that does not
answer leaves the last state standing.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.adapters.vcluster_rules import ValuesRefused
from infra.adapters.vcluster_state import SecretRefused
from infra.kube.apply import Owner
from infra.kube.client import KubeClient
from infra.kube.errors import KubeError, Retryable
from infra.services.inventory import Superseded, inventory_delete
from portal.kernel.clock import utcnow
from portal.kernel.problems import Conflict
from portal.kernel.scoping import system_scope
from portal.kernel.ticks import every
from portal.kernel.workqueue import Claimed, Done, Mark, Outcome, RetryAfter, is_claimed, mark_many, register
from tenants.bundle import OWNER_KIND as NAMESPACE_KIND
from tenants.models import QuotaAllotment, TenantCluster, TenantNamespace
from tenants.selectors.tenantclusters import access_of
from tenants.services import tenantcluster_state as state
from tenants.services.allotments import quota_locked
from tenants.tenantclusters.access import Access
from tenants.tenantclusters.flux import FluxProvisioner
from tenants.tenantclusters.inside import InsideView, apply_access, look, way_in
from tenants.tenantclusters.phases import Judged, Seen, judge
from tenants.tenantclusters.provisioner import OWNER_KIND, HostView, Left, Provisioner, Wish
from tenants.tenantclusters.wishes import wish_of

LOOK_EVERY_SECONDS = 60
RAN = (TenantCluster.Phase.READY, TenantCluster.Phase.DEGRADED, TenantCluster.Phase.UPGRADING)
"""Phases after which something missing is a fault, and not a beginning (as it is after a pause)."""
SETTLED = (*RAN, TenantCluster.Phase.PAUSED)
WHILE_MOVING = 3.0
WHILE_FAILING = 15.0
WHILE_UNREACHABLE = 30.0
WHILE_REFUSED = 60.0


@dataclass(frozen=True)
class View:
    """The rows that a run works from, as of its start. ``namespace`` is ``None`` where it is gone."""

    row: TenantCluster
    namespace: TenantNamespace | None
    wish: Wish
    access: Access


def provisioner() -> Provisioner:
    """The backend that makes tenant clusters."""
    return FluxProvisioner()


@every(LOOK_EVERY_SECONDS, "tenants.tenantclusters")
def look_at_all() -> None:
    """Have every tenant cluster looked at: what the host refuses is told inside only, and nothing watches there."""
    with system_scope("tenant clusters"):
        rows = TenantCluster.objects.filter(deleted_at__isnull=True).values_list("pk", "cluster_id", "tenant_id")
        mark_many([Mark(OWNER_KIND, pk, cluster_id, tenant_id, "resync") for pk, cluster_id, tenant_id in rows])


def _stalled(item: Claimed, message: str) -> None:
    with system_scope("stalled"):
        state.tenant_cluster_trouble(item.object_id, "Stalled", message)


@register(OWNER_KIND, lease_seconds=180, on_stalled=_stalled)
def reconcile(item: Claimed) -> Outcome:
    """Bring one tenant cluster to what its row says."""
    try:
        view = _view(item)
        if view is None:
            return Done()
        if view.row.cluster.abandoned_at is not None:
            return _given_up(item, view)
        return _remove(item, view) if view.row.deleting_at is not None else _bring(item, view)
    except Superseded:
        return RetryAfter(1, "a newer generation was applied meanwhile")
    except (ValuesRefused, Conflict) as error:
        # A setting of the platform is wrong; it is looked at again, as nothing marks when a setting changes.
        with item.fenced():
            state.tenant_cluster_trouble(item.object_id, "SettingsRefused", str(error))
        return RetryAfter(WHILE_REFUSED, str(error))
    except KubeError as error:
        with item.fenced():
            state.tenant_cluster_unreached(item.object_id, error)
        if isinstance(error, Retryable):
            return RetryAfter(max(error.retry_after or 0.0, WHILE_UNREACHABLE), error.sentence)
        return RetryAfter(WHILE_REFUSED, error.sentence)


def _view(item: Claimed) -> View | None:
    with system_scope("tenant cluster"):
        row = (
            TenantCluster.objects.select_related("tenant", "cluster__site")
            .filter(pk=item.object_id, deleted_at__isnull=True)
            .first()
        )
        if row is None:
            return None
        namespace = TenantNamespace.objects.filter(
            tenant_id=row.tenant_id, cluster_id=row.cluster_id, name=row.namespace
        ).first()
        parts = list(
            QuotaAllotment.objects.filter(tenant_id=row.tenant_id, cluster_id=row.cluster_id, namespace=row.namespace)
            .select_related("quota__gpu_type")
            .order_by("id")
        )
        quota_locked(row.tenant_id, [part.quota.gpu_type_id for part in parts])
        for part in parts:
            part.refresh_from_db(fields=["amount", "target"])
        return View(row, namespace, wish_of(row, namespace, parts), access_of(row))


# ---- making and keeping -----------------------------------------------------------------------------------------


def _bring(item: Claimed, view: View) -> Outcome:
    row, namespace, wish = view.row, view.namespace, view.wish
    prepared = namespace is not None and namespace.observed_generation >= namespace.generation
    # What runs already asks for nothing more of the namespace's quota when it is applied again.
    if not prepared and row.observed_generation == 0:
        message = f"Waits for namespace {row.namespace} on {row.cluster.slug} to be prepared."
        with item.fenced():
            state.tenant_cluster_waits(row.pk, "WaitingForNamespace", message)
        return RetryAfter(WHILE_MOVING, message)
    backend = provisioner()
    report = backend.apply(item, wish, suspect_drift=row.phase in SETTLED)
    client = KubeClient.for_cluster(row.cluster)
    move = backend.pause if wish.paused else backend.resume
    moved = move(item, client, wish) == "done"
    host = backend.observe(client, wish)
    inside, ca_pem, unreached = (None, "", ("", "")) if wish.paused else _look_inside(item, view, host)
    seen = Seen(host, inside, unreached, moved)
    judged = judge(
        seen,
        generation=row.generation,
        was_ready=row.phase in RAN,
        paused=wish.paused,
        upgrading=bool(row.running_chart) and row.running_chart != row.chart_version,
    )
    with item.fenced():
        running = row.chart_version if judged.phase == TenantCluster.Phase.READY else ""
        state.tenant_cluster_seen(row.pk, row.generation, judged, chart=running, inside=inside, ca_pem=ca_pem)
        if inside is not None:
            state.robots_applied(row.pk, sorted(view.access.robots))
    return _next_look(judged, moved and not report.remaining)


def _next_look(judged: Judged, moved: bool) -> Outcome:
    if judged.settled and moved:
        return Done()
    failing = judged.phase == TenantCluster.Phase.DEGRADED
    return RetryAfter(WHILE_FAILING if failing else WHILE_MOVING, judged.message)


def _look_inside(item: Claimed, view: View, host: HostView) -> tuple[InsideView | None, str, tuple[str, str]]:
    """What its API server tells, after roles and robots there were brought up to date; else why it was not asked."""
    row = view.row
    if host.secret is None:
        return None, "", ("NoSecret", "The Secret with the way in is not there yet.")
    if host.control_plane is None or not host.control_plane.is_ready:
        return None, "", ("", "")
    try:
        with way_in(host.secret, host=row.cluster, name=row.name, endpoint=row.endpoint) as (client, ca_pem):
            apply_access(item, client, view.access)
            return look(client), ca_pem, ("", "")
    except SecretRefused as error:
        return None, "", (error.reason, str(error))
    except KubeError as error:
        # Its own API server does not answer: that is not the host's silence, so the rest of what was seen stands.
        return None, "", (error.reason, error.sentence)


# ---- removing ---------------------------------------------------------------------------------------------------


def _remove(item: Claimed, view: View) -> Outcome:
    row = view.row
    client = KubeClient.for_cluster(row.cluster)
    client.require_identity()
    left = provisioner().remove(item, client, view.wish)
    # What only an administrator of the host can delete does not keep the namespace from going.
    if not any(one.ours for one in left):
        left += _namespace_left(item, view)
    if left:
        told = [str(one) for one in left]
        with item.fenced():
            state.tenant_cluster_leaving(row.pk, told)
        return RetryAfter(WHILE_MOVING if any(one.ours for one in left) else WHILE_REFUSED, told[0])
    with item.fenced():
        state.tenant_cluster_ended(row.pk)
    return Done()


def _namespace_left(item: Claimed, view: View) -> list[Left]:
    """Delete the namespace with its bundle; empty when the host answered 404 for all of it."""
    namespace = view.namespace
    if namespace is None:
        return []
    if namespace.deleting_at is None:
        with item.fenced():  # from now on its own reconciler leaves it alone
            TenantNamespace.objects.filter(pk=namespace.pk).update(deleting_at=utcnow())
    if is_claimed(NAMESPACE_KIND, namespace.pk):
        # It began before and does not know: it would make again what is deleted under its hands.
        return [Left(f"Namespace {namespace.name}", "it is still being prepared")]
    owner = Owner(NAMESPACE_KIND, namespace.pk, namespace.tenant_id, namespace.generation)
    report = inventory_delete(item=item, cluster=view.row.cluster, owner=owner)
    return [Left(str(one.key), one.why) for one in report.remaining]


def _given_up(item: Claimed, view: View) -> Outcome:
    """The host was abandoned: nothing is asked of it any more, and what was there is listed."""
    with item.fenced():
        leftovers = [f"namespace {view.row.namespace} with all in it, on the abandoned cluster {view.row.cluster.slug}"]
        state.tenant_cluster_ended(view.row.pk, leftovers)
    return Done()
