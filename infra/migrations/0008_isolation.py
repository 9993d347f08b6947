"""What keeps tenants apart on a cluster."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("infra", "0007_sharing"),
    ]

    operations: list[migrations.operations.base.Operation] = []
