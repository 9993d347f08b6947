from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_hours"), ("infra", "0004_retroactive")]

    operations = [
        migrations.AddField(
            model_name="deviceallocation",
            name="proved_by_api",
            field=models.BooleanField(
                default=False, help_text="Retroactive: the pod's own status in the Kubernetes API proves it."
            ),
        ),
        migrations.AddField(
            model_name="deviceallocation",
            name="start_error_ms",
            field=models.BigIntegerField(default=0, help_text="Retroactive: it may have begun so much earlier."),
        ),
        migrations.AddField(
            model_name="deviceallocation",
            name="end_error_ms",
            field=models.BigIntegerField(default=0, help_text="Retroactive: it may have ended so much later."),
        ),
    ]
