"""Zones."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0008_tenant_clusters"),
    ]

    operations: list[migrations.operations.base.Operation] = []
