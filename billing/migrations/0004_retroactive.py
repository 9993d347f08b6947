from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_hours"), ("infra", "0004_retroactive")]

    operations = []
