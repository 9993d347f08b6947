"""Shares with figures of their own, more limits of namespaces, and quotas on MIG profiles."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0005_namespaces_and_parts"),
    ]

    operations = [
        # Who is there already keeps what it could do so far; new tenants begin without.
        migrations.AddField(
            model_name="tenant",
            name="free_shares",
            field=models.BooleanField(
                default=True,
                help_text="Shares of cards may state memory and cores of their own, beside the named parts.",
            ),
        ),
        migrations.AlterField(
            model_name="tenant",
            name="free_shares",
            field=models.BooleanField(
                default=False,
                help_text="Shares of cards may state memory and cores of their own, beside the named parts.",
            ),
        ),
        migrations.AddField(
            model_name="tenant",
            name="namespace_limits",
            field=models.JSONField(
                blank=True, default=dict, help_text='More keys of its namespaces\' ResourceQuota: {"pods": "200"}.'
            ),
        ),
        migrations.AddField(
            model_name="gpuquota",
            name="profiles",
            field=models.JSONField(blank=True, default=dict),
        ),
    ]
