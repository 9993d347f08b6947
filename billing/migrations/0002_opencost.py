"""What OpenCost answered, unit costs, estimates, and the hours of lines that were priced with them."""

import django.db.models.deletion
import django.db.models.functions.datetime
import portal.kernel.ids
from django.db import migrations, models

from portal.kernel.rls import AppendOnly, EnableRLS, TenantForeignKey


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0001_initial"),
        ("infra", "0002_cluster_endpoint"),
        ("tenants", "0002_tenant_isolation"),
    ]

    operations = [
        migrations.CreateModel(
            name="BillLineHour",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("charge_from", models.DateTimeField()),
                ("charge_to", models.DateTimeField()),
                ("unit_price", models.DecimalField(decimal_places=10, max_digits=20)),
                ("quantity", models.DecimalField(decimal_places=12, max_digits=30)),
                ("amount_exact", models.DecimalField(decimal_places=16, max_digits=38)),
            ],
            options={
                "ordering": ["line", "charge_from", "cluster"],
            },
        ),
        migrations.CreateModel(
            name="EstimatedCost",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("namespace", models.CharField(max_length=63)),
                ("cost_code", models.CharField(blank=True, max_length=60)),
                (
                    "resource",
                    models.CharField(
                        choices=[
                            ("gpu", "GPU-hour"),
                            ("cpu", "CPU-core-hour"),
                            ("memory", "GiB-hour"),
                            ("storage", "storage, estimated by OpenCost"),
                            ("network", "network, estimated by OpenCost"),
                        ],
                        max_length=8,
                    ),
                ),
                ("amount", models.DecimalField(decimal_places=12, help_text="Signed, in the currency.", max_digits=30)),
                ("currency", models.CharField(max_length=3)),
                (
                    "seq",
                    models.BigIntegerField(
                        db_default=models.Func(
                            models.Value("billing_usagerecord_seq"),
                            function="nextval",
                            output_field=models.BigIntegerField(),
                        )
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name="OpenCostAnswer",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("accepted", models.BooleanField()),
                ("revision", models.PositiveIntegerField(default=0)),
                (
                    "reason",
                    models.TextField(blank=True, help_text="Why it was refused; of a taken one, why its assets were."),
                ),
                ("empty", models.BooleanField(default=False, help_text="OpenCost has no data of the hour.")),
                ("version", models.CharField(blank=True, max_length=60)),
                ("currency", models.CharField(max_length=3)),
                ("digest", models.CharField(blank=True, max_length=64)),
                ("raw", models.BinaryField(null=True)),
                ("asked", models.PositiveIntegerField(default=1)),
                ("fetched_at", models.DateTimeField()),
                ("asked_at", models.DateTimeField(help_text="When it was last asked, with the same answer.")),
                ("source", models.CharField(default="opencost", help_text="opencost, or demo.", max_length=12)),
                (
                    "seq",
                    models.BigIntegerField(
                        db_default=models.Func(
                            models.Value("billing_usagerecord_seq"),
                            function="nextval",
                            output_field=models.BigIntegerField(),
                        )
                    ),
                ),
            ],
            options={
                "ordering": ["cluster", "-hour", "-revision"],
            },
        ),
        migrations.CreateModel(
            name="OpenCostRow",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("namespace", models.CharField(blank=True, max_length=63)),
                ("pod", models.CharField(blank=True, max_length=253)),
                ("special", models.CharField(blank=True, max_length=20)),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("gpu_hours", models.DecimalField(decimal_places=10, max_digits=30)),
                ("gpu_cost", models.DecimalField(decimal_places=10, max_digits=30)),
                ("cpu_core_hours", models.DecimalField(decimal_places=10, max_digits=30)),
                ("cpu_cost", models.DecimalField(decimal_places=10, max_digits=30)),
                ("ram_byte_hours", models.DecimalField(decimal_places=10, max_digits=30)),
                ("ram_cost", models.DecimalField(decimal_places=10, max_digits=30)),
                ("pv_byte_hours", models.DecimalField(decimal_places=10, max_digits=30)),
                ("pv_cost", models.DecimalField(decimal_places=10, max_digits=30)),
                ("network_cost", models.DecimalField(decimal_places=10, max_digits=30)),
                ("lb_cost", models.DecimalField(decimal_places=10, max_digits=30)),
            ],
        ),
        migrations.CreateModel(
            name="OpenCostSource",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "currency",
                    models.CharField(default="USD", help_text="ISO 4217: what OpenCost's prices are in.", max_length=3),
                ),
                ("first_hour", models.DateTimeField(blank=True, null=True)),
                ("claims_seq", models.BigIntegerField(default=0)),
                (
                    "failures",
                    models.PositiveIntegerField(default=0, help_text="Runs in a row in which it could not be asked."),
                ),
                ("last_error", models.TextField(blank=True)),
                ("updated_by", models.CharField(blank=True, max_length=150)),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="UnitCost",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("hour", models.DateTimeField()),
                (
                    "resource",
                    models.CharField(
                        choices=[
                            ("gpu", "GPU-hour"),
                            ("cpu", "CPU-core-hour"),
                            ("memory", "GiB-hour"),
                            ("storage", "storage, estimated by OpenCost"),
                            ("network", "network, estimated by OpenCost"),
                        ],
                        max_length=8,
                    ),
                ),
                ("price", models.DecimalField(decimal_places=10, max_digits=20)),
                ("currency", models.CharField(max_length=3)),
                (
                    "basis",
                    models.CharField(
                        choices=[("assets", "the nodes' costs"), ("allocation", "the pods' costs")], max_length=10
                    ),
                ),
                (
                    "quantity",
                    models.DecimalField(
                        decimal_places=10, help_text="Of how many unit-hours it was computed.", max_digits=30
                    ),
                ),
                (
                    "seq",
                    models.BigIntegerField(
                        db_default=models.Func(
                            models.Value("billing_usagerecord_seq"),
                            function="nextval",
                            output_field=models.BigIntegerField(),
                        )
                    ),
                ),
            ],
        ),
        migrations.RemoveConstraint(
            model_name="rate",
            name="rate_key",
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
                ],
                max_length=8,
            ),
        ),
        migrations.AlterField(
            model_name="rate",
            name="resource",
            field=models.CharField(
                choices=[
                    ("gpu", "GPU-hour"),
                    ("cpu", "CPU-core-hour"),
                    ("memory", "GiB-hour"),
                    ("storage", "storage, estimated by OpenCost"),
                    ("network", "network, estimated by OpenCost"),
                ],
                default="gpu",
                max_length=8,
            ),
        ),
        migrations.AddConstraint(
            model_name="rate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("gpu_type__isnull", False), ("resource", "gpu"), models.Q(("sharing", ""), _negated=True)
                    ),
                    models.Q(
                        ("gpu_type__isnull", True),
                        ("profile", ""),
                        ("resource__in", ["cpu", "memory", "storage", "network"]),
                        ("sharing", ""),
                    ),
                    _connector="OR",
                ),
                name="rate_key",
            ),
        ),
        migrations.AddConstraint(
            model_name="rate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("resource__in", ["storage", "network"]), _negated=True),
                    ("source", "opencost"),
                    _connector="OR",
                ),
                name="rate_estimated",
            ),
        ),
        migrations.AddField(
            model_name="billlinehour",
            name="cluster",
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.cluster"),
        ),
        migrations.AddField(
            model_name="billlinehour",
            name="line",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="hours", to="billing.billline"
            ),
        ),
        migrations.AddField(
            model_name="billlinehour",
            name="tenant",
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"),
        ),
        migrations.AddField(
            model_name="estimatedcost",
            name="cluster",
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.cluster"),
        ),
        migrations.AddField(
            model_name="estimatedcost",
            name="tenant",
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"),
        ),
        migrations.AddField(
            model_name="opencostanswer",
            name="cluster",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="infra.cluster"),
        ),
        migrations.AddField(
            model_name="estimatedcost",
            name="answer",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.opencostanswer"
            ),
        ),
        migrations.AddField(
            model_name="opencostrow",
            name="answer",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="rows", to="billing.opencostanswer"
            ),
        ),
        migrations.AddField(
            model_name="opencostsource",
            name="cluster",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="infra.cluster"
            ),
        ),
        migrations.AddField(
            model_name="unitcost",
            name="answer",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="unit_costs", to="billing.opencostanswer"
            ),
        ),
        migrations.AddField(
            model_name="unitcost",
            name="cluster",
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.cluster"),
        ),
        migrations.AddField(
            model_name="unitcost",
            name="gpu_type",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.gputype"
            ),
        ),
        migrations.AddField(
            model_name="billlinehour",
            name="unit_cost",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.unitcost"
            ),
        ),
        migrations.AddIndex(
            model_name="opencostanswer",
            index=models.Index(fields=["cluster", "hour"], name="opencost_answer_hour"),
        ),
        migrations.AddConstraint(
            model_name="opencostanswer",
            constraint=models.UniqueConstraint(
                fields=("cluster", "hour", "accepted", "revision"), name="opencost_answer_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="opencostanswer",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("accepted", True),
                    models.Q(("revision", 0), models.Q(("reason", ""), _negated=True)),
                    _connector="OR",
                ),
                name="opencost_answer_reason",
            ),
        ),
        migrations.AddIndex(
            model_name="estimatedcost",
            index=models.Index(fields=["tenant", "hour"], name="estimated_cost_tenant"),
        ),
        migrations.AddIndex(
            model_name="estimatedcost",
            index=models.Index(fields=["cluster", "hour"], name="estimated_cost_cluster"),
        ),
        migrations.AddConstraint(
            model_name="opencostrow",
            constraint=models.UniqueConstraint(
                fields=("answer", "special", "namespace", "pod"), name="opencost_row_unique"
            ),
        ),
        migrations.AddIndex(
            model_name="unitcost",
            index=models.Index(fields=["cluster", "hour", "resource"], name="unit_cost_hour"),
        ),
        migrations.AddConstraint(
            model_name="unitcost",
            constraint=models.UniqueConstraint(
                fields=("answer", "resource", "gpu_type"), name="unit_cost_unique", nulls_distinct=False
            ),
        ),
        migrations.AddConstraint(
            model_name="unitcost",
            constraint=models.CheckConstraint(condition=models.Q(("price__gt", 0)), name="unit_cost_positive"),
        ),
        migrations.AddConstraint(
            model_name="billlinehour",
            constraint=models.UniqueConstraint(
                fields=("tenant", "line", "cluster", "charge_from"), name="bill_line_hour_unique"
            ),
        ),
        TenantForeignKey("billing_billlinehour", "line_id", "billing_billline"),
        EnableRLS("billing_estimatedcost"),
        EnableRLS("billing_billlinehour"),
        AppendOnly("billing_estimatedcost"),
        AppendOnly("billing_billlinehour"),
        AppendOnly("billing_unitcost"),
    ]
