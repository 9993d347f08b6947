"""What a node was is kept with the times for which it was so: time slices, MIG geometry, and since which change."""

from django.db import migrations, models

# It was read of the node's present label: for what was recorded so far, that is the best known.
REPLICAS = """
UPDATE infra_capacityspan SET timeslice_replicas = greatest(1, (infra_node.labels ->> 'nvidia.com/gpu.replicas')::int)
FROM infra_node
WHERE infra_node.id = infra_capacityspan.node_id AND infra_node.labels ->> 'nvidia.com/gpu.replicas' ~ '^[0-9]{1,6}$'
"""

# Of what lasts, the node says it; of what has ended nothing better is known than before, and it stays empty.
LAYOUT = """
UPDATE infra_capacityspan SET mig_layout = told.layout
FROM (
    SELECT node.id, jsonb_object_agg(
        CASE WHEN key = 'nvidia.com/gpu' THEN node.mig_profile ELSE replace(key, 'nvidia.com/mig-', '') END, value::int
    ) AS layout
    FROM infra_node AS node, jsonb_each_text(node.capacity) AS told (key, value)
    WHERE (key = 'nvidia.com/gpu' OR key LIKE 'nvidia.com/mig-%') AND value ~ '^[1-9][0-9]{0,5}$'
    GROUP BY node.id
) AS told
WHERE told.id = infra_capacityspan.node_id AND infra_capacityspan.sharing = 'mig' AND ended_at IS NULL
"""

BEGAN = "UPDATE infra_capacityspan SET began_seq = changed_seq"


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
        migrations.AddField(
            model_name="capacityspan",
            name="mig_layout",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text='MIG: profile → its instances on the node; "": cards that were not cut.',
            ),
        ),
        migrations.AddField(
            model_name="capacityspan",
            name="began_seq",
            field=models.BigIntegerField(
                blank=True, help_text="The change since which its state is what it is; empty: not known.", null=True
            ),
        ),
        migrations.RunSQL(REPLICAS, migrations.RunSQL.noop),
        migrations.RunSQL(LAYOUT, migrations.RunSQL.noop),
        migrations.RunSQL(BEGAN, migrations.RunSQL.noop),
    ]
