"""Claims brought to the rules: after a rule was changed, and now and then for what no event tells (a new tenant)."""

from __future__ import annotations

from infra.models import ClaimRule, Cluster
from infra.services.claim_rules import WORK_KIND, rules_apply
from portal.kernel import ticks, workqueue
from portal.kernel.clock import utcnow
from portal.kernel.workqueue import Claimed, Done, Mark, Outcome


@ticks.every(300, "infra.claim_rules.follow")
def mark_all() -> None:
    """Look at all clusters, if there is a rule at all."""
    if not ClaimRule.objects.filter(ended_at__isnull=True).exists():
        return
    ids = Cluster.objects.filter(abandoned_at__isnull=True).values_list("pk", flat=True)
    workqueue.mark_many(Mark(WORK_KIND, pk, cluster_id=pk, cause="resync") for pk in ids)


@workqueue.register(WORK_KIND, lease_seconds=120)
def reconcile(item: Claimed) -> Outcome:
    """Apply the rules to one cluster. Nothing is asked of it."""
    cluster = Cluster.objects.filter(pk=item.object_id, abandoned_at__isnull=True).first()
    if cluster is not None:
        with item.fenced():
            rules_apply(cluster, at=utcnow())
    return Done()
