"""Tenant clusters: which there are, what they were given, and who may do what inside."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet

from infra.adapters.oidc import GROUPS_CLAIM
from infra.models import Cluster
from portal.accounts.models import Identity
from portal.kernel.problems import NotFound
from tenants.models import GroupMapping, Member, QuotaAllotment, Robot, Tenant, TenantCluster
from tenants.tenantclusters.access import MEMBER_ROLES, Access, Subjects


def tenant_clusters(tenant: Tenant | None = None) -> QuerySet[TenantCluster]:
    """Those that are there or on their way, of one tenant or of all (then in a system scope), by tenant and host."""
    rows = TenantCluster.objects.filter(deleted_at__isnull=True).select_related("tenant", "cluster__site")
    rows = rows.filter(tenant=tenant) if tenant is not None else rows
    return rows.order_by("tenant__slug", "cluster__slug")


def tenant_cluster_on(tenant: Tenant, cluster_slug: str) -> TenantCluster:
    """The tenant's cluster on a host cluster.

    Raises:
        NotFound: it has none there.
    """
    row = tenant_clusters(tenant).filter(cluster__slug=cluster_slug).first()
    if row is None:
        raise NotFound(f"Tenant {tenant.slug} has no tenant cluster on {cluster_slug}.")
    return row


def tenant_cluster_gone(tenant: Tenant, cluster_slug: str) -> TenantCluster | None:
    """The last one that the tenant had there and that is gone."""
    rows = TenantCluster.objects.filter(tenant=tenant, cluster__slug=cluster_slug, deleted_at__isnull=False)
    return rows.order_by("-deleted_at").first()


def tenant_cluster_parts(row: TenantCluster) -> QuerySet[QuotaAllotment]:
    """The parts of the tenant's quotas that the tenant cluster was given."""
    return (
        QuotaAllotment.objects.filter(
            tenant_id=row.tenant_id, cluster_id=row.cluster_id, namespace=row.namespace, amount__gt=0
        )
        .select_related("quota__gpu_type")
        .order_by("quota__gpu_type__slug")
    )


def robots_of(row: TenantCluster) -> QuerySet[Robot]:
    """Its robots, by name; those that are being removed too."""
    return Robot.objects.filter(tenant_id=row.tenant_id, tenant_cluster=row, deleted_at__isnull=True).order_by("name")


def hosts_for(tenant: Tenant) -> QuerySet[Cluster]:
    """Managed clusters at the tenant's sites on which it has no tenant cluster yet."""
    taken = tenant_clusters(tenant).values_list("cluster_id", flat=True)
    return (
        Cluster.objects.filter(mode=Cluster.Mode.MANAGE, abandoned_at__isnull=True, site__in=tenant.sites.all())
        .exclude(pk__in=list(taken))
        .order_by("slug")
    )


def access_of(row: TenantCluster) -> Access:
    """Who may do what inside: members by the identity they sign in with, groups that are mapped, robots.

    Nobody while the tenant is suspended: neither its people nor its robots have a way in then.
    """
    if row.tenant.state != Tenant.State.ACTIVE:
        return Access()
    people: dict[str, list[str]] = defaultdict(list)
    groups: dict[str, list[str]] = defaultdict(list)
    if settings.AIF_OIDC_ISSUER:
        roles = dict(
            Member.objects.filter(tenant_id=row.tenant_id, role__in=MEMBER_ROLES, user__is_active=True).values_list(
                "user_id", "role"
            )
        )
        for user_id, sub in _subjects(list(roles)):
            people[roles[user_id]].append(sub)
        # A prefix stands for many groups, which a binding can't name: their people come in as members.
        mapped = GroupMapping.objects.filter(
            tenant_id=row.tenant_id, claim=GROUPS_CLAIM, match=GroupMapping.Match.EXACT, role__in=MEMBER_ROLES
        )
        for role, value in mapped.values_list("role", "value"):
            groups[role].append(value)
    members = {role: Subjects(tuple(sorted(people[role])), tuple(sorted(groups[role]))) for role in MEMBER_ROLES}
    robots = robots_of(row).filter(deleting_at__isnull=True).values_list("name", "role")
    return Access(members, dict(robots))


def _subjects(user_ids: list[UUID]) -> list[tuple[UUID, str]]:
    rows = Identity.objects.filter(iss=settings.AIF_OIDC_ISSUER, user_id__in=user_ids)
    return list(rows.values_list("user_id", "sub"))
