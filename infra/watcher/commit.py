"""One batch, one transaction: evidence, version, span, watermark and marks stand or fall together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from infra.evidence import PodEvidence
from infra.models import Cluster, WatchTarget
from infra.namespace_reading import NamespaceFacts
from infra.services.changes import Changes, lock_changes
from infra.watcher import spans
from infra.watcher.items import Connected, Failed, Item, Listed, NodeSight, Seen, Sight, Unreadable
from infra.watcher.namespaces import store_namespaces
from infra.watcher.nodes import store_nodes
from infra.watcher.pods import store_pods
from infra.watcher.targets import Held, fenced
from portal.kernel.conditions import Condition, get_condition, set_condition
from portal.kernel.workqueue import Mark, mark_many

_SEEN_EVERY = timedelta(seconds=15)


def commit(held: Held, items: Sequence[Item]) -> Held:
    """Write what was read of a target, in its order; the target as it is then, for the next commit.

    Raises:
        LeaseLost: somebody else holds the target; nothing was written.
        Rewound: what was committed before is not there any more; nothing was written.
        DatabaseError: nothing was written, or (where the answer got lost) all of it: the next commit of the same items
            finds out.
    """
    if not items:
        return held
    with fenced(held) as target:
        before = (target.last_error, target.failures)
        changes = lock_changes(target.cluster_id)
        # Before its nodes, as whoever applies a manifest of the cluster takes these locks.
        Cluster.objects.select_for_update(no_key=True).get(pk=target.cluster_id)
        marks: set[Mark] = set()
        seen: list[Seen] = []
        for item in items:
            if isinstance(item, Seen):
                seen.append(item)
                continue
            marks |= _events(target, seen, changes)
            seen = []
            if isinstance(item, Listed):
                marks |= _list(target, item, changes)
            else:
                _say(target, item)
        marks |= _events(target, seen, changes)
        changes.save()
        if (target.last_error, target.failures) != before:
            _condition(target)
        target.save(update_fields=["resource_version", "watermark", "last_error", "failures", "not_before"])
        mark_many(marks)
    return replace(held, resource_version=target.resource_version)


def _store(
    target: WatchTarget,
    sights: Sequence[Sight],
    changes: Changes,
    listed: Listed | None = None,
    last_proof: datetime | None = None,
) -> set[Mark]:
    uids = listed.uids if listed else None
    at = listed.asked_at if listed else None
    if target.resource == WatchTarget.Resource.PODS:
        pods = [sight for sight in sights if isinstance(sight, PodEvidence)]
        return store_pods(target.cluster, pods, changes, listed=uids, listed_at=at, last_proof=last_proof)
    if target.resource == WatchTarget.Resource.NAMESPACES:
        spaces = [sight for sight in sights if isinstance(sight, NamespaceFacts)]
        return store_namespaces(target.cluster, spaces, changes, listed=uids, listed_at=at, last_proof=last_proof)
    nodes = [sight for sight in sights if isinstance(sight, NodeSight)]
    return store_nodes(target.cluster, nodes, changes, listed=uids, listed_at=at, last_proof=last_proof)


def _events(target: WatchTarget, seen: Sequence[Seen], changes: Changes) -> set[Mark]:
    if not seen:
        return set()
    sights = [item.sight for item in seen if item.sight is not None]
    marks = _store(target, sights, changes) if sights else set()
    target.resource_version = seen[-1].resource_version
    proof = max((item.proof for item in seen if item.proof is not None), default=None)
    if proof is not None:
        spans.prove(target, proof)
        Cluster.objects.filter(pk=target.cluster_id).exclude(last_seen_at__gt=proof - _SEEN_EVERY).update(
            last_seen_at=proof
        )
    return marks


def _list(target: WatchTarget, listed: Listed, changes: Changes) -> set[Mark]:
    last_proof = spans.restart(target, at=listed.asked_at, reason=listed.reason)
    marks = _store(target, listed.sights, changes, listed, last_proof)
    target.resource_version, target.last_error = listed.resource_version, ""
    spans.prove(target, listed.asked_at)
    Cluster.objects.filter(pk=target.cluster_id).update(last_seen_at=listed.asked_at)
    return marks


def _say(target: WatchTarget, item: Failed | Connected | Unreadable) -> None:
    if isinstance(item, Failed):
        target.last_error, target.failures, target.not_before = item.sentence, item.failures, item.not_before
    elif isinstance(item, Connected):
        target.last_error, target.failures, target.not_before = "", 0, None
    else:
        target.last_error, target.resource_version = item.sentence, item.resource_version


def _condition(target: WatchTarget) -> None:
    """The cluster says of each target whether it is watched, and if not, why, and since when."""
    cluster = Cluster.objects.select_for_update(no_key=True).get(pk=target.cluster_id)
    kind = f"{target.get_resource_display().capitalize()}Watched"
    if target.failures:
        new = Condition(kind, "False", "NotReadable", target.last_error)
    elif target.last_error:
        new = Condition(kind, "True", "ObjectUnreadable", target.last_error)
    else:
        new = Condition(kind, "True", "Watching", "")
    old = get_condition(cluster.conditions, kind)
    if old is None or (old.status, old.message) != (new.status, new.message):
        cluster.conditions = set_condition(cluster.conditions, new)
        cluster.save(update_fields=["conditions"])
