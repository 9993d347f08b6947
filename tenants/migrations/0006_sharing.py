"""Quotas on MIG profiles."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0005_namespaces_and_parts"),
    ]

    operations: list[migrations.operations.base.Operation] = []
