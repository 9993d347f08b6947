"""Reconciler ``namespace``: the bundle of a tenant's namespace on a cluster, and the parts of its quotas there."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from infra.kube.apply import Owner, force_fields
from infra.kube.client import KubeClient
from infra.kube.errors import ClusterPaused, KubeError
from infra.models import Cluster
from infra.quantity import parse_quantity
from infra.services.inventory import Superseded, inventory_apply
from portal.kernel.conditions import Condition, set_condition
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import Claimed, Done, Outcome, RetryAfter, register
from tenants.bundle import OWNER_KIND, QUOTA_NAME, BundleFacts, Manifest, namespace_bundle
from tenants.models import QuotaAllotment, TenantNamespace
from tenants.selectors.namespaces import gpu_resources_allowed
from tenants.services.allotments import allotments_confirmed, allotments_settle, quota_locked
from tenants.services.waking import deployments_wake

# The bundle is the platform's: what somebody else changed in it is taken back, and named in the condition.
FORCE = force_fields(".spec", ".metadata.labels", ".rules", ".subjects", ".roleRef")
RETRY_SECONDS = 30.0
ENFORCED_SECONDS = 1.0


@dataclass(frozen=True)
class _Wanted:
    """The namespace at one moment: what to apply, and what its quota will then confirm."""

    cluster: Cluster
    name: str
    tenant_id: UUID
    generation: int
    manifests: list[Manifest]
    targets: dict[UUID, int]


def _stalled(item: Claimed, message: str) -> None:
    with system_scope("namespace stalled"):
        row = TenantNamespace.objects.filter(pk=item.object_id).first()
        if row is not None:
            _say(row, "False", "Stalled", message)


@register(OWNER_KIND, lease_seconds=120, on_stalled=_stalled)
def reconcile(item: Claimed) -> Outcome:
    """Apply the bundle; done when the API server enforces the quota that was written."""
    wanted = _load(item)
    if wanted is None:
        _give_back(item)
        return Done()
    owner = Owner(OWNER_KIND, item.object_id, wanted.tenant_id, wanted.generation)
    try:
        report = inventory_apply(
            item=item, cluster=wanted.cluster, owner=owner, manifests=wanted.manifests, force=FORCE
        )
        enforced = _quota_is_enforced(wanted)
    except Superseded:
        return RetryAfter(1, "a newer generation was applied meanwhile")
    except ClusterPaused as error:
        return _failed(item, "Paused", error.sentence)
    except KubeError as error:
        _failed(item, type(error).__name__, error.sentence)
        raise
    taken_back = ", ".join(sorted({conflict.manager for each in report.forced.values() for conflict in each}))
    with item.fenced():
        # Quota rows before the namespace's: whoever places takes them in this order too.
        shrank = enforced and allotments_confirmed(
            tenant_id=wanted.tenant_id,
            cluster_id=wanted.cluster.pk,
            namespace=wanted.name,
            targets=wanted.targets,
        )
        row = TenantNamespace.objects.select_for_update().get(pk=item.object_id)
        if not enforced:
            _say(
                row,
                "False",
                "QuotaNotEnforced",
                "The cluster has not yet taken up the namespace's ResourceQuota.",
            )
            return RetryAfter(ENFORCED_SECONDS, "waiting until the ResourceQuota is enforced")
        row.observed_generation = max(row.observed_generation, wanted.generation)
        row.save(update_fields=["observed_generation"])
        message = f"Changes by {taken_back} were taken back." if taken_back else ""
        _say(row, "True", "Applied", message)
        if shrank:
            deployments_wake(tenant_id=wanted.tenant_id)
    return Done()


def _give_back(item: Claimed) -> None:
    """Of a cluster that was given up nothing is confirmed any more: its parts count no longer, the quota is free."""
    with item.fenced():
        row = TenantNamespace.objects.filter(pk=item.object_id, cluster__abandoned_at__isnull=False).first()
        if row is None:
            return
        allotments_settle(tenant_id=row.tenant_id, cluster_id=row.cluster_id)
        parts = QuotaAllotment.objects.filter(tenant_id=row.tenant_id, cluster_id=row.cluster_id, namespace=row.name)
        targets = dict(parts.values_list("pk", "target"))
        if allotments_confirmed(
            tenant_id=row.tenant_id, cluster_id=row.cluster_id, namespace=row.name, targets=targets
        ):
            deployments_wake(tenant_id=row.tenant_id)


def _load(item: Claimed) -> _Wanted | None:
    with system_scope("reconcile namespace"):
        row = TenantNamespace.objects.select_related("tenant", "cluster__site").filter(pk=item.object_id).first()
        if row is None or row.cluster.mode != Cluster.Mode.MANAGE or row.cluster.abandoned_at is not None:
            return None
        parts = list(
            QuotaAllotment.objects.filter(tenant=row.tenant, cluster=row.cluster, namespace=row.name)
            .select_related("quota")
            .order_by("id")
        )
        quota_locked(row.tenant_id, [part.quota.gpu_type_id for part in parts])
        for part in parts:
            part.refresh_from_db(fields=["amount", "target"])
        facts = BundleFacts(
            tenant_slug=row.tenant.slug,
            tenant_id=row.tenant_id,
            namespace_id=row.pk,
            namespace=row.name,
            gpu_resources=gpu_resources_allowed(row, parts),
        )
        return _Wanted(
            cluster=row.cluster,
            name=row.name,
            tenant_id=row.tenant_id,
            generation=row.generation,
            manifests=namespace_bundle(facts),
            targets={part.pk: part.target for part in parts},
        )


def _quota_is_enforced(wanted: _Wanted) -> bool:
    """A ResourceQuota holds only once the cluster's controller has copied it into ``status.hard``."""
    live = KubeClient.for_cluster(wanted.cluster).get("v1", "ResourceQuota", QUOTA_NAME, wanted.name)
    hard = (live.get("status") or {}).get("hard") or {}
    written = next(each for each in wanted.manifests if each["kind"] == "ResourceQuota")["spec"]["hard"]
    return all(key in hard and parse_quantity(hard[key]) == parse_quantity(value) for key, value in written.items())


def _failed(item: Claimed, reason: str, message: str) -> Outcome:
    with item.fenced():
        _say(TenantNamespace.objects.select_for_update().get(pk=item.object_id), "False", reason, message)
    return RetryAfter(RETRY_SECONDS, message)


def _say(row: TenantNamespace, status: str, reason: str, message: str) -> None:
    condition = Condition(
        "Ready", "True" if status == "True" else "False", reason, message, observed_generation=row.generation
    )
    row.conditions = set_condition(row.conditions, condition)
    row.save(update_fields=["conditions"])
