from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial"), ("infra", "0002_cluster_endpoint")]

    operations = []
