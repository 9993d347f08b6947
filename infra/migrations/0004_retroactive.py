from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("infra", "0003_telemetry")]

    operations = []
