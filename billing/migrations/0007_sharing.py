"""A rate of its own for pools that promise more than they have."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0006_card_binding"),
    ]

    operations: list[migrations.operations.base.Operation] = []
