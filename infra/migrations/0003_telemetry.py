from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("infra", "0002_cluster_endpoint")]

    operations = []
