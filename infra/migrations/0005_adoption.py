import django.db.models.deletion
import django.db.models.functions.datetime
import portal.kernel.ids
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("infra", "0004_retroactive"),
    ]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="rights",
            field=models.JSONField(
                blank=True, default=dict, help_text="infra.rights.RightsReport as JSON; empty: not asked."
            ),
        ),
        migrations.AddField(
            model_name="cluster",
            name="rights_checked_at",
            field=models.DateTimeField(blank=True, help_text="Empty: they are asked for at the next probe.", null=True),
        ),
        migrations.AddField(
            model_name="namespaceclaim",
            name="inferred",
            field=models.BooleanField(
                default=False, help_text="It follows a label: it changes when the watch shows it."
            ),
        ),
        migrations.AddField(
            model_name="podobservation",
            name="label_cost_code",
            field=models.CharField(blank=True, help_text="From the pod's cost-code label.", max_length=63),
        ),
        migrations.AddField(
            model_name="podobservation",
            name="queue",
            field=models.CharField(
                blank=True, help_text="Kueue's LocalQueue, or the job's id in Slurm.", max_length=253
            ),
        ),
        migrations.AddField(
            model_name="podobservation",
            name="workload_kind",
            field=models.CharField(blank=True, help_text="Deployment, CronJob, Notebook, Pod …", max_length=63),
        ),
        migrations.AddField(
            model_name="podobservation",
            name="workload_known",
            field=models.CharField(blank=True, help_text="A value of infra.workloads.Known.", max_length=24),
        ),
        migrations.AddField(
            model_name="podobservation",
            name="workload_name",
            field=models.CharField(blank=True, max_length=253),
        ),
        migrations.AlterField(
            model_name="watchtarget",
            name="resource",
            field=models.CharField(
                choices=[("pods", "pods"), ("nodes", "nodes"), ("namespaces", "namespaces")], max_length=12
            ),
        ),
        migrations.CreateModel(
            name="ClaimRule",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("position", models.PositiveIntegerField(help_text="Lower comes first.")),
                ("kind", models.CharField(choices=[("label", "by a label"), ("name", "by the name")], max_length=8)),
                ("label_key", models.CharField(blank=True, max_length=317)),
                ("label_value", models.CharField(blank=True, max_length=63)),
                ("by_slug", models.BooleanField(default=False)),
                (
                    "pattern",
                    models.CharField(
                        blank=True, help_text="Of the namespace's name: * and ? stand for more.", max_length=120
                    ),
                ),
                ("tenant_id", models.UUIDField(blank=True, null=True)),
                ("cost_code", models.CharField(blank=True, max_length=60)),
                (
                    "cost_code_label",
                    models.CharField(blank=True, help_text="A label whose value is the cost code.", max_length=317),
                ),
                ("valid_from", models.DateTimeField()),
                ("moved_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="claim_rules",
                        to="infra.cluster",
                    ),
                ),
                (
                    "site",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="claim_rules",
                        to="infra.site",
                    ),
                ),
            ],
            options={
                "ordering": ["position", "created_at"],
            },
        ),
        migrations.AddField(
            model_name="namespaceclaim",
            name="rule",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="claims",
                to="infra.claimrule",
            ),
        ),
        migrations.CreateModel(
            name="NamespaceSight",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=63)),
                ("uid", models.CharField(max_length=64)),
                ("labels", models.JSONField(blank=True, default=dict)),
                ("labels_since", models.JSONField(blank=True, default=dict)),
                ("kept", models.JSONField(blank=True, default=list)),
                ("created_at", models.DateTimeField(blank=True, help_text="What the cluster says.", null=True)),
                ("resource_version", models.CharField(blank=True, max_length=40)),
                ("first_seen_at", models.DateTimeField()),
                ("gone_at", models.DateTimeField(blank=True, null=True)),
                (
                    "gone_inferred_after",
                    models.DateTimeField(
                        blank=True,
                        help_text="Set when it was missing after a relist: last proof that it was there.",
                        null=True,
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="namespaces", to="infra.cluster"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="OwnerSight",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("uid", models.CharField(max_length=64)),
                ("kind", models.CharField(max_length=63)),
                ("namespace", models.CharField(max_length=63)),
                ("name", models.CharField(max_length=253)),
                ("parent_kind", models.CharField(blank=True, max_length=63)),
                ("parent_name", models.CharField(blank=True, max_length=253)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("seen", "seen"),
                            ("forbidden", "not readable"),
                            ("gone", "gone before it could be read"),
                        ],
                        max_length=10,
                    ),
                ),
                ("seen_at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="infra.cluster"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="claimrule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("by_slug", True), ("tenant_id__isnull", True)),
                    models.Q(("by_slug", False), ("tenant_id__isnull", False)),
                    _connector="OR",
                ),
                name="claim_rule_one_tenant",
            ),
        ),
        migrations.AddConstraint(
            model_name="claimrule",
            constraint=models.CheckConstraint(
                condition=models.Q(("cluster__isnull", True), ("site__isnull", True), _connector="OR"),
                name="claim_rule_one_place",
            ),
        ),
        migrations.AddConstraint(
            model_name="claimrule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("kind", "label"),
                    models.Q(
                        ("by_slug", False),
                        models.Q(("cluster__isnull", False), ("site__isnull", False), _connector="OR"),
                    ),
                    _connector="OR",
                ),
                name="claim_rule_name_has_place",
            ),
        ),
        migrations.AddIndex(
            model_name="namespacesight",
            index=models.Index(fields=["cluster", "name"], name="namespace_sight_by_name"),
        ),
        migrations.AddConstraint(
            model_name="namespacesight",
            constraint=models.UniqueConstraint(fields=("cluster", "uid"), name="namespace_sight_unique"),
        ),
        migrations.AddConstraint(
            model_name="ownersight",
            constraint=models.UniqueConstraint(fields=("cluster", "uid"), name="owner_sight_unique"),
        ),
    ]
