"""What was seen of a tenant cluster, written down. Each function runs inside the caller's fenced transaction.

Nothing is written where nothing changed. What could not be asked leaves the last state standing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from infra.kube.errors import KubeError
from infra.models import NamespaceClaim
from infra.services.changes import lock_changes
from infra.services.claims import namespace_claim_end
from portal.kernel.clock import utcnow
from portal.kernel.conditions import Condition, drop_condition, set_condition
from tenants.models import Robot, TenantCluster, TenantNamespace
from tenants.services.allotments import allotments_given_up
from tenants.services.tenantclusters import SYSTEM
from tenants.services.waking import deployments_wake
from tenants.tenantclusters.inside import InsideView
from tenants.tenantclusters.phases import Judged

Phase = TenantCluster.Phase
TROUBLE = "HostAnswers"
"""The condition that is there (False) while the host can't be asked, or refuses."""


def tenant_cluster_waits(pk: UUID, reason: str, message: str) -> None:
    """Something else must be done first; nothing was applied."""
    row = _row(pk)
    if row is None:
        return
    conditions = set_condition(row.conditions, Condition("Ready", "False", reason, message, row.generation))
    phase = row.phase if row.observed_generation else Phase.PENDING
    _store(row, conditions=drop_condition(conditions, TROUBLE), phase=phase)


def tenant_cluster_seen(
    pk: UUID,
    generation: int,
    judged: Judged,
    *,
    chart: str,
    inside: InsideView | None = None,
    ca_pem: str = "",
) -> None:
    """What applying ``generation`` and looking at it gave.

    Args:
        chart: the chart version that runs; "" where it is not known (the last known stays).
        inside, ca_pem: what its API server told; ``None`` where it was not asked (the last answer stays, with its
            time).
    """
    row = _row(pk)
    if row is None or row.generation != generation:
        return
    conditions: list[dict[str, Any]] = row.conditions
    for condition in judged.conditions:
        conditions = set_condition(conditions, condition)
    fields: dict[str, Any] = {
        "conditions": drop_condition(conditions, TROUBLE),
        "phase": judged.phase,
        "observed_generation": generation,
        "running_chart": chart or row.running_chart,
    }
    if inside is not None:
        fields |= {"inside": inside.as_json(), "running_kubernetes": inside.version, "ca_pem": ca_pem}
    _store(row, **fields)
    if inside is not None:
        TenantCluster.objects.filter(pk=row.pk).update(inside_seen_at=utcnow())


def tenant_cluster_unreached(pk: UUID, error: KubeError) -> None:
    """The host did not answer, or refused. The last state stays; a condition says what is in the way."""
    tenant_cluster_trouble(pk, error.reason, error.sentence)


def tenant_cluster_trouble(pk: UUID, reason: str, message: str) -> None:
    """Nothing could be done; the last state stays."""
    row = _row(pk)
    if row is not None:
        condition = Condition(TROUBLE, "False", reason, message, row.generation)
        _store(row, conditions=set_condition(row.conditions, condition))


def tenant_cluster_leaving(pk: UUID, left: Sequence[str]) -> None:
    """It is being deleted, and this is still there."""
    row = _row(pk)
    if row is None:
        return
    message = f"Deleting on {row.cluster.slug}: {'; '.join(left[:3])}."
    if len(left) > 3:
        message += f" And {len(left) - 3} more."
    conditions = set_condition(row.conditions, Condition("Ready", "False", "Deleting", message, row.generation))
    _store(row, conditions=drop_condition(conditions, TROUBLE), leftovers=list(left), phase=Phase.DELETING)


def tenant_cluster_ended(pk: UUID, leftovers: Sequence[str] = ()) -> None:
    """Nothing of it is on the host any more (or the host was given up, with ``leftovers``): give back what it held."""
    row = _row(pk)
    if row is None:
        return
    # In the order of locks: the cluster's changes (a claim ends here, as one begins where something is placed for the
    # first time), quota rows, the namespace's.
    lock_changes(row.cluster_id)
    freed = allotments_given_up(tenant_id=row.tenant_id, cluster_id=row.cluster_id, namespace=row.namespace)
    now = utcnow()
    claims = NamespaceClaim.objects.filter(
        cluster_id=row.cluster_id, namespace=row.namespace, tenant_id=row.tenant_id, valid_to__isnull=True
    )
    for claim in claims:
        namespace_claim_end(claim=claim, valid_to=now, actor=SYSTEM)
    TenantNamespace.objects.filter(tenant_id=row.tenant_id, cluster_id=row.cluster_id, name=row.namespace).delete()
    Robot.objects.filter(tenant_cluster=row, deleted_at__isnull=True).update(deleted_at=now, deleting_at=now)
    message = "It is gone from the host." if not leftovers else "Its host was given up; see what was left there."
    conditions = set_condition(row.conditions, Condition("Ready", "False", "Deleted", message, row.generation))
    _store(
        row,
        conditions=drop_condition(conditions, TROUBLE),
        phase=Phase.DELETED,
        leftovers=list(leftovers),
        deleted_at=now,
        observed_generation=row.generation,
    )
    if freed:
        deployments_wake(tenant_id=row.tenant_id)


def robots_applied(pk: UUID, names: Sequence[str]) -> None:
    """The ServiceAccounts of exactly these robots are inside; those of removed ones are not."""
    now = utcnow()
    Robot.objects.filter(tenant_cluster_id=pk, name__in=names, ready_at__isnull=True).update(ready_at=now)
    gone = Robot.objects.filter(tenant_cluster_id=pk, deleting_at__isnull=False, deleted_at__isnull=True)
    gone.exclude(name__in=names).update(deleted_at=now)


def _row(pk: UUID) -> TenantCluster | None:
    rows = TenantCluster.objects.select_for_update(of=("self",), no_key=True).select_related("tenant", "cluster")
    return rows.filter(pk=pk, deleted_at__isnull=True).first()


def _store(row: TenantCluster, **fields: Any) -> None:
    changed = [name for name, value in fields.items() if getattr(row, name) != value]
    if not changed:
        return
    for name in changed:
        setattr(row, name, fields[name])
    row.updated_at = utcnow()
    row.save(update_fields=[*changed, "updated_at"])
