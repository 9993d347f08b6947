"""Parts that are handed over, moved by request; asks for another quota."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import portal.kernel.ids
from portal.kernel.rls import EnableRLS, TenantForeignKey


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0006_sharing"),
    ]

    operations = [
        migrations.AddField(
            model_name="quotaallotment",
            name="handed",
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="quotaallotment",
            name="leaving",
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AddConstraint(
            model_name="quotaallotment",
            constraint=models.CheckConstraint(
                condition=models.Q(("leaving__lte", models.F("handed"))), name="quota_allotment_leaving_within_handed"
            ),
        ),
        migrations.AddConstraint(
            model_name="quotaallotment",
            constraint=models.CheckConstraint(
                condition=models.Q(("fixed", True), ("handed__gt", 0)) | models.Q(("fixed", False), ("handed", 0)),
                name="quota_allotment_fixed_is_handed",
            ),
        ),
        migrations.CreateModel(
            name="ClusterQueueing",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("enabled", models.BooleanField(default=False)),
                ("draining", models.BooleanField(default=False)),
                ("api_version", models.CharField(blank=True, max_length=60)),
                ("generation", models.PositiveBigIntegerField(default=1)),
                ("observed_generation", models.PositiveBigIntegerField(default=0)),
                ("conditions", models.JSONField(blank=True, default=list)),
                (
                    "queues",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Namespaces whose LocalQueue was applied, and whose they are.",
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="queueing", to="infra.cluster"
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="QuotaRequest",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("guaranteed", models.PositiveBigIntegerField()),
                ("limit", models.PositiveBigIntegerField()),
                (
                    "starts_at",
                    models.DateTimeField(blank=True, help_text="Empty: as soon as it is approved.", null=True),
                ),
                ("until", models.DateTimeField(blank=True, help_text="Empty: for good.", null=True)),
                ("reason", models.TextField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("draft", "draft"),
                            ("submitted", "submitted"),
                            ("approved", "approved"),
                            ("denied", "denied"),
                            ("withdrawn", "withdrawn"),
                            ("expired", "expired"),
                        ],
                        default="draft",
                        max_length=10,
                    ),
                ),
                ("authors", models.JSONField(default=list)),
                ("created_by", models.CharField(max_length=150)),
                ("submitted_at", models.DateTimeField(blank=True, null=True)),
                ("decided_by", models.CharField(blank=True, max_length=150)),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                ("in_force_since", models.DateTimeField(blank=True, null=True)),
                ("former_guaranteed", models.PositiveBigIntegerField(blank=True, null=True)),
                ("former_limit", models.PositiveBigIntegerField(blank=True, null=True)),
                (
                    "set_generation",
                    models.PositiveBigIntegerField(blank=True, help_text="The quota's, when it was set.", null=True),
                ),
                ("ended_at", models.DateTimeField(blank=True, help_text="When its time box had passed.", null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "gpu_type",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.gputype"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="QuotaComment",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("author", models.CharField(max_length=150)),
                ("text", models.TextField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="comments", to="tenants.quotarequest"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["tenant", "request", "created_at"], name="quota_comment_of")],
            },
        ),
        migrations.CreateModel(
            name="AllotmentMove",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("amount", models.PositiveBigIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[("pending", "waits for the cluster"), ("done", "done"), ("failed", "failed")],
                        default="pending",
                        max_length=8,
                    ),
                ),
                ("message", models.TextField(blank=True)),
                ("asked_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "goal",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.quotaallotment",
                    ),
                ),
                (
                    "quota",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.gpuquota"
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.quotaallotment",
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
                "indexes": [models.Index(fields=["tenant", "state", "created_at"], name="allotment_move_of")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("source__isnull", False), ("goal__isnull", False), _connector="OR"),
                        name="allotment_move_somewhere",
                    ),
                    models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="allotment_move_some"),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="quotarequest",
            index=models.Index(fields=["state", "submitted_at"], name="quota_request_inbox"),
        ),
        migrations.AddIndex(
            model_name="quotarequest",
            index=models.Index(fields=["tenant", "created_at"], name="quota_request_of"),
        ),
        migrations.AddConstraint(
            model_name="quotarequest",
            constraint=models.CheckConstraint(
                condition=models.Q(("guaranteed__lte", models.F("limit"))), name="quota_request_guaranteed_within_limit"
            ),
        ),
        migrations.AddConstraint(
            model_name="quotarequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("until__isnull", True),
                    ("starts_at__isnull", True),
                    ("until__gt", models.F("starts_at")),
                    _connector="OR",
                ),
                name="quota_request_forward",
            ),
        ),
        EnableRLS("tenants_quotarequest"),
        TenantForeignKey("tenants_quotacomment", "request_id", "tenants_quotarequest"),
        EnableRLS("tenants_quotacomment"),
        TenantForeignKey("tenants_allotmentmove", "quota_id", "tenants_gpuquota"),
        TenantForeignKey("tenants_allotmentmove", "source_id", "tenants_quotaallotment"),
        TenantForeignKey("tenants_allotmentmove", "goal_id", "tenants_quotaallotment"),
        EnableRLS("tenants_allotmentmove"),
    ]
