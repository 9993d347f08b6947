"""How many pods shared a time-sliced card is kept with the times for which it was so."""

from django.db import migrations, models

# It was read of the node's present label: for what was recorded so far, that is the best known.
REPLICAS = """
UPDATE infra_capacityspan SET timeslice_replicas = greatest(1, (infra_node.labels ->> 'nvidia.com/gpu.replicas')::int)
FROM infra_node
WHERE infra_node.id = infra_capacityspan.node_id AND infra_node.labels ->> 'nvidia.com/gpu.replicas' ~ '^[0-9]{1,6}$'
"""


class Migration(migrations.Migration):
    dependencies = [
        ("infra", "0009_operations"),
    ]

    operations = [
        migrations.AddField(
            model_name="capacityspan",
            name="timeslice_replicas",
            field=models.PositiveIntegerField(
                default=1, help_text="Time-slicing: how many pods shared a card of the node."
            ),
        ),
        migrations.RunSQL(REPLICAS, migrations.RunSQL.noop),
    ]
