"""Tenant clusters."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0007_quota_requests"),
    ]

    operations: list[migrations.operations.base.Operation] = []
