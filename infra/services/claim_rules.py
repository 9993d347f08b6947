"""Rules that give namespaces to tenants: made, moved, ended, looked at beforehand, and applied to a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F

from infra.models import ClaimRule, Cluster, NamespaceSight, PodObservation, Site
from infra.permissions import require_platform_admin
from infra.services.changes import lock_changes
from infra.services.following import Effect, Follow
from infra.services.kept_labels import kept_labels, namespaces_relist
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import as_utc, format_rfc3339, utcnow
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope

WORK_KIND = "claim-rules"
LONGEST_PREVIEW = 2000
_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PATTERN = re.compile(r"[a-z0-9*?-]{1,120}")


def claim_rule_create(
    *,
    kind: str,
    valid_from: datetime,
    actor: Actor,
    tenant_id: UUID | None = None,
    by_slug: bool = False,
    label_key: str = "",
    label_value: str = "",
    pattern: str = "",
    cluster: Cluster | None = None,
    site: Site | None = None,
    cost_code: str = "",
    cost_code_label: str = "",
    position: int | None = None,
) -> ClaimRule:
    """Make a rule. Its claims appear as soon as the work queue has looked at the clusters that it reaches.

    Args:
        kind: ``label`` (``label_key``, and ``label_value`` or ``by_slug``) or ``name`` (``pattern``, and one of
            ``cluster`` and ``site``).
        valid_from: no claim of it begins earlier; the past is metered again.
        position: before which other rule it is asked, counted from 1; None: after all.

    Raises:
        Forbidden: the actor is no platform-admin. Invalid: each wrong value with its pointer.
    """
    require_platform_admin(actor, "claim_rule_create", object_kind="claim_rule", object_name=label_key or pattern)
    rule = ClaimRule(
        kind=kind, tenant_id=tenant_id, by_slug=by_slug, label_key=label_key.strip(), label_value=label_value.strip(),
        pattern=pattern.strip(), cluster=cluster, site=site, cost_code=cost_code.strip(),
        cost_code_label=cost_code_label.strip(), valid_from=as_utc(valid_from), created_by=actor.label[:150],
    )  # fmt: skip
    _check(rule)
    with transaction.atomic():
        known = set(kept_labels())
        rows = ClaimRule.objects.select_for_update().filter(ended_at__isnull=True)
        last = max((row.position for row in rows), default=0)
        rule.position = last + 1 if position is None else max(1, min(position, last + 1))
        ClaimRule.objects.filter(ended_at__isnull=True, position__gte=rule.position).update(position=F("position") + 1)
        rule.save(force_insert=True)
        clusters = clusters_of(rule)
        if {rule.label_key, rule.cost_code_label} - {""} - known:
            namespaces_relist([row.pk for row in clusters])
        _record("claim_rule_create", rule, actor, after=_told(rule))
        _mark(clusters)
    return rule


def claim_rule_move(*, rule: ClaimRule, position: int, actor: Actor) -> ClaimRule:
    """Ask it before the rule that stands at ``position`` (from 1). What it takes over by that, it has from now on.

    Raises:
        Forbidden: the actor is no platform-admin. Conflict: it has ended.
    """
    require_platform_admin(actor, "claim_rule_move", object_kind="claim_rule", object_name=str(rule))
    with transaction.atomic():
        rows = list(ClaimRule.objects.select_for_update(of=("self",)).filter(ended_at__isnull=True))
        others = [row for row in rows if row.pk != rule.pk]
        if len(others) == len(rows):
            raise Conflict(f"The rule {rule} has ended.")
        rule = next(row for row in rows if row.pk == rule.pk)
        before = rule.position
        order = [*others[: max(0, position - 1)], rule, *others[max(0, position - 1) :]]
        for number, row in enumerate(order, 1):
            ClaimRule.objects.filter(pk=row.pk).exclude(position=number).update(position=number)
        rule.position = order.index(rule) + 1
        if rule.position < before:
            rule.moved_at = utcnow()
            rule.save(update_fields=["moved_at"])
        _record("claim_rule_move", rule, actor, {"position": before}, {"position": rule.position})
        _mark(clusters_of(rule))
    return rule


def claim_rule_end(*, rule: ClaimRule, actor: Actor) -> ClaimRule:
    """The rule gives nothing from now on; what it gave until now stays with whom it was given to.

    Raises:
        Forbidden: the actor is no platform-admin.
    """
    require_platform_admin(actor, "claim_rule_end", object_kind="claim_rule", object_name=str(rule))
    with transaction.atomic():
        rule = ClaimRule.objects.select_for_update(of=("self",)).get(pk=rule.pk)
        if rule.ended_at is None:
            rule.ended_at = utcnow()
            rule.save(update_fields=["ended_at"])
            _record("claim_rule_end", rule, actor, None, {"ended_at": format_rfc3339(rule.ended_at)})
            _mark(clusters_of(rule))
    return rule


def claim_rule_preview(change: Callable[[], object]) -> list[Effect]:
    """What a change of rules would do to claims: it is made, applied, and rolled back.

    Args:
        change: calls one of the services above.

    Raises:
        What ``change`` raises.
    """
    effects: list[Effect] = []
    with system_scope("preview of claim rules"), transaction.atomic():
        change()
        for cluster in Cluster.objects.filter(abandoned_at__isnull=True).order_by("pk"):
            effects += rules_apply(cluster, at=utcnow())
            if len(effects) >= LONGEST_PREVIEW:
                break
        transaction.set_rollback(True)
    return sorted(effects, key=lambda one: (one.cluster, one.namespace, one.start, one.becomes is not None))


def rules_apply(cluster: Cluster, *, at: datetime) -> list[Effect]:
    """Bring all claims of a cluster that follow rules to what the rules say. Needs a system scope.

    Args:
        at: the instant of what ends for no other reason.
    """
    changes = lock_changes(cluster.pk)
    cluster = Cluster.objects.select_related("site").get(pk=cluster.pk)
    follow = Follow.of(cluster, changes)
    sights = list(NamespaceSight.objects.filter(cluster=cluster).order_by("name", "first_seen_at"))
    for sight in sights:
        follow.namespace(sight, at=at)
    seen = {sight.name for sight in sights}
    pods = PodObservation.objects.filter(cluster=cluster).order_by("namespace")
    for name in pods.values_list("namespace", flat=True).distinct():
        if name not in seen:
            follow.unseen(name, at=at)
    changes.save()
    workqueue.mark_many(follow.marks())
    return follow.effects


def clusters_of(rule: ClaimRule) -> list[Cluster]:
    """The connected clusters that a rule reaches."""
    rows = Cluster.objects.filter(abandoned_at__isnull=True)
    if rule.cluster_id:
        rows = rows.filter(pk=rule.cluster_id)
    if rule.site_id:
        rows = rows.filter(site_id=rule.site_id)
    return list(rows.order_by("pk"))


# ---- inside ----------------------------------------------------------------------------------------------


def _check(rule: ClaimRule) -> None:
    errors = [{"pointer": pointer, "detail": detail} for pointer, detail in _wrong(rule)]
    if errors:
        raise Invalid(errors=errors)


def _wrong(rule: ClaimRule) -> Iterable[tuple[str, str]]:
    if rule.kind not in ClaimRule.Kind.values:
        yield "/kind", "Use label or name."
        return
    if rule.cluster is not None and rule.site is not None:
        yield "/site", "A rule is for one cluster, or for the clusters of one site, not for both."
    if rule.cost_code_label and not _KEY.fullmatch(rule.cost_code_label):
        yield "/cost_code_label", f"{rule.cost_code_label!r} is no key of a label."
    if rule.by_slug == (rule.tenant_id is not None):
        yield "/tenant", "Name the tenant, or say that the label's value is the tenant's short name: one of the two."
    if rule.valid_from > utcnow():
        yield "/valid_from", "A rule begins now or in the past."
    if rule.kind == ClaimRule.Kind.LABEL:
        if not _KEY.fullmatch(rule.label_key):
            yield "/label_key", f"{rule.label_key!r} is no key of a label, such as team or example.com/team."
        if not rule.by_slug and not rule.label_value:
            yield "/label_value", "Say which value of the label is meant."
        return
    if not _PATTERN.fullmatch(rule.pattern):
        yield "/pattern", "Small letters, digits and dashes; * stands for any of them, ? for one."
    if rule.by_slug:
        yield "/by_slug", "A rule by name names its tenant."
    if rule.cluster is None and rule.site is None:
        yield "/cluster", "A rule by name is for one cluster, or for the clusters of one site: name it."


def _mark(clusters: Sequence[Cluster]) -> None:
    workqueue.mark_many(workqueue.Mark(WORK_KIND, row.pk, cluster_id=row.pk) for row in clusters)


def _told(rule: ClaimRule) -> dict[str, object]:
    return {
        "position": rule.position, "kind": rule.kind, "rule": str(rule), "cost_code": rule.cost_code,
        "tenant_id": str(rule.tenant_id) if rule.tenant_id else "by the label's value",
        "valid_from": format_rfc3339(rule.valid_from),
    }  # fmt: skip


def _record(
    verb: str, rule: ClaimRule, actor: Actor, before: dict[str, object] | None = None,
    after: dict[str, object] | None = None,
) -> None:  # fmt: skip
    audit.record(
        verb, actor=actor, tenant_id=rule.tenant_id, object_kind="claim_rule", object_id=rule.pk,
        object_name=str(rule), before=before, after=after,
    )  # fmt: skip
