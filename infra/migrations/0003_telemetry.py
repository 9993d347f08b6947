import django.db.models.deletion
from django.db import migrations, models

import portal.kernel.ids


class Migration(migrations.Migration):
    dependencies = [("infra", "0002_cluster_endpoint")]

    operations = [
        migrations.CreateModel(
            name="TelemetrySource",
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
                        choices=[("prometheus", "Prometheus"), ("exporter", "dcgm-exporter itself")],
                        default="prometheus",
                        max_length=12,
                    ),
                ),
                (
                    "read_until",
                    models.DateTimeField(blank=True, help_text="Everything before this instant is read.", null=True),
                ),
                (
                    "interval_ms",
                    models.PositiveIntegerField(
                        default=30000, help_text="Between two samples, as the source has them."
                    ),
                ),
                ("last_sample_at", models.DateTimeField(blank=True, null=True)),
                ("unmapped", models.JSONField(blank=True, default=list)),
                ("silent", models.JSONField(blank=True, default=list)),
                ("dropped", models.JSONField(blank=True, default=dict)),
                ("dropped_total", models.PositiveBigIntegerField(default=0)),
                ("counters", models.JSONField(blank=True, default=dict)),
                ("conditions", models.JSONField(blank=True, default=list)),
                ("not_before", models.DateTimeField(blank=True, help_text="Not scraped again before.", null=True)),
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="telemetry", to="infra.cluster"
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="DeviceSighting",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("namespace", models.CharField(max_length=63)),
                ("pod", models.CharField(max_length=253)),
                ("pod_uid", models.CharField(blank=True, max_length=64)),
                ("container", models.CharField(blank=True, max_length=253)),
                ("node", models.CharField(blank=True, max_length=253)),
                ("uuid", models.CharField(help_text="The physical card, also of a MIG instance.", max_length=80)),
                ("mig_instance", models.CharField(blank=True, max_length=80)),
                ("mig_profile", models.CharField(blank=True, max_length=32)),
                ("shared", models.BooleanField(default=False, help_text="Others held it at the same time.")),
                ("first_seen", models.DateTimeField()),
                ("last_seen", models.DateTimeField()),
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
                ("changed_seq", models.BigIntegerField(default=0)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.cluster"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["cluster", "changed_seq"], name="device_sighting_changed"),
                    models.Index(fields=["cluster", "namespace", "pod"], name="device_sighting_by_name"),
                    models.Index(fields=["cluster", "uuid", "last_seen"], name="device_sighting_by_card"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("pod_uid", ""), _negated=True),
                        fields=("cluster", "pod_uid", "container", "uuid", "mig_instance"),
                        name="device_sighting_unique",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("last_seen__gte", models.F("first_seen"))), name="device_sighting_forward"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TelemetryGap",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("node", models.CharField(blank=True, max_length=253)),
                (
                    "kind",
                    models.CharField(
                        choices=[("silent", "no samples"), ("unmapped", "no pod names"), ("partial", "partial answer")],
                        max_length=10,
                    ),
                ),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="telemetry_gaps", to="infra.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["-started_at", "node"],
                "indexes": [models.Index(fields=["cluster", "ended_at"], name="telemetry_gap_by_time")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("ended_at__gt", models.F("started_at"))), name="telemetry_gap_forward"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="TelemetryHour",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("node", models.CharField(blank=True, max_length=253)),
                ("uuid", models.CharField(max_length=80)),
                ("mig_instance", models.CharField(blank=True, max_length=80)),
                ("mig_profile", models.CharField(blank=True, max_length=32)),
                ("scope", models.CharField(choices=[("card", "card"), ("pod", "pod on a shared card")], max_length=4)),
                ("namespace", models.CharField(blank=True, max_length=63)),
                ("pod", models.CharField(blank=True, max_length=253)),
                ("container", models.CharField(blank=True, max_length=253)),
                ("busy_ms", models.BigIntegerField(help_text="Utilisation × time, milliseconds.", null=True)),
                (
                    "observed_ms",
                    models.BigIntegerField(help_text="Time for which the utilisation is known.", null=True),
                ),
                (
                    "memory_mib_ms",
                    models.DecimalField(decimal_places=0, help_text="MiB × milliseconds.", max_digits=24, null=True),
                ),
                ("memory_observed_ms", models.BigIntegerField(null=True)),
                ("memory_max_mib", models.BigIntegerField(null=True)),
                ("energy_mj", models.BigIntegerField(help_text="Energy, millijoule.", null=True)),
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
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="infra.cluster"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["cluster", "namespace", "hour"], name="telemetry_hour_namespace")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "hour", "uuid", "mig_instance", "scope", "namespace", "pod", "container"),
                        name="telemetry_hour_unique",
                    )
                ],
            },
        ),
    ]
