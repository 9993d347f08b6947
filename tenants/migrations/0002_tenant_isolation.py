"""Row-level security and keys that can't cross tenants."""

from django.db import migrations

from portal.kernel.rls import EnableRLS, TenantForeignKey


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial"), ("kernel", "0001_initial")]

    operations = [
        # Keys first: adding one reads the table, which row-level security would refuse without a scope.
        TenantForeignKey("tenants_quotaallotment", "quota_id", "tenants_gpuquota"),
        TenantForeignKey("tenants_modelreplica", "deployment_id", "tenants_modeldeployment"),
        TenantForeignKey("tenants_deploymentevent", "deployment_id", "tenants_modeldeployment"),
        EnableRLS("tenants_tenantnamespace"),
        EnableRLS("tenants_gpuquota"),
        EnableRLS("tenants_quotaallotment"),
        EnableRLS("tenants_modeldeployment"),
        EnableRLS("tenants_modelreplica"),
        EnableRLS("tenants_deploymentevent"),
    ]
