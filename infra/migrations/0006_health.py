import django.db.models.deletion
import portal.kernel.ids
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("infra", "0005_adoption")]

    operations = [
        migrations.AddField(
            model_name="capacityspan",
            name="unavailable_devices",
            field=models.JSONField(
                blank=True, default=list, help_text="UUIDs of the unavailable cards, as far as they are known."
            ),
        ),
        migrations.AddField(
            model_name="node",
            name="boot_id",
            field=models.CharField(blank=True, help_text="Changes with each start of the machine.", max_length=64),
        ),
        migrations.CreateModel(
            name="HealthEvent",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("device", models.CharField(blank=True, max_length=80)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("xid", "XID"),
                            ("condition", "condition of the node"),
                            ("hami", "HAMi"),
                            ("allocatable", "cards not handed out"),
                            ("heartbeat", "no heartbeat"),
                        ],
                        max_length=12,
                    ),
                ),
                ("code", models.CharField(help_text="79, GpuMemWatch, …", max_length=60)),
                (
                    "fault_class",
                    models.CharField(
                        choices=[
                            ("application", "application"),
                            ("watch", "watch"),
                            ("reset", "reset"),
                            ("memory", "memory"),
                            ("link", "link"),
                            ("node", "node"),
                            ("info", "info"),
                            ("unknown", "unknown"),
                        ],
                        max_length=12,
                    ),
                ),
                ("started_at", models.DateTimeField()),
                (
                    "not_before",
                    models.DateTimeField(
                        blank=True,
                        help_text="The last sample without it: it began after that, and by started_at.",
                        null=True,
                    ),
                ),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("ended_by", models.CharField(blank=True, max_length=200)),
                ("boot_id", models.CharField(blank=True, help_text="Of the node when it began.", max_length=64)),
                ("source", models.CharField(help_text="Where it was read: metrics, node.", max_length=40)),
                ("message", models.TextField(blank=True)),
                (
                    "affects",
                    models.JSONField(
                        blank=True, default=list, help_text="Pods on the card then: [namespace, pod, uid]."
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.cluster"
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="health_events", to="infra.node"
                    ),
                ),
            ],
            options={
                "ordering": ["-started_at", "-id"],
                "indexes": [
                    models.Index(fields=["cluster", "started_at"], name="health_event_by_time"),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)), fields=["node"], name="health_event_open"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "node", "device", "kind", "code", "started_at"), name="health_event_once"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("cluster", "node", "device", "kind", "code"),
                        name="health_event_one_open",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ended_at__isnull", True), ("ended_at__gte", models.F("started_at")), _connector="OR"
                        ),
                        name="health_event_forward",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="XidGauge",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("device", models.CharField(max_length=80)),
                ("xid", models.PositiveIntegerField()),
                ("at_ms", models.BigIntegerField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="infra.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("cluster", "device"), name="xid_gauge_unique")],
            },
        ),
    ]
