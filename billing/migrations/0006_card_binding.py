from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0005_credits"), ("infra", "0003_telemetry")]

    operations = [
        migrations.AddField(
            model_name="deviceallocation",
            name="mig_instance",
            field=models.CharField(blank=True, default="", help_text="The instance of a MIG card.", max_length=80),
        ),
    ]
