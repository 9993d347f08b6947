"""What somebody says about a cluster's OpenCost: the currency of its prices, and from when to read it again."""

from __future__ import annotations

from datetime import datetime

from billing.models import OpenCostSource
from billing.services.opencost.storing import source_ensure
from infra.models import Cluster, ClusterEndpoint
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import as_utc, format_rfc3339, hour_start, utcnow
from portal.kernel.money import MINOR_UNITS
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope
from tenants.permissions import Perm, require


def opencost_set(
    *, cluster: Cluster, actor: Actor, currency: str | None = None, read_from: datetime | None = None
) -> OpenCostSource:
    """Say in which currency a cluster's OpenCost counts, or have hours read again from an instant on.

    A new currency holds for the hours that are read from then on: give ``read_from`` to have past ones read again. What
    is on closed bills stays.

    Raises:
        Forbidden: the actor may not manage rates. Invalid: no currency of ISO 4217; an instant ahead.
        Conflict: the cluster has no OpenCost.
    """
    require(actor, Perm.RATE_MANAGE)
    if currency is not None and currency not in MINOR_UNITS:
        raise Invalid.field("/currency", "Give a code of ISO 4217, such as EUR.")
    if read_from is not None and as_utc(read_from) >= utcnow():
        raise Invalid.field("/read_from", "Only hours that are over can be read: give an earlier instant.")
    with system_scope("opencost_set"):
        source = source_ensure(cluster.pk)
        endpoint = (
            ClusterEndpoint.objects.select_for_update(of=("self",))
            .filter(cluster=cluster, role=ClusterEndpoint.Role.OPENCOST)
            .first()
        )
        if endpoint is None:
            raise Conflict(f"Cluster {cluster.slug} has no OpenCost. Connect it on the cluster's page first.")
        before = _facts(source, endpoint)
        if currency is not None:
            source.currency = currency
        if read_from is not None:
            start = hour_start(as_utc(read_from))
            source.first_hour = min(start, source.first_hour or start)
            if endpoint.read_until is None or start < endpoint.read_until:
                endpoint.read_until = start
                endpoint.save(update_fields=["read_until"])
        source.updated_by, source.updated_at = actor.label, utcnow()
        source.save()
        audit.record(
            "opencost_set", actor=actor, tenant_id=None, object_kind="cluster", object_id=cluster.pk,
            object_name=cluster.slug, before=before, after=_facts(source, endpoint),
        )  # fmt: skip
        workqueue.mark("opencost", cluster.pk, cluster_id=cluster.pk)
        return source


def _facts(source: OpenCostSource, endpoint: ClusterEndpoint) -> dict[str, str]:
    return {
        "currency": source.currency,
        "read_until": format_rfc3339(endpoint.read_until) if endpoint.read_until else "",
    }
