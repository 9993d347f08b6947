"""The switch that stops all writing; credentials that are renewed."""

import django.db.models.functions.datetime
from django.db import migrations, models

import portal.kernel.ids


class Migration(migrations.Migration):
    dependencies = [
        ("infra", "0008_isolation"),
    ]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="credential_issued_at",
            field=models.DateTimeField(blank=True, help_text="From when they are good; empty: not known.", null=True),
        ),
        migrations.CreateModel(
            name="WriteStop",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=portal.kernel.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("singleton", models.BooleanField(default=True, editable=False, unique=True)),
                ("stopped_by", models.CharField(max_length=200)),
                ("stopped_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("reason", models.TextField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("singleton", True)), name="write_stop_is_one")
                ],
            },
        ),
    ]
