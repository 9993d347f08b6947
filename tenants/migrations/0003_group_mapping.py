from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_tenant_isolation")]

    operations = []
