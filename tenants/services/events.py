"""The timeline of a deployment: what happened, for people. Repeats count up instead of piling up."""

from __future__ import annotations

from django.db import connection

from portal.kernel.clock import utcnow
from portal.kernel.ids import uuid7
from tenants.models import ModelDeployment

_ADD = """
WITH last AS (
    SELECT id, reason, message FROM tenants_deploymentevent
    WHERE tenant_id = %(tenant)s AND deployment_id = %(deployment)s AND replica_index IS NOT DISTINCT FROM %(replica)s
    ORDER BY last_at DESC, id DESC LIMIT 1
), repeated AS (
    UPDATE tenants_deploymentevent e SET last_at = %(now)s, count = e.count + 1
    FROM last WHERE e.id = last.id AND last.reason = %(reason)s AND last.message = %(message)s
    RETURNING e.id
)
INSERT INTO tenants_deploymentevent
    (id, tenant_id, deployment_id, replica_index, reason, message, generation, first_at, last_at, count)
SELECT
    %(id)s, %(tenant)s, %(deployment)s, %(replica)s::int, %(reason)s, %(message)s, %(generation)s, %(now)s, %(now)s, 1
WHERE NOT EXISTS (SELECT FROM repeated)
"""


def event_add(
    deployment: ModelDeployment,
    reason: str,
    message: str,
    *,
    replica_index: int | None = None,
    generation: int | None = None,
) -> None:
    """Add a step to the timeline, within the caller's scope and transaction.

    A step that says the same as the last one of that replica is counted, not added. One statement.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _ADD,
            {
                "id": uuid7(),
                "tenant": deployment.tenant_id,
                "deployment": deployment.pk,
                "replica": replica_index,
                "reason": reason[:60],
                "message": message,
                "generation": deployment.generation if generation is None else generation,
                "now": utcnow(),
            },
        )
