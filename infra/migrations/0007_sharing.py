"""How much of a card a pool hands out."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("infra", "0006_health"),
    ]

    operations: list[migrations.operations.base.Operation] = []
