import django.db.models.deletion
import django.db.models.functions
import portal.kernel.ids
from portal.kernel.rls import EnableRLS
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_retroactive"), ("infra", "0006_health")]

    operations = [
        migrations.AddField(
            model_name="billline",
            name="credit_id",
            field=models.UUIDField(blank=True, help_text="Of a credit: the FaultCredit.", null=True),
        ),
        migrations.AddField(
            model_name="billline",
            name="note",
            field=models.CharField(blank=True, help_text="Of a credit: the fault and its time.", max_length=250),
        ),
        migrations.AlterField(
            model_name="billline",
            name="kind",
            field=models.CharField(
                choices=[
                    ("gpu", "GPU time"),
                    ("idle", "idle time of reserved cards"),
                    ("cpu", "CPU beyond what the GPU includes"),
                    ("memory", "memory beyond what the GPU includes"),
                    ("storage", "storage, estimated"),
                    ("network", "network, estimated"),
                    ("credit", "credit for a fault"),
                ],
                max_length=8,
            ),
        ),
        migrations.CreateModel(
            name="FaultCredit",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("month", models.DateTimeField(help_text="Start of the month that the time lies in.")),
                ("allocation_id", models.UUIDField()),
                ("event_id", models.UUIDField()),
                ("fault", models.CharField(help_text="XID 79, GpuSmWatch, …", max_length=80)),
                ("fault_class", models.CharField(max_length=12)),
                ("happened_at", models.DateTimeField()),
                (
                    "because",
                    models.CharField(
                        choices=[
                            ("card", "the pod held the card"),
                            ("node", "the pod ran on the node"),
                            ("restart", "the pod restarted after the node's fault"),
                        ],
                        max_length=8,
                    ),
                ),
                ("cluster_name", models.CharField(max_length=63)),
                ("node_name", models.CharField(max_length=253)),
                ("device", models.CharField(blank=True, max_length=80)),
                ("namespace", models.CharField(max_length=63)),
                ("pod_name", models.CharField(max_length=253)),
                ("deployment_id", models.UUIDField(blank=True, null=True)),
                (
                    "held",
                    models.JSONField(default=dict, help_text="Cluster, card, mode, share, CPU, memory and cost code."),
                ),
                ("charge_from", models.DateTimeField()),
                ("charge_to", models.DateTimeField()),
                ("settled", models.BooleanField(default=False)),
                ("currency", models.CharField(max_length=3)),
                ("amount", models.DecimalField(decimal_places=16, max_digits=38, null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[("proposed", "proposed"), ("approved", "approved"), ("rejected", "rejected")],
                        default="proposed",
                        max_length=8,
                    ),
                ),
                ("decided_by", models.CharField(blank=True, max_length=150)),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                ("decided_why", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "issuer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.issuer"
                    ),
                ),
                (
                    "period",
                    models.ForeignKey(
                        blank=True,
                        help_text="Whose bill has it.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="billing.billingperiod",
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
                "ordering": ["-happened_at", "-id"],
                "indexes": [
                    models.Index(fields=["tenant", "deployment_id"], name="fault_credit_deployment"),
                    models.Index(fields=["event_id"], name="fault_credit_event"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "allocation_id", "month"), name="fault_credit_once"),
                    models.UniqueConstraint(fields=("tenant", "id"), name="fault_credit_tenant_id"),
                    models.CheckConstraint(
                        condition=models.Q(("charge_to__gt", models.F("charge_from"))), name="fault_credit_forward"
                    ),
                ],
            },
        ),
        EnableRLS("billing_faultcredit"),
    ]
