"""How much of a card a pool hands out."""

from django.db import migrations, models

# The figure is taken when a node is read; those that share cards are read anew.
READ_ANEW = """
UPDATE infra_node SET digest = ''
WHERE gone_at IS NULL AND id IN (SELECT node_id FROM infra_device WHERE register_slots IS NOT NULL)
"""


class Migration(migrations.Migration):
    dependencies = [
        ("infra", "0006_health"),
    ]

    operations = [
        migrations.AddField(
            model_name="nodepool",
            name="overcommit_percent",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="HAMi: memory handed out of each card, percent, as declared; unset: as seen.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="capacityspan",
            name="overcommit_percent",
            field=models.PositiveIntegerField(
                default=100, help_text="HAMi: memory handed out of each card, percent of what it has."
            ),
        ),
        migrations.RunSQL(READ_ANEW, migrations.RunSQL.noop),
    ]
