"""A tenant may have more than one namespace on a cluster; a part of a quota may be fixed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("infra", "0006_health"),
        ("tenants", "0004_waiting"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="tenantnamespace",
            name="tenant_namespace_unique",
        ),
        migrations.AddField(
            model_name="quotaallotment",
            name="fixed",
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name="tenantnamespace",
            name="purpose",
            field=models.CharField(
                choices=[("deployments", "model deployments"), ("tenant-cluster", "the tenant cluster")],
                default="deployments",
                max_length=16,
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantnamespace",
            constraint=models.UniqueConstraint(fields=("tenant", "cluster", "name"), name="tenant_namespace_unique"),
        ),
    ]
