"""What keeps tenants apart on a cluster: what the cluster told, and what a platform-admin says about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from django.utils import timezone

from infra.concerned import concerned_by
from infra.isolation import DECLARABLE, TITLES, Piece, pieces_of, summary
from infra.models import Cluster
from infra.permissions import require_platform_admin
from infra.selectors.inventory import left_on
from infra.selectors.isolation import has_hami
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.conditions import Condition, get_condition, set_condition
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope

WORK_KIND = "isolation"
ISOLATED = "Isolated"
SHORTEST = 10
How = Literal["declared", "accepted"]


def isolation_say(*, cluster: Cluster, piece: str, how: How, text: str, actor: Actor) -> Cluster:
    """Declare that a piece is there which no API tells of, or accept that one is missing; an empty text takes it back.

    Args:
        text: what was tried, or why it is accepted; at least ten characters, kept in the audit.

    Raises:
        Invalid: no such piece, it can't be declared, or the text is too short. Conflict: abandoned, or observed.
    """
    require_platform_admin(actor, "isolation_say", object_kind="cluster", object_name=cluster.slug)
    known = _piece(piece)
    if how not in ("declared", "accepted"):
        raise Invalid.field("/how", "Use declared or accepted.")
    if how == "declared" and text and known not in DECLARABLE:
        raise Invalid.field(
            "/piece",
            f"{TITLES[known].capitalize()} can be proven, so saying so is not enough. Accept that it is missing, with "
            "a reason, or follow the remedy.",
        )
    text = " ".join(text.split())
    if text and len(text) < SHORTEST:
        raise Invalid.field("/text", f"Say in at least {SHORTEST} characters what was tried, or why it is accepted.")
    with system_scope("isolation_say"):
        row = _locked(cluster)
        rows: dict[str, Any] = dict(row.isolation_said.get(how) or {})
        before = (rows.pop(known.value, None) or {}).get("text", "")
        if text == before:
            return row
        if text:
            rows[known.value] = {"text": text, "by": actor.name, "at": timezone.now().isoformat(timespec="seconds")}
        row.isolation_said = {**row.isolation_said, how: rows}
        _judge(row)
        row.save(update_fields=["isolation_said", "conditions"])
        _record("isolation_say", row, actor, {how: before, "piece": known.value}, {how: text, "piece": known.value})
        workqueue.mark_many(concerned_by(row.pk))
        return row


def isolation_check(*, cluster: Cluster, actor: Actor) -> Cluster:
    """Have the policies compared and the guards asked again at once; the condition ``Isolated`` tells the outcome.

    Raises:
        Conflict: the cluster was abandoned, or is only observed.
    """
    require_platform_admin(actor, "isolation_check", object_kind="cluster", object_name=cluster.slug)
    with system_scope("isolation_check"):
        row = _locked(cluster)
        _record("isolation_check", row, actor)
        workqueue.mark(WORK_KIND, row.pk, cluster_id=row.pk)
        return row


def isolation_set_wanted(*, cluster: Cluster, wanted: bool, actor: Actor) -> Cluster:
    """Take our policies down from a cluster (before it is only observed), or put them up again.

    Without them the cluster takes nothing new.

    Raises:
        Conflict: tenants' namespaces of ours are still there, or the cluster was abandoned or is only observed.
    """
    require_platform_admin(actor, "isolation_set_wanted", object_kind="cluster", object_name=cluster.slug)
    with system_scope("isolation_set_wanted"):
        row = _locked(cluster)
        if row.isolation_wanted == wanted:
            return row
        if not wanted:
            left = _others_left(row)
            if left:
                raise Conflict(
                    f"{left} objects of tenants are still on cluster {row.slug}. Delete their deployments and "
                    "namespaces first; the policies go last."
                )
            row.isolation = {}
        row.isolation_wanted = wanted
        _judge(row)
        row.save(update_fields=["isolation_wanted", "isolation", "conditions"])
        _record("isolation_set_wanted", row, actor, {"wanted": not wanted}, {"wanted": wanted})
        workqueue.mark_many([workqueue.Mark(WORK_KIND, row.pk, cluster_id=row.pk), *concerned_by(row.pk)])
        return row


def isolation_store(row: Cluster, found: Mapping[str, Mapping[str, str]], *, at: datetime) -> bool:
    """Put what the cluster told into a locked row and save it; whether the condition changed its status.

    ``found``: piece → state and sentence. In the caller's fenced transaction, which then marks who is concerned.
    """
    before = get_condition(row.conditions, ISOLATED)
    row.isolation = {"pieces": {name: dict(told) for name, told in found.items()}, "checked_at": at.isoformat()}
    after = _judge(row, now=at)
    row.save(update_fields=["isolation", "conditions"])
    return before is None or before.status != after.status


def _judge(row: Cluster, *, now: datetime | None = None) -> Condition:
    pieces = pieces_of(row.isolation, row.isolation_said, hami=has_hami(row.pk))
    if row.isolation_wanted:
        isolated, reason, sentence = summary(pieces)
    else:
        isolated, reason, sentence = False, "Withdrawn", "The portal's admission policies were taken down."
    condition = Condition(ISOLATED, "True" if isolated else "False", reason, sentence)
    row.conditions = set_condition(row.conditions, condition, now=now or timezone.now())
    return condition


def _others_left(row: Cluster) -> int:
    return left_on(row.pk).exclude(owner_kind=WORK_KIND).count()


def _piece(name: str) -> Piece:
    try:
        return Piece(name)
    except ValueError:
        raise Invalid.field("/piece", f"Use one of: {', '.join(piece.value for piece in Piece)}.") from None


def _locked(cluster: Cluster) -> Cluster:
    row = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
    if row.abandoned_at is not None:
        raise Conflict(f"Cluster {row.slug} was abandoned at {row.abandoned_at:%Y-%m-%d %H:%M} UTC.")
    if row.mode != Cluster.Mode.MANAGE:
        raise Conflict(f"Cluster {row.slug} is only observed: nothing is placed there, so nothing is isolated by us.")
    return row


def _record(
    verb: str,
    row: Cluster,
    actor: Actor,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    audit.record(
        verb, actor=actor, tenant_id=None, object_kind="cluster", object_id=row.pk, object_name=row.slug,
        before=before, after=after,
    )  # fmt: skip
