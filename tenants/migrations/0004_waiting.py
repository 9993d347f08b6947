import django.db.models.deletion
import portal.kernel.ids
from portal.kernel.rls import EnableRLS, TenantForeignKey
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0003_group_mapping"), ("infra", "0002_cluster_endpoint")]

    operations = [
        migrations.CreateModel(
            name="WaitSpan",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "part",
                    models.CharField(help_text="engine/role/request: qwen-engine/Standalone/gpu.", max_length=200),
                ),
                (
                    "reason",
                    models.CharField(help_text="QuotaExceeded, NoCapacity, …: the condition's reason.", max_length=40),
                ),
                (
                    "rule",
                    models.CharField(help_text="The scheduler's rule in the pool: quota, capacity, …", max_length=20),
                ),
                ("cluster_id", models.UUIDField(null=True)),
                ("pool_id", models.UUIDField(null=True)),
                (
                    "sharing",
                    models.CharField(
                        choices=[
                            ("whole", "whole cards"),
                            ("hami", "HAMi shares"),
                            ("mig", "MIG slices"),
                            ("timeslice", "time-sliced"),
                        ],
                        max_length=10,
                    ),
                ),
                ("count", models.PositiveIntegerField(help_text="Devices of one pod, on one node.")),
                ("pods", models.PositiveIntegerField(help_text="Pods without a place.")),
                ("profile", models.CharField(blank=True, max_length=32)),
                ("memory_mib", models.PositiveBigIntegerField(default=0)),
                ("cores", models.PositiveIntegerField(default=0)),
                ("owner_tenant_id", models.UUIDField(null=True)),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "deployment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="waits", to="tenants.modeldeployment"
                    ),
                ),
                (
                    "gpu_type",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.gputype"
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
                "indexes": [
                    models.Index(fields=["cluster_id", "started_at"], name="wait_span_cluster"),
                    models.Index(fields=["tenant", "deployment", "started_at"], name="wait_span_of"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("tenant", "deployment", "part"),
                        name="wait_span_one_open",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ended_at__isnull", True), ("ended_at__gte", models.F("started_at")), _connector="OR"
                        ),
                        name="wait_span_forward",
                    ),
                ],
            },
        ),
        TenantForeignKey("tenants_waitspan", "deployment_id", "tenants_modeldeployment"),
        EnableRLS("tenants_waitspan"),
    ]
