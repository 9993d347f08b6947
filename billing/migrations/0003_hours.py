import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions
import portal.kernel.ids
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_opencost"), ("tenants", "0004_waiting")]

    operations = [
        migrations.CreateModel(
            name="BlockedHour",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
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
                ("hour", models.DateTimeField()),
                ("tenant_id", models.UUIDField(help_text="Who waited.")),
                ("deployment_id", models.UUIDField()),
                ("owner_tenant_id", models.UUIDField(null=True)),
                ("units", models.BigIntegerField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.cluster"
                    ),
                ),
                (
                    "gpu_type",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.gputype"
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.node"),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["hour", "cluster"], name="blocked_hour_page")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "node", "gpu_type", "sharing", "hour", "deployment_id", "owner_tenant_id"),
                        name="blocked_hour_unique",
                        nulls_distinct=False,
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="IdleHour",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
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
                ("hour", models.DateTimeField()),
                ("idle", models.BigIntegerField(default=0)),
                ("no_demand", models.BigIntegerField(default=0, help_text="Nobody waited for it.")),
                ("quota", models.BigIntegerField(default=0, help_text="It fitted an ask that its quota refused.")),
                (
                    "fragmented",
                    models.BigIntegerField(default=0, help_text="Enough for an ask, but not on one node or card."),
                ),
                (
                    "stranded",
                    models.BigIntegerField(
                        default=0, help_text="Another dimension is used up, or slices are cut otherwise."
                    ),
                ),
                (
                    "reserved",
                    models.BigIntegerField(default=0, help_text="Promised to a pod that has not been bound yet."),
                ),
                (
                    "pending",
                    models.BigIntegerField(default=0, help_text="It fitted an ask that was about to be placed."),
                ),
                ("zone", models.BigIntegerField(default=0, help_text="Kept for a trust zone of which nobody waited.")),
                ("geometry", models.BigIntegerField(default=0)),
                ("lopsided", models.BigIntegerField(default=0)),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.cluster"
                    ),
                ),
                (
                    "gpu_type",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.gputype"
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.node"),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["hour", "cluster"], name="idle_hour_page")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "node", "gpu_type", "sharing", "hour"),
                        name="idle_hour_unique",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "idle",
                                django.db.models.expressions.CombinedExpression(
                                    django.db.models.expressions.CombinedExpression(
                                        django.db.models.expressions.CombinedExpression(
                                            django.db.models.expressions.CombinedExpression(
                                                django.db.models.expressions.CombinedExpression(
                                                    django.db.models.expressions.CombinedExpression(
                                                        models.F("no_demand"), "+", models.F("quota")
                                                    ),
                                                    "+",
                                                    models.F("fragmented"),
                                                ),
                                                "+",
                                                models.F("stranded"),
                                            ),
                                            "+",
                                            models.F("reserved"),
                                        ),
                                        "+",
                                        models.F("pending"),
                                    ),
                                    "+",
                                    models.F("zone"),
                                ),
                            )
                        ),
                        name="idle_hour_adds_up",
                    ),
                ],
            },
        ),
    ]
