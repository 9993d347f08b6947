from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_retroactive"), ("infra", "0006_health")]

    operations = []
