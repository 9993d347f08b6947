"""The tables of billing; usage is partitioned, and what belongs to a tenant is under row-level security."""

import django.db.models.deletion
import django.db.models.functions.datetime
import portal.kernel.ids
from django.db import migrations, models

from billing import usage_table
from portal.kernel.rls import AppendOnly, EnableRLS, TenantForeignKey


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("kernel", "0001_initial"),
        ("infra", "0001_initial"),
        ("tenants", "0002_tenant_isolation"),
    ]

    operations = [
        migrations.CreateModel(
            name="BillingPeriod",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("year", models.PositiveSmallIntegerField()),
                ("month", models.PositiveSmallIntegerField()),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "open"), ("closing", "closing"), ("closed", "closed")],
                        default="open",
                        max_length=8,
                    ),
                ),
                ("seq_upto", models.BigIntegerField(blank=True, null=True)),
                ("closed_at", models.DateTimeField(blank=True, null=True)),
                ("closed_by", models.CharField(blank=True, max_length=150)),
            ],
            options={
                "ordering": ["-starts_at"],
            },
        ),
        migrations.CreateModel(
            name="Bill",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("statement", "internal statement"),
                            ("invoice", "invoice, numbered without gaps"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "number",
                    models.CharField(help_text="Of an invoice: without gaps. Of a statement: its id.", max_length=80),
                ),
                ("version", models.PositiveIntegerField(default=1)),
                ("currency", models.CharField(max_length=3)),
                ("total_minor", models.BigIntegerField()),
                ("total", models.DecimalField(decimal_places=4, max_digits=24)),
                ("seq_after", models.BigIntegerField(help_text="seq_upto of the previous close (0: none).")),
                ("seq_upto", models.BigIntegerField()),
                ("digest", models.CharField(max_length=64)),
                ("closed_at", models.DateTimeField()),
                ("closed_by", models.CharField(max_length=150)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"
                    ),
                ),
                (
                    "period",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="bills",
                        to="billing.billingperiod",
                    ),
                ),
            ],
            options={
                "ordering": ["-closed_at"],
            },
        ),
        migrations.CreateModel(
            name="BillLine",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("position", models.PositiveIntegerField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("gpu", "GPU time"),
                            ("idle", "idle time of reserved cards"),
                            ("cpu", "CPU beyond what the GPU includes"),
                            ("memory", "memory beyond what the GPU includes"),
                        ],
                        max_length=8,
                    ),
                ),
                ("deployment_id", models.UUIDField(blank=True, null=True)),
                ("deployment_name", models.CharField(blank=True, max_length=63)),
                ("namespace", models.CharField(max_length=63)),
                (
                    "sharing",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("whole", "whole cards"),
                            ("hami", "HAMi shares"),
                            ("mig", "MIG slices"),
                            ("timeslice", "time-sliced"),
                        ],
                        max_length=10,
                    ),
                ),
                ("profile", models.CharField(blank=True, max_length=32)),
                ("cost_code", models.CharField(blank=True, max_length=60)),
                ("charge_from", models.DateTimeField()),
                ("charge_to", models.DateTimeField()),
                ("unit", models.CharField(max_length=20)),
                ("unit_price", models.DecimalField(decimal_places=10, max_digits=20)),
                ("quantity", models.DecimalField(decimal_places=12, max_digits=30)),
                ("amount_exact", models.DecimalField(decimal_places=16, max_digits=38)),
                ("amount_minor", models.BigIntegerField()),
                ("amount", models.DecimalField(decimal_places=4, max_digits=24)),
                ("correction", models.BooleanField(default=False)),
                (
                    "bill",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="lines", to="billing.bill"
                    ),
                ),
                (
                    "gpu_type",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="infra.gputype",
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
                "ordering": ["bill", "position"],
            },
        ),
        migrations.CreateModel(
            name="CapacityHour",
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
                ("revision", models.PositiveIntegerField(default=0)),
                ("tenants", models.BigIntegerField(default=0)),
                ("idle", models.BigIntegerField(default=0)),
                ("starting", models.BigIntegerField(default=0)),
                ("overhead", models.BigIntegerField(default=0)),
                ("unavailable", models.BigIntegerField(default=0)),
                ("unattributed", models.BigIntegerField(default=0)),
                ("in_service", models.BigIntegerField(default=0)),
                ("overbooked", models.BigIntegerField(default=0)),
                ("outside", models.BigIntegerField(default=0)),
                (
                    "idle_tenant_id",
                    models.UUIDField(
                        help_text="The only tenant whose zone may use these cards: pays for their idle time.",
                        null=True,
                    ),
                ),
                ("per_card", models.BooleanField(default=False)),
                (
                    "source",
                    models.CharField(
                        choices=[
                            ("watch", "watched"),
                            ("retroactive", "rebuilt from Prometheus"),
                            ("demo", "demonstration data"),
                        ],
                        default="watch",
                        max_length=12,
                    ),
                ),
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
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="infra.gputype",
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.node"),
                ),
            ],
        ),
        migrations.CreateModel(
            name="CreditNote",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("number", models.CharField(max_length=80)),
                ("currency", models.CharField(max_length=3)),
                ("amount_minor", models.BigIntegerField(help_text="Positive: given back.")),
                ("amount", models.DecimalField(decimal_places=4, max_digits=24)),
                ("reason", models.TextField()),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "bill",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="credit_notes",
                        to="billing.bill",
                    ),
                ),
                (
                    "line",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="credit_notes",
                        to="billing.billline",
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
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="DeviceAllocation",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("pod_uid", models.CharField(max_length=64)),
                (
                    "resource",
                    models.CharField(help_text="nvidia.com/gpu, nvidia.com/mig-1g.10gb, …", max_length=120),
                ),
                (
                    "ordinal",
                    models.PositiveIntegerField(help_text="Which of the pod's devices of that resource, from 0."),
                ),
                (
                    "bucket",
                    models.CharField(
                        choices=[
                            ("tenants", "tenants"),
                            ("idle", "idle"),
                            ("starting", "starting"),
                            ("overhead", "overhead (system)"),
                            ("unavailable", "unavailable"),
                            ("unattributed", "unattributed"),
                        ],
                        max_length=12,
                    ),
                ),
                ("segment", models.PositiveIntegerField(default=0)),
                ("namespace", models.CharField(max_length=63)),
                ("pod_name", models.CharField(max_length=253)),
                ("deployment_id", models.UUIDField(blank=True, null=True)),
                ("cost_code", models.CharField(blank=True, max_length=60)),
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
                (
                    "profile",
                    models.CharField(blank=True, help_text="MIG profile, such as 1g.10gb.", max_length=32),
                ),
                (
                    "device_uuid",
                    models.CharField(blank=True, help_text="The card, when it is known.", max_length=80),
                ),
                (
                    "memory_mib",
                    models.PositiveBigIntegerField(help_text="Requested memory of the card, MiB.", null=True),
                ),
                (
                    "card_memory_mib",
                    models.PositiveBigIntegerField(help_text="The card's physical memory, MiB.", null=True),
                ),
                (
                    "cores",
                    models.PositiveIntegerField(help_text="Requested compute, percent of the card.", null=True),
                ),
                (
                    "slices",
                    models.PositiveIntegerField(help_text="MIG compute slices of the profile.", null=True),
                ),
                (
                    "card_slices",
                    models.PositiveIntegerField(help_text="MIG compute slices of the full card.", null=True),
                ),
                (
                    "share",
                    models.PositiveBigIntegerField(help_text="Charged share, millionths of a card (floor)."),
                ),
                (
                    "cpu_millicores",
                    models.PositiveBigIntegerField(default=0, help_text="This device's part of the pod's CPU."),
                ),
                (
                    "host_memory_mib",
                    models.PositiveBigIntegerField(default=0, help_text="Its part of the pod's memory, MiB."),
                ),
                ("bound_at", models.DateTimeField(help_text="The pod was bound to its node.")),
                (
                    "running_at",
                    models.DateTimeField(help_text="The pod's first container started.", null=True),
                ),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "inferred",
                    models.BooleanField(default=False, help_text="Its end was concluded, not seen."),
                ),
                ("uncapped", models.BooleanField(default=False, help_text="HAMi without a limit on cores.")),
                (
                    "first_day",
                    models.BooleanField(default=False, help_text="Ran already when the cluster was connected."),
                ),
                (
                    "source",
                    models.CharField(
                        choices=[
                            ("watch", "watched"),
                            ("retroactive", "rebuilt from Prometheus"),
                            ("demo", "demonstration data"),
                        ],
                        default="watch",
                        max_length=12,
                    ),
                ),
                (
                    "evidence_seq",
                    models.BigIntegerField(help_text="changed_seq of the observation that it was made from."),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.cluster"
                    ),
                ),
                (
                    "gpu_type",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="infra.gputype",
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="infra.node",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Issuer",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("slug", models.SlugField(max_length=40, unique=True)),
                ("name", models.CharField(max_length=120)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("statement", "internal statement"),
                            ("invoice", "invoice, numbered without gaps"),
                        ],
                        default="statement",
                        max_length=10,
                    ),
                ),
                ("currency", models.CharField(help_text="ISO 4217.", max_length=3)),
                ("time_zone", models.CharField(default="UTC", help_text="IANA name.", max_length=64)),
                (
                    "grace_hours",
                    models.PositiveIntegerField(default=72, help_text="A period can be closed so long after its end."),
                ),
                ("is_default", models.BooleanField(default=False)),
                ("number_prefix", models.CharField(blank=True, max_length=20)),
                (
                    "next_number",
                    models.PositiveBigIntegerField(default=1, help_text="Only used by invoices."),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "ordering": ["slug"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("is_default", True)),
                        fields=("is_default",),
                        name="issuer_one_default",
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="billingperiod",
            name="issuer",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="periods", to="billing.issuer"
            ),
        ),
        migrations.CreateModel(
            name="BillingAccount",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.tenant"
                    ),
                ),
                (
                    "issuer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="accounts",
                        to="billing.issuer",
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="MeterProgress",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "through_seq",
                    models.BigIntegerField(default=0, help_text="Evidence up to this changed_seq is worked in."),
                ),
                ("metered_from", models.DateTimeField(help_text="The first hour with usage.", null=True)),
                (
                    "final_until",
                    models.DateTimeField(help_text="Usage exists for every hour before this instant.", null=True),
                ),
                (
                    "cuts",
                    models.JSONField(
                        default=list, help_text="Instants inside hours at which usage was cut (RFC 3339)."
                    ),
                ),
                (
                    "unmetered",
                    models.JSONField(
                        default=dict,
                        help_text="Pod uid → {namespace, name, reason}: its share can't be computed yet.",
                    ),
                ),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="infra.cluster"
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Rate",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "resource",
                    models.CharField(
                        choices=[("gpu", "GPU-hour"), ("cpu", "CPU-core-hour"), ("memory", "GiB-hour")],
                        default="gpu",
                        max_length=8,
                    ),
                ),
                (
                    "sharing",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("whole", "whole cards"),
                            ("hami", "HAMi shares"),
                            ("mig", "MIG slices"),
                            ("timeslice", "time-sliced"),
                        ],
                        max_length=10,
                    ),
                ),
                ("profile", models.CharField(blank=True, max_length=32)),
                (
                    "source",
                    models.CharField(
                        choices=[("fixed", "fixed price"), ("opencost", "OpenCost's unit cost")],
                        default="fixed",
                        max_length=10,
                    ),
                ),
                ("price", models.DecimalField(blank=True, decimal_places=10, max_digits=20, null=True)),
                (
                    "margin",
                    models.DecimalField(
                        decimal_places=4,
                        default=0,
                        help_text="Added to the price: 0.15 is 15 %.",
                        max_digits=8,
                    ),
                ),
                ("included_cpu_millicores", models.PositiveBigIntegerField(blank=True, null=True)),
                ("included_memory_mib", models.PositiveBigIntegerField(blank=True, null=True)),
                ("valid_from", models.DateTimeField()),
                ("valid_to", models.DateTimeField(blank=True, null=True)),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "gpu_type",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="infra.gputype",
                    ),
                ),
            ],
            options={
                "ordering": ["resource", "gpu_type", "sharing", "profile", "valid_from"],
            },
        ),
        migrations.AddField(
            model_name="billline",
            name="gpu_rate",
            field=models.ForeignKey(
                help_text="Of CPU and memory: what it includes.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="billing.rate",
            ),
        ),
        migrations.AddField(
            model_name="billline",
            name="rate",
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.rate"),
        ),
        migrations.CreateModel(
            name="RateCard",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=120)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "issuer",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rate_card",
                        to="billing.issuer",
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.AddField(
            model_name="rate",
            name="card",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="rates", to="billing.ratecard"
            ),
        ),
        migrations.AddConstraint(
            model_name="bill",
            constraint=models.UniqueConstraint(fields=("tenant", "period"), name="bill_one_per_period"),
        ),
        migrations.AddConstraint(
            model_name="bill",
            constraint=models.UniqueConstraint(fields=("tenant", "number"), name="bill_number_unique"),
        ),
        migrations.AddConstraint(
            model_name="bill",
            constraint=models.UniqueConstraint(fields=("tenant", "id"), name="bill_tenant_id"),
        ),
        migrations.AddIndex(
            model_name="capacityhour",
            index=models.Index(fields=["hour", "cluster"], name="capacity_hour_page"),
        ),
        migrations.AddConstraint(
            model_name="capacityhour",
            constraint=models.UniqueConstraint(
                fields=("cluster", "node", "gpu_type", "sharing", "hour"),
                name="capacity_hour_unique",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="creditnote",
            constraint=models.UniqueConstraint(fields=("tenant", "number"), name="credit_note_number_unique"),
        ),
        migrations.AddConstraint(
            model_name="creditnote",
            constraint=models.UniqueConstraint(fields=("tenant", "id"), name="credit_note_tenant_id"),
        ),
        migrations.AddConstraint(
            model_name="creditnote",
            constraint=models.CheckConstraint(condition=models.Q(("amount_minor__gt", 0)), name="credit_note_positive"),
        ),
        migrations.AddIndex(
            model_name="deviceallocation",
            index=models.Index(fields=["cluster", "pod_uid"], name="device_allocation_pod"),
        ),
        migrations.AddIndex(
            model_name="deviceallocation",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", True)),
                fields=["cluster"],
                name="device_allocation_open",
            ),
        ),
        migrations.AddIndex(
            model_name="deviceallocation",
            index=models.Index(fields=["cluster", "ended_at"], name="device_allocation_ended"),
        ),
        migrations.AddIndex(
            model_name="deviceallocation",
            index=models.Index(fields=["tenant", "started_at"], name="device_allocation_tenant"),
        ),
        migrations.AddConstraint(
            model_name="deviceallocation",
            constraint=models.UniqueConstraint(
                fields=("tenant", "cluster", "pod_uid", "resource", "ordinal", "bucket", "segment"),
                name="device_allocation_unique",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="deviceallocation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("ended_at__isnull", True), ("ended_at__gte", models.F("started_at")), _connector="OR"
                ),
                name="device_allocation_forward",
            ),
        ),
        migrations.AddConstraint(
            model_name="deviceallocation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("bucket__in", ["starting", "unattributed"]),
                    models.Q(("bucket", "tenants"), ("tenant__isnull", False)),
                    models.Q(("bucket", "overhead"), ("tenant__isnull", True)),
                    _connector="OR",
                ),
                name="device_allocation_bucket_tenant",
            ),
        ),
        migrations.AddConstraint(
            model_name="billingperiod",
            constraint=models.UniqueConstraint(fields=("issuer", "year", "month"), name="billing_period_unique"),
        ),
        migrations.AddConstraint(
            model_name="billingperiod",
            constraint=models.UniqueConstraint(fields=("issuer", "starts_at"), name="billing_period_start_unique"),
        ),
        migrations.AddConstraint(
            model_name="billingperiod",
            constraint=models.CheckConstraint(
                condition=models.Q(("ends_at__gt", models.F("starts_at"))), name="billing_period_forward"
            ),
        ),
        migrations.AddConstraint(
            model_name="billline",
            constraint=models.UniqueConstraint(fields=("tenant", "bill", "position"), name="bill_line_position"),
        ),
        migrations.AddConstraint(
            model_name="billline",
            constraint=models.UniqueConstraint(fields=("tenant", "id"), name="bill_line_tenant_id"),
        ),
        migrations.AddIndex(
            model_name="rate",
            index=models.Index(fields=["card", "valid_from"], name="rate_by_time"),
        ),
        migrations.AddConstraint(
            model_name="rate",
            constraint=models.UniqueConstraint(
                condition=models.Q(("valid_to__isnull", True)),
                fields=("card", "resource", "gpu_type", "sharing", "profile"),
                name="rate_one_open",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="rate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("valid_to__isnull", True), ("valid_to__gt", models.F("valid_from")), _connector="OR"
                ),
                name="rate_forward",
            ),
        ),
        migrations.AddConstraint(
            model_name="rate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("price__gte", 0), ("price__isnull", False), ("source", "fixed")),
                    models.Q(("price__isnull", True), ("source", "opencost")),
                    _connector="OR",
                ),
                name="rate_price",
            ),
        ),
        migrations.AddConstraint(
            model_name="rate",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("gpu_type__isnull", False),
                        ("resource", "gpu"),
                        models.Q(("sharing", ""), _negated=True),
                    ),
                    models.Q(
                        ("gpu_type__isnull", True),
                        ("profile", ""),
                        ("resource__in", ["cpu", "memory"]),
                        ("sharing", ""),
                    ),
                    _connector="OR",
                ),
                name="rate_key",
            ),
        ),
        migrations.SeparateDatabaseAndState(
            # Partitioned by month, which Django can't declare.
            database_operations=[
                migrations.RunSQL(usage_table.CREATE, usage_table.DROP),
                migrations.RunSQL(usage_table.create_function(), usage_table.DROP_FUNCTION),
            ],
            state_operations=[
                migrations.CreateModel(
                    name="UsageRecord",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "hour", "seq", blank=True, editable=False, primary_key=True, serialize=False
                            ),
                        ),
                        ("hour", models.DateTimeField()),
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
                        ("slot", models.DateTimeField()),
                        ("revision", models.PositiveIntegerField(default=0)),
                        ("allocation_id", models.UUIDField(null=True)),
                        ("node_id", models.UUIDField(null=True)),
                        ("namespace", models.CharField(max_length=63)),
                        ("deployment_id", models.UUIDField(null=True)),
                        ("cost_code", models.CharField(blank=True, max_length=60)),
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
                        ("profile", models.CharField(blank=True, max_length=32)),
                        (
                            "bucket",
                            models.CharField(
                                choices=[
                                    ("tenants", "tenants"),
                                    ("idle", "idle"),
                                    ("starting", "starting"),
                                    ("overhead", "overhead (system)"),
                                    ("unavailable", "unavailable"),
                                    ("unattributed", "unattributed"),
                                ],
                                max_length=12,
                            ),
                        ),
                        (
                            "share",
                            models.BigIntegerField(help_text="Charged share, millionths of a card (idle: 1,000,000)."),
                        ),
                        (
                            "memory_mib",
                            models.BigIntegerField(help_text="Requested memory of the card, MiB.", null=True),
                        ),
                        (
                            "cores",
                            models.IntegerField(help_text="Requested compute, percent of the card.", null=True),
                        ),
                        ("slices", models.IntegerField(help_text="Requested MIG compute slices.", null=True)),
                        ("cpu_millicores", models.BigIntegerField(default=0)),
                        ("host_memory_mib", models.BigIntegerField(default=0)),
                        (
                            "milliseconds",
                            models.BigIntegerField(
                                help_text="Signed. For idle: millionths of card-milliseconds ÷ 1e6."
                            ),
                        ),
                        ("charged", models.BigIntegerField(help_text="Signed: share × milliseconds.")),
                        (
                            "physical",
                            models.BigIntegerField(
                                help_text="Signed: charged ÷ max(1, what the card was charged in all)."
                            ),
                        ),
                        (
                            "source",
                            models.CharField(
                                choices=[
                                    ("watch", "watched"),
                                    ("retroactive", "rebuilt from Prometheus"),
                                    ("demo", "demonstration data"),
                                ],
                                default="watch",
                                max_length=12,
                            ),
                        ),
                        (
                            "created_at",
                            models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                        ),
                        (
                            "cluster",
                            models.ForeignKey(
                                db_constraint=False,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="+",
                                to="infra.cluster",
                            ),
                        ),
                        (
                            "gpu_type",
                            models.ForeignKey(
                                db_constraint=False,
                                null=True,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="+",
                                to="infra.gputype",
                            ),
                        ),
                        (
                            "tenant",
                            models.ForeignKey(
                                null=True,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="+",
                                to="tenants.tenant",
                            ),
                        ),
                    ],
                ),
                migrations.AddIndex(
                    model_name="usagerecord",
                    index=models.Index(fields=["tenant", "hour"], name="usage_record_tenant"),
                ),
                migrations.AddIndex(
                    model_name="usagerecord",
                    index=models.Index(fields=["cluster", "hour"], name="usage_record_cluster"),
                ),
            ],
        ),
        # Keys first: adding one reads the table, which row-level security would refuse without a scope.
        TenantForeignKey("billing_billline", "bill_id", "billing_bill"),
        TenantForeignKey("billing_creditnote", "bill_id", "billing_bill"),
        TenantForeignKey("billing_creditnote", "line_id", "billing_billline"),
        EnableRLS("billing_deviceallocation"),
        EnableRLS("billing_usagerecord"),
        EnableRLS("billing_bill"),
        EnableRLS("billing_billline"),
        EnableRLS("billing_creditnote"),
        AppendOnly("billing_usagerecord"),
        AppendOnly("billing_bill"),
        AppendOnly("billing_billline"),
        AppendOnly("billing_creditnote"),
    ]
