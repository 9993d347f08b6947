"""The switch that stops all writing; credentials that are renewed."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("infra", "0008_isolation"),
    ]

    operations: list[migrations.operations.base.Operation] = []
