"""Django's description of this app."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "tenants"
    label = "tenants"
    verbose_name = "Tenants"

    def ready(self) -> None:
        """Register the reconcilers, the periodic comparison, and the answers that lower apps ask for."""
        from infra.concerned import register_concerned
        from infra.owners import register_replica_owners, register_tenant_slugs, register_zones
        from portal.accounts.ports import register_membership
        from tenants.reconcilers import deployment, kueue, namespace, quota_requests, replica, resync, tenantcluster
        from tenants.selectors.members import is_member
        from tenants.selectors.owners import replica_owners, tenants_by_slug, zones_of_tenants
        from tenants.services.waking import concerned_by_cluster

        # Importing them registers them.
        assert all((deployment, kueue, namespace, quota_requests, replica, resync, tenantcluster))
        register_replica_owners(replica_owners)
        register_zones(zones_of_tenants)
        register_tenant_slugs(tenants_by_slug)
        register_concerned(concerned_by_cluster)
        register_membership(is_member)
