"""Tenant clusters and the robots that use them."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import portal.kernel.ids
from portal.kernel.rls import EnableRLS, TenantForeignKey


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0007_quota_requests"),
    ]

    operations = [
        migrations.CreateModel(
            name="TenantCluster",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "name",
                    models.CharField(help_text="Of the virtual cluster: the tenant's slug.", max_length=40),
                ),
                (
                    "endpoint",
                    models.URLField(help_text="Where its API server is reached, https.", max_length=400),
                ),
                ("kubernetes_version", models.CharField(max_length=20)),
                ("chart_version", models.CharField(max_length=40)),
                (
                    "desired",
                    models.CharField(
                        choices=[("running", "running"), ("paused", "paused")], default="running", max_length=8
                    ),
                ),
                ("generation", models.PositiveBigIntegerField(default=1)),
                (
                    "retry_at",
                    models.DateTimeField(
                        blank=True, help_text="When somebody asked for it to be tried again.", null=True
                    ),
                ),
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("Pending", "Pending"),
                            ("Provisioning", "Provisioning"),
                            ("Ready", "Ready"),
                            ("Degraded", "Degraded"),
                            ("Upgrading", "Upgrading"),
                            ("Paused", "Paused"),
                            ("Deleting", "Deleting"),
                            ("Deleted", "Deleted"),
                        ],
                        default="Pending",
                        max_length=12,
                    ),
                ),
                ("conditions", models.JSONField(blank=True, default=list)),
                ("observed_generation", models.PositiveBigIntegerField(default=0)),
                ("running_kubernetes", models.CharField(blank=True, max_length=40)),
                ("running_chart", models.CharField(blank=True, max_length=40)),
                ("ca_pem", models.TextField(blank=True, help_text="The authority of its endpoint; public.")),
                (
                    "inside",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="What was seen inside: nodes, pods that the host refuses.",
                    ),
                ),
                ("inside_seen_at", models.DateTimeField(blank=True, null=True)),
                (
                    "leftovers",
                    models.JSONField(blank=True, default=list, help_text="What a deletion still waits for, or left."),
                ),
                ("requested_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("deleting_at", models.DateTimeField(blank=True, null=True)),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.cluster"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=("tenant", "cluster"),
                        name="tenant_cluster_one_a_host",
                    )
                ],
            },
        ),
        EnableRLS("tenants_tenantcluster"),
        migrations.CreateModel(
            name="Robot",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=40)),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("cluster-admin", "administrator of the tenant cluster"),
                            ("edit", "changes workloads"),
                            ("view", "reads"),
                        ],
                        default="edit",
                        max_length=16,
                    ),
                ),
                (
                    "ready_at",
                    models.DateTimeField(blank=True, help_text="Since when its ServiceAccount is there.", null=True),
                ),
                ("token_issued_at", models.DateTimeField(blank=True, null=True)),
                (
                    "token_expires_at",
                    models.DateTimeField(blank=True, help_text="When the last token given out ends.", null=True),
                ),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("deleting_at", models.DateTimeField(blank=True, null=True)),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"
                    ),
                ),
                (
                    "tenant_cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="robots",
                        to="tenants.tenantcluster",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("deleted_at__isnull", True)),
                        fields=("tenant", "tenant_cluster", "name"),
                        name="robot_name_unique",
                    )
                ],
            },
        ),
        TenantForeignKey("tenants_robot", "tenant_cluster_id", "tenants_tenantcluster"),
        EnableRLS("tenants_robot"),
    ]
