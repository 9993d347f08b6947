"""What keeps tenants apart on a cluster."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("infra", "0007_sharing"),
    ]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="isolation",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text="What keeps tenants apart there, as the cluster told (infra.isolation).",
            ),
        ),
        migrations.AddField(
            model_name="cluster",
            name="isolation_said",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text="What platform-admins declared, and what they accepted (infra.isolation).",
            ),
        ),
        migrations.AddField(
            model_name="cluster",
            name="isolation_wanted",
            field=models.BooleanField(default=True, help_text="Unset: our admission policies are taken down."),
        ),
    ]
