"""What is taken of nodes, in one query: the larger of what we promised and what is seen, replica by replica, and all
that is seen of others.

*Replica by replica*, not node by node: where one replica is promised but not there yet and another is gone from the
books but still ends, both need room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from uuid import UUID

from django.db import connection

from infra.ledger import UNKNOWN_ZONE, Taken
from infra.owners import zones_of

_USAGE = """
WITH held AS (
    SELECT node_id, replica_id, profile, device_uuid AS uuid, zone_id::text AS zone, sum(cards) AS cards,
           sum(slices) AS slices, sum(memory_mib) AS memory_mib, sum(cores) AS cores, count(*) AS pods
    FROM infra_reservation
    WHERE released_at IS NULL {reserved_on}
    GROUP BY node_id, replica_id, profile, device_uuid, zone_id
), seen AS (
    -- MIG strategy single: what a pod asks for as a card is an instance of the node's profile.
    -- A resource writes 1g.10gb.me for the profile 1g.10gb+me.
    -- A card that the node's register never had (the pod wrote its record itself) is not known: a share without a card.
    SELECT n.id AS node_id, p.replica_id, c.tenant_id, coalesce(d.uuid, '') AS uuid,
           regexp_replace(
               CASE WHEN n.mig_profile <> '' AND h.cards > 0 THEN n.mig_profile ELSE coalesce(h.profile, '') END,
               'gb[.]', 'gb+'
           ) AS profile,
           sum(CASE WHEN n.mig_profile = '' THEN coalesce(h.cards, 0) ELSE 0 END) AS cards,
           sum(coalesce(h.slices, 0) + CASE WHEN n.mig_profile <> '' THEN coalesce(h.cards, 0) ELSE 0 END) AS slices,
           sum(CASE WHEN d.id IS NULL THEN 0 ELSE coalesce(h.memory_mib, 0) END) AS memory_mib,
           sum(CASE WHEN d.id IS NULL THEN 0 ELSE coalesce(h.cores, 0) END) AS cores,
           sum(CASE WHEN h.uuid <> '' AND d.id IS NULL THEN 1 ELSE coalesce(h.unpinned, 0) END) AS unpinned,
           count(*) AS pods
    FROM infra_podobservation p
    JOIN infra_node n ON n.cluster_id = p.cluster_id AND n.name = p.node_name AND n.gone_at IS NULL
    LEFT JOIN infra_namespaceclaim c
        ON c.cluster_id = p.cluster_id AND c.namespace = p.namespace AND c.valid_to IS NULL
    CROSS JOIN LATERAL jsonb_to_recordset(p.holds)
        AS h (cards int, profile text, slices int, uuid text, memory_mib bigint, cores int, unpinned int)
    LEFT JOIN infra_device d ON d.cluster_id = p.cluster_id AND d.uuid = h.uuid AND d.node_id = n.id
    WHERE p.ended_at IS NULL AND p.gone_at IS NULL AND p.node_name <> '' {seen_on}
    GROUP BY 1, 2, 3, 4, 5
), promised AS (
    SELECT DISTINCT node_id, replica_id FROM held
)
SELECT coalesce(h.node_id, s.node_id) AS node_id, coalesce(h.profile, s.profile), coalesce(h.uuid, s.uuid),
       sum(greatest(coalesce(h.cards, 0), coalesce(s.cards, 0)))::bigint,
       sum(greatest(coalesce(h.slices, 0), coalesce(s.slices, 0)))::bigint,
       sum(greatest(coalesce(h.memory_mib, 0), coalesce(s.memory_mib, 0)))::bigint,
       sum(greatest(coalesce(h.cores, 0), coalesce(s.cores, 0)))::bigint,
       sum(greatest(coalesce(h.pods, 0), CASE WHEN s.unpinned > 0 THEN 0 ELSE coalesce(s.pods, 0) END))::bigint,
       sum(CASE WHEN pr.node_id IS NULL THEN coalesce(s.unpinned, 0) ELSE 0 END)::bigint,
       array_agg(DISTINCT h.zone) FILTER (WHERE h.profile || h.uuid <> ''),
       array_agg(DISTINCT s.tenant_id) FILTER (WHERE h.zone IS NULL AND s.profile || s.uuid <> ''),
       bool_or(h.zone IS NULL AND s.tenant_id IS NULL AND s.profile || s.uuid <> '')
FROM held h
FULL JOIN seen s
    ON s.node_id = h.node_id AND s.replica_id = h.replica_id AND s.profile = h.profile AND s.uuid = h.uuid
LEFT JOIN promised pr ON pr.node_id = s.node_id AND pr.replica_id = s.replica_id
GROUP BY 1, 2, 3
"""


def taken_by_node(node_ids: Collection[UUID] | None = None) -> dict[UUID, list[Taken]]:
    """What is taken, by node; of all nodes, or of those named. Nodes of which nothing is taken are left out."""
    reserved_on = seen_on = ""
    parameters: list[list[UUID]] = []
    if node_ids is not None:
        reserved_on, seen_on = "AND node_id = ANY(%s)", "AND n.id = ANY(%s)"
        parameters = [list(node_ids), list(node_ids)]
    with connection.cursor() as cursor:
        # Only constant conditions go into the text.
        cursor.execute(_USAGE.format(reserved_on=reserved_on, seen_on=seen_on), parameters)
        rows = cursor.fetchall()
    # Whose zone a holder is in matters only where cards are shared; of whole cards it is not collected.
    zones = zones_of({tenant for row in rows for tenant in row[10] or () if tenant})
    found: dict[UUID, list[Taken]] = defaultdict(list)
    for node_id, profile, uuid, cards, slices, memory, cores, pods, unpinned, promised, tenants, nobodys in rows:
        on_it = set(promised or ())
        on_it |= {str(zones[tenant]) if tenant in zones else UNKNOWN_ZONE for tenant in tenants or ()}
        if nobodys:
            on_it.add(UNKNOWN_ZONE)
        found[node_id].append(Taken(profile, uuid, cards, slices, memory, cores, pods, unpinned, frozenset(on_it)))
    return dict(found)
