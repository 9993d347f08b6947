import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import portal.kernel.ids

STATES = [
    ("pending", "waiting"),
    ("running", "running"),
    ("paused", "paused"),
    ("done", "done"),
    ("failed", "failed"),
    ("cancelled", "cancelled"),
]


class Migration(migrations.Migration):
    dependencies = [("infra", "0003_telemetry")]

    operations = [
        migrations.AddField(
            model_name="podobservation",
            name="past",
            field=models.JSONField(
                blank=True,
                help_text="Retroactive rows: what history says, and its error; infra.services.past_pods.",
                null=True,
            ),
        ),
        migrations.CreateModel(
            name="Rebuild",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("state", models.CharField(choices=STATES, default="pending", max_length=10)),
                (
                    "from_at",
                    models.DateTimeField(
                        help_text="As far back as was asked for; moved up to where the history begins."
                    ),
                ),
                (
                    "until_at",
                    models.DateTimeField(help_text="The watch's begin: from here on the watch proves everything."),
                ),
                ("cursor", models.DateTimeField()),
                ("searched_to", models.DateTimeField()),
                (
                    "oldest_sample_at",
                    models.DateTimeField(blank=True, help_text="How far the history reaches.", null=True),
                ),
                (
                    "window_seconds",
                    models.PositiveIntegerField(help_text="The next window's length; halved where it is too large."),
                ),
                ("step_seconds", models.PositiveIntegerField(help_text="Between two looks within a window.")),
                ("windows_done", models.PositiveIntegerField(default=0)),
                ("queries", models.PositiveBigIntegerField(default=0)),
                ("pods", models.PositiveIntegerField(default=0, help_text="Rebuilt pods that asked for cards.")),
                (
                    "pods_proved",
                    models.PositiveIntegerField(default=0, help_text="Of them, those that the Kubernetes API proves."),
                ),
                ("nodes", models.PositiveIntegerField(default=0)),
                (
                    "error_ms",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Σ over pods: by how much their edges may be wrong, ms."
                    ),
                ),
                (
                    "gaps",
                    models.JSONField(default=list, help_text="[[from, until], …], RFC 3339: times without any scrape."),
                ),
                ("notes", models.JSONField(default=list, help_text="What could not be read, in sentences.")),
                ("failures", models.PositiveIntegerField(default=0, help_text="In a row.")),
                ("last_error", models.TextField(blank=True)),
                ("requested_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="rebuilds", to="infra.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ["pending", "running", "paused"])),
                        fields=("cluster",),
                        name="rebuild_one_active",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("searched_to__lte", models.F("cursor")), ("cursor__lte", models.F("until_at"))
                        ),
                        name="rebuild_cursor",
                    ),
                ],
            },
        ),
    ]
