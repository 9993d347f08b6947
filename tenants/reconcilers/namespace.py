"""Reconciler ``namespace``: the bundle of a tenant's namespace on a cluster, and the parts of its quotas there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet

from infra.adapters.admission import namespace_annotations, quota_annotation
from infra.kube.apply import Owner, force_fields
from infra.kube.client import KubeClient
from infra.kube.errors import ClusterPaused, KubeError, NotFound
from infra.models import Cluster
from infra.quantity import parse_quantity
from infra.services.inventory import ApplyReport, Superseded, inventory_apply
from portal.kernel.conditions import Condition, set_condition
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import Claimed, Done, Outcome, RetryAfter, register
from tenants.bundle import OWNER_KIND, QUOTA_NAME, BundleFacts, Manifest, namespace_bundle, resource_quota
from tenants.models import QuotaAllotment, TenantNamespace
from tenants.quota_keys import WrongQuotaKeys
from tenants.selectors.namespaces import gpu_limits
from tenants.services.allotments import allotments_confirmed, allotments_given_up, allotments_settle, quota_locked
from tenants.services.queueing import queueing_mark
from tenants.services.waking import deployments_wake

# The bundle is the platform's: what somebody else changed in it is taken back, and named in the condition.
FORCE = force_fields(".spec", ".metadata.labels", ".metadata.annotations", ".rules", ".subjects", ".roleRef")
RETRY_SECONDS = 30.0
ENFORCED_SECONDS = 1.0
OVERUSED_SECONDS = 5.0


@dataclass(frozen=True)
class _Wanted:
    """The namespace at one moment: what to apply, and what its quota will then confirm."""

    cluster: Cluster
    name: str
    tenant_id: UUID
    generation: int
    facts: BundleFacts
    hard: Mapping[str, str]
    targets: dict[UUID, int]

    def manifests(self, *, quota_enforced: bool) -> list[Manifest]:
        """The bundle. Until its quota is enforced the namespace is closed to pods that ask for cards."""
        annotations = {**self.facts.annotations, **quota_annotation(quota_enforced)}
        return namespace_bundle(replace(self.facts, annotations=annotations))


def _stalled(item: Claimed, message: str) -> None:
    with system_scope("namespace stalled"):
        row = TenantNamespace.objects.filter(pk=item.object_id).first()
        if row is not None:
            _say(row, "False", "Stalled", message)


@register(OWNER_KIND, lease_seconds=120, on_stalled=_stalled)
def reconcile(item: Claimed) -> Outcome:
    """Apply the bundle; done when the API server enforces the quota that was written."""
    try:
        wanted = _load(item)
    except WrongQuotaKeys as error:
        return _failed(item, "WrongQuotaKey", f"Its ResourceQuota is not written: {error}")
    if wanted is None:
        _give_back(item)
        return Done()
    owner = Owner(OWNER_KIND, item.object_id, wanted.tenant_id, wanted.generation)

    def apply(*, quota_enforced: bool) -> ApplyReport:
        manifests = wanted.manifests(quota_enforced=quota_enforced)
        return inventory_apply(item=item, cluster=wanted.cluster, owner=owner, manifests=manifests, force=FORCE)

    try:
        open_before = _quota_seen(wanted).counted
        report = apply(quota_enforced=open_before)
        quota = _quota_seen(wanted)
        if quota.enforced and not open_before:
            apply(quota_enforced=True)
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
        # Where more is used than the lowered figure, what is used counts on: nothing of it may be had elsewhere yet.
        shrank = (
            quota.enforced
            and not quota.overused
            and allotments_confirmed(
                tenant_id=wanted.tenant_id,
                cluster_id=wanted.cluster.pk,
                namespace=wanted.name,
                targets=wanted.targets,
            )
        )
        row = TenantNamespace.objects.select_for_update().get(pk=item.object_id)
        if not quota.enforced:
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
        if quota.overused:
            over = f"Pods there use more than the lowered quota: {quota.overused}. It counts until they have ended."
            message = f"{over} {message}"
        _say(row, "True", "QuotaOverused" if quota.overused else "Applied", message.strip())
        if shrank:
            deployments_wake(tenant_id=wanted.tenant_id)
        queueing_mark(wanted.cluster)
        if quota.overused and any(part.target < part.amount for part in _parts(row)):
            return RetryAfter(OVERUSED_SECONDS, message)
    return Done()


def _give_back(item: Claimed) -> None:
    """Of a cluster that was given up nothing is confirmed any more: its parts count no longer, the quota is free."""
    with item.fenced():
        row = TenantNamespace.objects.filter(pk=item.object_id, cluster__abandoned_at__isnull=False).first()
        if row is None:
            return
        allotments_settle(tenant_id=row.tenant_id, cluster_id=row.cluster_id)
        if allotments_given_up(tenant_id=row.tenant_id, cluster_id=row.cluster_id, namespace=row.name):
            deployments_wake(tenant_id=row.tenant_id)


def _parts(row: TenantNamespace) -> QuerySet[QuotaAllotment]:
    return QuotaAllotment.objects.filter(tenant_id=row.tenant_id, cluster_id=row.cluster_id, namespace=row.name)


def _load(item: Claimed) -> _Wanted | None:
    with system_scope("reconcile namespace"):
        row = TenantNamespace.objects.select_related("tenant", "cluster__site").filter(pk=item.object_id).first()
        if row is None or row.cluster.mode != Cluster.Mode.MANAGE or row.cluster.abandoned_at is not None:
            return None
        if row.deleting_at is not None:  # its tenant cluster is being deleted, and takes it along
            return None
        parts = list(_parts(row).select_related("quota__gpu_type").order_by("id"))
        quota_locked(row.tenant_id, [part.quota.gpu_type_id for part in parts])
        for part in parts:
            part.refresh_from_db(fields=["amount", "target"])
        limits = gpu_limits(row, parts)
        facts = BundleFacts(
            tenant_slug=row.tenant.slug,
            tenant_id=row.tenant_id,
            namespace_id=row.pk,
            namespace=row.name,
            people=row.purpose == TenantNamespace.Purpose.DEPLOYMENTS,
            gpu_resources=limits.resources,
            hami=limits.hami,
            limits=row.tenant.namespace_limits,
            annotations=_what_it_may_run(row),
        )
        return _Wanted(
            cluster=row.cluster,
            name=row.name,
            tenant_id=row.tenant_id,
            generation=row.generation,
            facts=facts,
            hard=resource_quota(facts)["spec"]["hard"],
            targets={part.pk: part.target for part in parts},
        )


def _what_it_may_run(row: TenantNamespace) -> dict[str, str]:
    """For the cluster's admission policies, which hold every pod of the namespace against it."""
    tenant_cluster = row.purpose == TenantNamespace.Purpose.TENANT_CLUSTER
    return namespace_annotations(
        registries=row.tenant.image_registries,
        pin_digests=row.tenant.pin_image_digests,
        allow_remote_code=row.tenant.allow_remote_code,
        platform_images=settings.AIF_PLATFORM_IMAGES if tenant_cluster else (),
    )


@dataclass(frozen=True)
class QuotaSeen:
    """What the API server says of the namespace's ResourceQuota.

    ``counted``: pods are counted against every key that we write, whatever the figures. ``enforced``: the figures are
    those that we write. ``overused``: what is over them (``requests.nvidia.com/gpu 4 of 3``).
    """

    counted: bool = False
    enforced: bool = False
    overused: str = ""


def _quota_seen(wanted: _Wanted) -> QuotaSeen:
    """It holds only once the cluster's controller has copied it into ``status.hard``. Lowering ends no pods, and one
    may have been admitted a moment before: only ``status.used`` tells.
    """
    try:
        live = KubeClient.for_cluster(wanted.cluster).get("v1", "ResourceQuota", QUOTA_NAME, wanted.name)
    except NotFound:
        return QuotaSeen()
    status = live.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    over = [
        f"{key} {used[key]} of {value}"
        for key, value in wanted.hard.items()
        if "nvidia.com/" in key and key in used and parse_quantity(used[key]) > parse_quantity(value)
    ]
    return QuotaSeen(
        counted=all(key in hard for key in wanted.hard),
        enforced=all(
            key in hard and parse_quantity(hard[key]) == parse_quantity(value) for key, value in wanted.hard.items()
        ),
        overused=", ".join(over),
    )


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
