"""How much of a card a pool hands out."""

from django.db import migrations, models

# The figure is taken when a node is read; those that share cards are read anew.
READ_ANEW = """
UPDATE infra_node SET digest = ''
WHERE gone_at IS NULL AND id IN (SELECT node_id FROM infra_device WHERE register_slots IS NOT NULL)
"""

# What a node's slices were was kept with the node alone: for what was recorded so far, the last is the best known.
PROFILES = """
UPDATE infra_capacityspan SET mig_profile = infra_node.mig_profile
FROM infra_node WHERE infra_node.id = infra_capacityspan.node_id AND infra_capacityspan.sharing = 'mig'
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
        migrations.AddField(
            model_name="capacityspan",
            name="mig_profile",
            field=models.CharField(
                blank=True, help_text="MIG, strategy single: what one nvidia.com/gpu of the node was.", max_length=32
            ),
        ),
        migrations.RunSQL(READ_ANEW, migrations.RunSQL.noop),
        migrations.RunSQL(PROFILES, migrations.RunSQL.noop),
    ]
