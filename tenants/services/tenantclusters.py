"""Asking for tenant clusters and changing them. Nothing here speaks to a cluster: the reconciler does.

A request hands a part of the tenant's quotas over: it counts as admitted from then on, whatever runs inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from infra import isolation
from infra.models import Cluster, GPUType, NamespaceClaim, NodePool
from infra.models.hardware import SharingMode
from infra.services.changes import lock_changes
from infra.services.claims import namespace_claim_set
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.problems import Conflict, Forbidden, Invalid, NotFound
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.models import GPUQuota, Tenant, TenantCluster, TenantNamespace
from tenants.permissions import Perm, may, require
from tenants.selectors.zones import kept_for_others
from tenants.services.allotments import CARD, QuotaExceeded, allotment_fix, cards, quota_locked, require_type_there
from tenants.tenantclusters import profile
from tenants.tenantclusters.provisioner import OWNER_KIND

SYSTEM = Actor.system("tenant clusters")


def may_request(actor: Actor, tenant: Tenant) -> bool:
    """Whether the actor may ask for tenant clusters: platform-admins, and owners where the platform lets them."""
    if may(actor, Perm.TENANT_MANAGE):
        return True
    return settings.AIF_TENANT_CLUSTER_SELF_SERVICE and may(actor, Perm.CLUSTER_MANAGE, tenant)


def tenant_cluster_request(
    *,
    tenant: Tenant,
    cluster: Cluster,
    allotments: Mapping[str, int],
    version: str = "",
    endpoint: str = "",
    actor: Actor,
) -> TenantCluster:
    """Have a tenant cluster made on a host cluster.

    Args:
        allotments: GPU type's slug → millionths of a card, whole cards; handed over to it at once.
        version: a Kubernetes version on offer; empty: the newest.
        endpoint: its address, for platform-admins; empty: by the platform's pattern.

    Raises:
        Forbidden: neither a platform-admin nor an owner who may.
        Invalid: a value is wrong. Conflict: there is one, the host can't take it, or the quota does not hold it.
    """
    require(actor, Perm.CLUSTER_MANAGE, tenant)
    _require_request(actor, tenant)
    wanted = _offered(version)
    address = _endpoint(endpoint, tenant, cluster, actor)
    with system_scope("tenant_cluster_request"):
        tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        _require_host(tenant, Cluster.objects.select_related("site").get(pk=cluster.pk), address)
        if TenantCluster.objects.filter(tenant=tenant, cluster=cluster, deleted_at__isnull=True).exists():
            raise Conflict(
                f"Tenant {tenant.slug} has a tenant cluster on {cluster.slug} already; it may have one on each host "
                "cluster. One that is being deleted must be gone first."
            )
        row = TenantCluster(
            tenant=tenant,
            cluster=cluster,
            name=tenant.slug,
            endpoint=address,
            kubernetes_version=wanted.kubernetes,
            chart_version=wanted.chart,
            requested_by=actor.label[:150],
        )
        _hand_over(row, allotments)
        row.save(force_insert=True)
        _record("tenant_cluster_request", row, actor, after=_facts(row) | {"allotments": _told(allotments)})
        return row


def tenant_cluster_upgrade(*, row: TenantCluster, version: str, actor: Actor) -> TenantCluster:
    """Have it run another version on offer, at most one minor version further.

    Raises:
        Invalid: not on offer, older, or too far. Conflict: it is paused, being deleted, or not yet where it was sent.
    """
    require(actor, Perm.CLUSTER_MANAGE, row.tenant)
    wanted = _offered(version)
    with tenant_scope(row.tenant_id):
        row = _alive(row)
        now = profile.Version(row.kubernetes_version, row.chart_version)
        if refusal := profile.why_not(now, wanted):
            raise Invalid.field("/version", refusal)
        if row.desired == TenantCluster.Desired.PAUSED:
            raise Conflict(f"The tenant cluster on {row.cluster.slug} is paused. Resume it first, then upgrade.")
        if row.running_chart != row.chart_version:
            raise Conflict(
                f"The tenant cluster on {row.cluster.slug} does not run {now} yet. Wait until it does, or have it "
                "tried again."
            )
        before = _facts(row)
        row.kubernetes_version, row.chart_version = wanted.kubernetes, wanted.chart
        _changed(row, "kubernetes_version", "chart_version")
        _record("tenant_cluster_upgrade", row, actor, before=before, after=_facts(row))
        return row


def tenant_cluster_pause(*, row: TenantCluster, actor: Actor) -> TenantCluster:
    """Stop its API server and its pods. What is stored stays, and so does what it was given of the quota."""
    return _desire(row, TenantCluster.Desired.PAUSED, "tenant_cluster_pause", actor)


def tenant_cluster_resume(*, row: TenantCluster, actor: Actor) -> TenantCluster:
    """Start it again; it brings its pods back."""
    return _desire(row, TenantCluster.Desired.RUNNING, "tenant_cluster_resume", actor)


def tenant_cluster_retry(*, row: TenantCluster, actor: Actor) -> TenantCluster:
    """Have the provisioner forget its failures and try again (after the cause is gone)."""
    require(actor, Perm.CLUSTER_MANAGE, row.tenant)
    with tenant_scope(row.tenant_id):
        row = _alive(row)
        row.retry_at = utcnow()
        _changed(row, "retry_at")
        _record("tenant_cluster_retry", row, actor)
        return row


def tenant_cluster_delete(*, row: TenantCluster, actor: Actor) -> TenantCluster:
    """Have it deleted with all that is in it. It is gone when the host answered 404 for every object of it.

    Asking again is no fault.
    """
    require(actor, Perm.CLUSTER_MANAGE, row.tenant)
    _require_request(actor, row.tenant)
    with tenant_scope(row.tenant_id):
        row = _locked(row)
        if row.deleting_at is not None:
            return row
        row.deleting_at, row.phase = utcnow(), TenantCluster.Phase.DELETING
        _changed(row, "deleting_at", "phase")
        _record("tenant_cluster_delete", row, actor, before=_facts(row))
        return row


def access_changed(tenant: Tenant) -> None:
    """People, groups or the state of a tenant changed: have the access inside its clusters brought up to date.

    Call it in the transaction of the change, in a scope of the tenant.
    """
    rows = TenantCluster.objects.filter(tenant=tenant, deleted_at__isnull=True)
    workqueue.mark_many(workqueue.Mark(OWNER_KIND, row.pk, row.cluster_id, row.tenant_id) for row in rows)


# ---- checks -----------------------------------------------------------------------------------------------------


def _require_request(actor: Actor, tenant: Tenant) -> None:
    if not may_request(actor, tenant):
        raise Forbidden(
            "On this platform tenant clusters are made and deleted by platform-admins. Ask one "
            "(or have AIF_TENANT_CLUSTER_SELF_SERVICE set)."
        )


def _offered(version: str) -> profile.Version:
    offered = profile.versions()
    if not version:
        return offered[-1]
    found = next((one for one in reversed(offered) if one.kubernetes == version.removeprefix("v")), None)
    if found is None:
        names = ", ".join(one.kubernetes for one in offered)
        raise Invalid.field("/version", f"Kubernetes {version} is not on offer. Choose one of: {names}.")
    return found


def _endpoint(endpoint: str, tenant: Tenant, cluster: Cluster, actor: Actor) -> str:
    if endpoint:
        require(actor, Perm.TENANT_MANAGE)
        return profile.checked_endpoint(endpoint)
    found = profile.endpoint_for(tenant.slug, cluster.slug)
    if not found:
        raise Conflict(
            "No address for tenant clusters is set on this platform (AIF_TENANT_CLUSTER_ENDPOINT). A platform-admin "
            "sets it, or names an endpoint at the request."
        )
    return profile.checked_endpoint(found)


def _require_host(tenant: Tenant, cluster: Cluster, endpoint: str) -> None:
    """The host is managed, not given up, at a site that the tenant may use, and keeps tenants apart; nobody else has
    the endpoint."""
    if cluster.abandoned_at is not None:
        raise Conflict(f"Cluster {cluster.slug} was abandoned. Choose another one.")
    if cluster.mode != Cluster.Mode.MANAGE:
        raise Conflict(f"Cluster {cluster.slug} is only observed: the portal makes nothing there. Choose another one.")
    if not tenant.sites.filter(pk=cluster.site_id).exists():
        raise Conflict(
            f"Tenant {tenant.slug} may not use site {cluster.site.slug}, where cluster {cluster.slug} is. A "
            "platform-admin can allow the site."
        )
    hami = NodePool.objects.filter(cluster=cluster, sharing=SharingMode.HAMI).exists()
    missing = isolation.lacking(cluster.isolation, cluster.isolation_said, hami=hami)
    if missing:
        raise Conflict(
            f"Cluster {cluster.slug} does not keep tenants apart yet: it lacks {', '.join(missing)}. A "
            "platform-admin sees on the cluster's page what to do."
        )
    lock_changes(cluster.pk)  # as whoever keeps a pool there
    if kept := kept_for_others(cluster.pk, tenant.zone_id):
        raise Conflict(
            f"Cluster {cluster.slug} has pools that are kept for another zone ({', '.join(kept)}), and the portal does "
            "not place what runs in a tenant cluster. Choose another cluster."
        )
    # Whose it is, is not told: this one may be a member who does not know of the other tenant.
    if TenantCluster.objects.filter(endpoint=endpoint, deleted_at__isnull=True).exists():
        raise Conflict(
            f"The address {endpoint} is another tenant cluster's already. A platform-admin names another endpoint, or "
            "has AIF_TENANT_CLUSTER_ENDPOINT tell them apart."
        )


def _hand_over(row: TenantCluster, allotments: Mapping[str, int]) -> None:
    """Fix the parts, under the quota's locks, and have the namespace there for them."""
    types = {one.slug: one for one in GPUType.objects.filter(slug__in=allotments)}
    errors = [error for slug, amount in allotments.items() if (error := _amount_error(slug, amount, types))]
    if errors:
        raise Invalid(errors=errors)
    locked = quota_locked(row.tenant_id, [one.pk for one in types.values()])
    # Nothing was handed over where nothing is asked for, so no quota is needed there.
    absent = [slug for slug, one in types.items() if one.pk not in locked and allotments[slug]]
    if absent:
        raise Invalid.field(
            f"/allotments/{absent[0]}",
            f"Tenant {row.tenant.slug} has no quota of {absent[0]}. A platform-admin gives it one.",
        )
    for slug, one in types.items():
        if allotments[slug]:
            require_type_there(row.cluster, one, f"/allotments/{slug}")
    _namespace(row)
    for slug in sorted(types):
        quota = locked.get(types[slug].pk)
        if quota is not None:
            _fix(quota, row, allotments[slug])


def _fix(quota: GPUQuota, row: TenantCluster, amount: int) -> None:
    try:
        allotment_fix(quota=quota, cluster=row.cluster, namespace=row.namespace, amount=amount)
    except QuotaExceeded as error:
        raise Conflict(str(error), code="QuotaExceeded") from None


def _amount_error(slug: str, amount: int, types: Mapping[str, GPUType]) -> dict[str, str] | None:
    pointer = f"/allotments/{slug}"
    if slug not in types:
        return {"pointer": pointer, "detail": f"There is no GPU type {slug}."}
    if amount < 0 or amount % CARD:
        return {"pointer": pointer, "detail": f"{cards(abs(amount))} is no number of whole cards, from 0 up."}
    return None


def _namespace(row: TenantCluster) -> None:
    namespace, made = TenantNamespace.objects.get_or_create(
        tenant=row.tenant,
        cluster=row.cluster,
        name=row.namespace,
        defaults={"purpose": TenantNamespace.Purpose.TENANT_CLUSTER},
    )
    if not made:
        return
    claims = NamespaceClaim.objects.filter(
        cluster=row.cluster, namespace=row.namespace, tenant_id=row.tenant_id, valid_to__isnull=True
    )
    if not claims.exists():
        # Everything in it is metered and charged to the tenant from now on, whoever made it.
        namespace_claim_set(
            cluster=row.cluster,
            namespace=row.namespace,
            tenant_id=row.tenant_id,
            valid_from=utcnow(),
            cost_code=row.tenant.cost_code,
            actor=SYSTEM,
        )
    workqueue.mark("namespace", namespace.pk, cluster_id=row.cluster_id, tenant_id=row.tenant_id)


# ---- the row ----------------------------------------------------------------------------------------------------


def _desire(row: TenantCluster, desired: str, verb: str, actor: Actor) -> TenantCluster:
    require(actor, Perm.CLUSTER_MANAGE, row.tenant)
    with tenant_scope(row.tenant_id):
        row = _alive(row)
        if row.desired == desired:
            return row
        before, row.desired = row.desired, desired
        _changed(row, "desired")
        _record(verb, row, actor, before={"desired": before}, after={"desired": desired})
        return row


def _locked(row: TenantCluster) -> TenantCluster:
    found = (
        TenantCluster.objects.select_for_update(of=("self",), no_key=True)
        .select_related("tenant", "cluster")
        .filter(pk=row.pk, deleted_at__isnull=True)
        .first()
    )
    if found is None:
        raise NotFound(f"The tenant cluster of {row.tenant.slug} on {row.cluster.slug} is gone.")
    return found


def _alive(row: TenantCluster) -> TenantCluster:
    found = _locked(row)
    if found.deleting_at is not None:
        raise Conflict(f"The tenant cluster of {found.tenant.slug} on {found.cluster.slug} is being deleted.")
    return found


def _changed(row: TenantCluster, *fields: str) -> None:
    row.generation += 1
    row.updated_at = utcnow()
    row.save(update_fields=[*fields, "generation", "updated_at"])


def _record(
    verb: str,
    row: TenantCluster,
    actor: Actor,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """The audit event and the mark: both belong to every change."""
    audit.record(
        verb,
        actor=actor,
        tenant_id=row.tenant_id,
        object_kind="tenantcluster",
        object_id=row.pk,
        object_name=f"{row.name} on {row.cluster.slug}",
        before=before,
        after=after,
    )
    workqueue.mark(OWNER_KIND, row.pk, cluster_id=row.cluster_id, tenant_id=row.tenant_id)


def _facts(row: TenantCluster) -> dict[str, Any]:
    return {"kubernetes": row.kubernetes_version, "chart": row.chart_version, "endpoint": row.endpoint}


def _told(allotments: Mapping[str, int]) -> dict[str, str]:
    return {slug: cards(amount) for slug, amount in sorted(allotments.items())}
