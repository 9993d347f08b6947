"""Namespaces become a tenant's, and stop being it. What was billed by an old claim stays with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from infra.concerned import concerned_by
from infra.models import Cluster, NamespaceClaim, PodObservation
from infra.services.changes import Changes, lock_changes
from infra.services.following import claim_take_back
from portal.kernel import audit, workqueue
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.clock import as_utc, format_rfc3339, utcnow
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

    The same claim again changes nothing and answers the row that is there. What rules gave from ``valid_from`` on is
    taken over: by hand wins.

    Raises:
        Forbidden: the actor is neither a platform-admin nor a part of the system.
        Invalid: no namespace name, or a system namespace.
        Conflict: another claim by hand holds at or after ``valid_from``: end that one first.
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
            if other.source != NamespaceClaim.Source.PORTAL:
                _take_over(other, valid_from, changes, actor)
                continue
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
        Conflict: it has ended already, at another instant; or it follows a rule, which would make it again.
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
        if claim.source != NamespaceClaim.Source.PORTAL and not actor.is_system:
            raise Conflict(
                f"Namespace {claim.namespace} of cluster {cluster.slug} follows the rule {claim.rule}, which would "
                "take it again. Give it to a tenant by hand, which wins over rules, or end the rule."
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
        # What runs there no longer counts against the tenant's quota; a rule may take it from here on.
        workqueue.mark_many([*concerned_by(cluster.pk), workqueue.Mark("claim-rules", cluster.pk, cluster.pk)])
    return claim


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace of a cluster."""

    cluster: Cluster
    namespace: str


def namespace_claims_set(
    *, spaces: Sequence[Space], tenant_id: UUID, valid_from: datetime, actor: Actor, cost_code: str = ""
) -> list[NamespaceClaim]:
    """Give several namespaces to one tenant: all of them, or none.

    Raises:
        Forbidden: as :func:`namespace_claim_set`.
        Invalid: no namespace, or some can't be given: each is named, with why.
    """
    if not spaces:
        raise _invalid("/namespaces", "Choose at least one namespace.")
    made: list[NamespaceClaim] = []
    errors: list[dict[str, str]] = []
    with transaction.atomic():
        # In one order, as each takes its cluster's lock.
        for number, space in sorted(enumerate(spaces), key=lambda one: (one[1].cluster.pk, one[1].namespace)):
            try:
                made.append(
                    namespace_claim_set(
                        cluster=space.cluster, namespace=space.namespace, tenant_id=tenant_id,
                        valid_from=valid_from, actor=actor, cost_code=cost_code,
                    )
                )  # fmt: skip
            except (Conflict, Invalid) as problem:
                detail = problem.errors[0]["detail"] if problem.errors else problem.detail
                errors.append({"pointer": f"/namespaces/{number}", "detail": detail})
        if errors:
            raise Invalid(errors=errors)
    return made


def _take_over(claim: NamespaceClaim, at: datetime, changes: Changes, actor: Actor) -> None:
    """A claim that followed a rule gives way to one by hand, from ``at`` on."""
    before = _told(claim)
    if at <= claim.valid_from:
        _record("namespace_claim_take_back", claim, actor, before=before)
        claim_take_back(claim, changes)
        return
    claim.valid_to, claim.changed_seq = at, changes.draw()
    claim.save(update_fields=["valid_to", "changed_seq"])
    _record("namespace_claim_end", claim, actor, before=before, after=_told(claim))


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
        claims = NamespaceClaim.objects.filter(cluster=cluster, namespace__in=wanted, valid_to__isnull=True)
        claimed = claims.filter(source=NamespaceClaim.Source.PORTAL).first()
        if claimed is not None:
            raise Conflict(
                f"Namespace {claimed.namespace} of cluster {cluster.slug} is a tenant's. End that claim first."
            )
        before = sorted(cluster.system_namespaces)
        if before == wanted:
            return cluster
        for followed in claims:  # a rule never reaches a system namespace
            _take_over(followed, utcnow(), changes, actor)
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
        workqueue.mark("claim-rules", cluster.pk, cluster_id=cluster.pk)
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
