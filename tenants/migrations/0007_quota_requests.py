"""Asks for another quota."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0006_sharing"),
    ]

    operations: list[migrations.operations.base.Operation] = []
