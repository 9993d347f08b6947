"""Namespaces become a tenant's, and stop being it. What was billed by an old claim stays with it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from infra.concerned import concerned_by
from infra.models import Cluster, NamespaceClaim, PodObservation
from infra.services.changes import lock_changes
from portal.kernel import audit, workqueue
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.clock import as_utc, format_rfc3339
from portal.kernel.problems import Conflict, Forbidden, Invalid

_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def namespace_claim_set(
    *,
    cluster: Cluster,
    namespace: str,
    tenant_id: UUID,
    valid_from: datetime,
    actor: Actor,
    cost_code: str = "",
    source: str = NamespaceClaim.Source.PORTAL,
) -> NamespaceClaim:
    """From ``valid_from`` on the namespace is the tenant's. It may lie in the past: what is metered is set right.

    The same claim again changes nothing and answers the row that is there.

    Raises:
        Forbidden: the actor is neither a platform-admin nor a part of the system.
        Invalid: no namespace name, or a system namespace.
        Conflict: another claim holds at or after ``valid_from``: end that one first.
    """
    valid_from = as_utc(valid_from)
    _allow(actor, "namespace_claim_set", cluster, namespace, tenant_id)
    if not _NAMESPACE.fullmatch(namespace):
        raise _invalid(
            "/namespace", f"{namespace!r} is no name of a namespace: small letters, digits and dashes, at most 63."
        )
    if namespace in cluster.system_namespaces:
        raise _invalid(
            "/namespace",
            f"{namespace} is a system namespace of cluster {cluster.slug}: its GPU time is overhead. Take it off that "
            "list before a tenant gets it.",
        )
    with transaction.atomic():
        changes = lock_changes(cluster.pk)
        others = NamespaceClaim.objects.filter(
            Q(valid_to__isnull=True) | Q(valid_to__gt=valid_from), cluster=cluster, namespace=namespace
        ).order_by("valid_from")
        for other in others:
            if (other.tenant_id, other.valid_from, other.cost_code, other.valid_to) == (
                tenant_id, valid_from, cost_code, None,
            ):  # fmt: skip
                return other
            until = f"until {format_rfc3339(other.valid_to)}" if other.valid_to else "without an end"
            raise Conflict(
                f"Namespace {namespace} of cluster {cluster.slug} is claimed from {format_rfc3339(other.valid_from)} "
                f"{until}. End that claim at or before {format_rfc3339(valid_from)} first.",
                claim=str(other.pk),
            )
        claim = NamespaceClaim.objects.create(
            cluster=cluster,
            namespace=namespace,
            tenant_id=tenant_id,
            cost_code=cost_code,
            source=source,
            valid_from=valid_from,
            created_by=actor.label[:150],
            changed_seq=changes.draw(),
        )
        changes.save()
        _record("namespace_claim_set", claim, actor, after=_told(claim))
    return claim


def namespace_claim_end(*, claim: NamespaceClaim, valid_to: datetime, actor: Actor) -> NamespaceClaim:
    """The namespace is the tenant's no longer from ``valid_to`` on.

    Raises:
        Forbidden: as :func:`namespace_claim_set`.
        Conflict: it has ended already, at another instant.
        Invalid: ``valid_to`` does not lie after its beginning.
    """
    valid_to = as_utc(valid_to)
    cluster = claim.cluster
    _allow(actor, "namespace_claim_end", cluster, claim.namespace, claim.tenant_id)
    with transaction.atomic():
        changes = lock_changes(cluster.pk)
        claim = NamespaceClaim.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=claim.pk)
        if claim.valid_to == valid_to:
            return claim
        if claim.valid_to is not None:
            raise Conflict(
                f"The claim on namespace {claim.namespace} of cluster {cluster.slug} has ended at "
                f"{format_rfc3339(claim.valid_to)} already."
            )
        if valid_to <= claim.valid_from:
            raise _invalid(
                "/valid_to",
                f"A claim ends after it begins: {format_rfc3339(valid_to)} is not later than "
                f"{format_rfc3339(claim.valid_from)}.",
            )
        before = _told(claim)
        claim.valid_to, claim.changed_seq = valid_to, changes.draw()
        claim.save(update_fields=["valid_to", "changed_seq"])
        changes.save()
        _record("namespace_claim_end", claim, actor, before=before, after=_told(claim))
        # What runs there no longer counts against the tenant's quota.
        workqueue.mark_many(concerned_by(cluster.pk))
    return claim


def system_namespaces_set(*, cluster: Cluster, namespaces: Iterable[str], actor: Actor) -> Cluster:
    """The namespaces of the cluster whose GPU time is overhead: exactly these, by name, never by pattern.

    Raises:
        Forbidden: the actor is no platform-admin.
        Invalid: one of them is no name of a namespace.
        Conflict: one of them is claimed by a tenant now.
    """
    wanted = sorted(set(namespaces))
    _allow(actor, "system_namespaces_set", cluster, ", ".join(wanted), None)
    for number, name in enumerate(wanted):
        if not _NAMESPACE.fullmatch(name):
            raise _invalid(f"/namespaces/{number}", f"{name!r} is no name of a namespace; patterns are not allowed.")
    with transaction.atomic():
        changes = lock_changes(cluster.pk)
        cluster = Cluster.objects.select_for_update(of=("self",), no_key=True).get(pk=cluster.pk)
        claimed = NamespaceClaim.objects.filter(cluster=cluster, namespace__in=wanted, valid_to__isnull=True).first()
        if claimed is not None:
            raise Conflict(
                f"Namespace {claimed.namespace} of cluster {cluster.slug} is a tenant's. End that claim first."
            )
        before = sorted(cluster.system_namespaces)
        if before == wanted:
            return cluster
        cluster.system_namespaces = wanted
        cluster.save(update_fields=["system_namespaces"])
        # Live pods of these namespaces are looked at again; what has ended stays as it was metered.
        touched = set(before) ^ set(wanted)
        for pod in PodObservation.objects.filter(
            cluster=cluster, namespace__in=touched, ended_at__isnull=True, gone_at__isnull=True
        ).order_by("uid"):
            PodObservation.objects.filter(pk=pod.pk).update(changed_seq=changes.draw())
        changes.save()
        audit.record(
            "system_namespaces_set",
            actor=actor,
            tenant_id=None,
            object_kind="cluster",
            object_id=cluster.pk,
            object_name=cluster.slug,
            before={"system_namespaces": before},
            after={"system_namespaces": wanted},
        )
        workqueue.mark("metering", cluster.pk, cause="watch")
    return cluster


def _allow(actor: Actor, verb: str, cluster: Cluster, name: str, tenant_id: UUID | None) -> None:
    if actor.is_system or actor.is_platform(PLATFORM_ADMIN):
        return
    reason = "Only a platform-admin decides whose a namespace is."
    audit.refused(
        verb,
        actor=actor,
        tenant_id=tenant_id,
        object_kind="namespace",
        object_id=cluster.pk,
        object_name=f"{cluster.slug}/{name}",
        reason=reason,
    )
    raise Forbidden(reason)


def _invalid(pointer: str, detail: str) -> Invalid:
    return Invalid(errors=[{"pointer": pointer, "detail": detail}])


def _told(claim: NamespaceClaim) -> dict[str, str | None]:
    return {
        "tenant_id": str(claim.tenant_id),
        "valid_from": format_rfc3339(claim.valid_from),
        "valid_to": format_rfc3339(claim.valid_to) if claim.valid_to else None,
        "cost_code": claim.cost_code,
        "source": claim.source,
    }


def _record(
    verb: str,
    claim: NamespaceClaim,
    actor: Actor,
    *,
    before: dict[str, str | None] | None = None,
    after: dict[str, str | None] | None = None,
) -> None:
    audit.record(
        verb,
        actor=actor,
        tenant_id=claim.tenant_id,
        object_kind="namespace_claim",
        object_id=claim.pk,
        object_name=f"{claim.cluster.slug}/{claim.namespace}",
        before=before,
        after=after,
    )
    workqueue.mark("metering", claim.cluster_id, cause="watch")
