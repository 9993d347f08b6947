"""Runs through a cluster's history are started, paused, resumed and cancelled. The work: ``infra.services.rebuilding``.

A run only reads, and only from the cluster's Prometheus. What it has rebuilt stays, however it ends.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from infra.models import Cluster, ClusterEndpoint, Rebuild
from infra.permissions import require_platform_admin
from infra.selectors.history import watch_begin
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import as_utc, epoch_ms, format_rfc3339, from_epoch_ms, utcnow
from portal.kernel.problems import Conflict, Invalid

WORK_KIND = "rebuild"
LONGEST = timedelta(days=800)
FIRST_WINDOW = timedelta(days=1)
STEP = timedelta(seconds=60)


def rebuild_start(*, cluster: Cluster, actor: Actor, since: datetime | None = None) -> Rebuild:
    """Rebuild the cluster's past, from the watch's begin back to ``since`` (default: as far as settings allow), or to
    where its history begins. Doing it again looks again, and adds only what was not known.

    Raises:
        Forbidden: the actor is no platform-admin.
        Conflict: a run is under way, the cluster has no Prometheus, is not watched yet, or was abandoned.
        Invalid: ``since`` does not lie before the watch's begin, or too far back.
    """
    require_platform_admin(actor, "rebuild_start", object_kind="cluster", object_name=cluster.slug)
    with transaction.atomic():
        cluster = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        _refuse(cluster)
        until = watch_begin(cluster.pk)
        if until is None:
            raise Conflict(
                f"Cluster {cluster.slug} has not been watched yet: history is rebuilt up to the watch's begin. Start a "
                "watcher, and come back when its pods have been listed."
            )
        reach = _whole_steps(as_utc(since) if since else until - timedelta(days=settings.AIF_HISTORY_DAYS))
        if reach >= until:
            raise Invalid.field(
                "/since", f"The watch proves everything from {format_rfc3339(until)} on. Give an earlier instant."
            )
        if until - reach > LONGEST:
            raise Invalid.field("/since", f"At most {LONGEST.days} days are looked at in one run.")
        row = Rebuild.objects.create(
            cluster=cluster,
            from_at=reach,
            until_at=until,
            cursor=until,
            searched_to=until,
            window_seconds=FIRST_WINDOW // timedelta(seconds=1),
            step_seconds=STEP // timedelta(seconds=1),
            requested_by=actor.label[:150],
        )
        _record("rebuild_start", row, actor, after={"since": format_rfc3339(reach), "until": format_rfc3339(until)})
    return row


def rebuild_pause(*, rebuild: Rebuild, actor: Actor) -> Rebuild:
    """Stop asking after the window that is being read.

    Raises:
        Forbidden: as :func:`rebuild_start`. Conflict: it has ended.
    """
    return _move(rebuild, "rebuild_pause", Rebuild.State.PAUSED, actor)


def rebuild_resume(*, rebuild: Rebuild, actor: Actor) -> Rebuild:
    """Go on where it stood, also after it failed.

    Raises:
        Forbidden: as :func:`rebuild_start`. Conflict: it is done, was cancelled, or another run is under way.
    """
    return _move(rebuild, "rebuild_resume", Rebuild.State.RUNNING, actor)


def rebuild_cancel(*, rebuild: Rebuild, actor: Actor) -> Rebuild:
    """End it. What it has rebuilt stays.

    Raises:
        Forbidden: as :func:`rebuild_start`. Conflict: it has ended already.
    """
    return _move(rebuild, "rebuild_cancel", Rebuild.State.CANCELLED, actor)


_FROM = {
    Rebuild.State.PAUSED: (Rebuild.State.PENDING, Rebuild.State.RUNNING),
    Rebuild.State.RUNNING: (Rebuild.State.PAUSED, Rebuild.State.FAILED),
    Rebuild.State.CANCELLED: (Rebuild.State.PENDING, Rebuild.State.RUNNING, Rebuild.State.PAUSED, Rebuild.State.FAILED),
}


def _move(rebuild: Rebuild, verb: str, to: Rebuild.State, actor: Actor) -> Rebuild:
    slug = rebuild.cluster.slug
    require_platform_admin(actor, verb, object_kind="cluster", object_name=slug)
    with transaction.atomic():
        Cluster.objects.select_for_update(no_key=True).get(pk=rebuild.cluster_id)
        row = Rebuild.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=rebuild.pk)
        if row.state == to:
            return row
        if to == Rebuild.State.RUNNING and row.state == Rebuild.State.PENDING:
            return row
        if row.state not in _FROM[to]:
            raise Conflict(f"The run through the history of {slug} is {row.get_state_display()}: nothing to change.")
        if to == Rebuild.State.RUNNING:
            _refuse(row.cluster, but=row)
        before = row.state
        if to == Rebuild.State.RUNNING and row.oldest_sample_at is None:
            to = Rebuild.State.PENDING
        row.state = to
        row.failures, row.finished_at = 0, utcnow() if to == Rebuild.State.CANCELLED else None
        row.save(update_fields=["state", "failures", "finished_at"])
        _record(verb, row, actor, before={"state": before}, after={"state": to})
    return row


def _refuse(cluster: Cluster, *, but: Rebuild | None = None) -> None:
    if cluster.abandoned_at is not None:
        raise Conflict(f"Cluster {cluster.slug} was given up.")
    others = Rebuild.objects.filter(cluster=cluster, state__in=Rebuild.ACTIVE)
    if but is not None:
        others = others.exclude(pk=but.pk)
    if others.exists():
        raise Conflict(f"A run through the history of {cluster.slug} is under way. Resume or cancel it first.")
    if not ClusterEndpoint.objects.filter(cluster=cluster, role=ClusterEndpoint.Role.METRICS).exists():
        raise Conflict(f"Cluster {cluster.slug} has no Prometheus. Give its address on the cluster's page first.")


def _whole_steps(instant: datetime) -> datetime:
    step = STEP // timedelta(milliseconds=1)
    return from_epoch_ms(epoch_ms(instant) // step * step)


def _record(verb: str, row: Rebuild, actor: Actor, **told: dict[str, str]) -> None:
    audit.record(
        verb,
        actor=actor,
        tenant_id=None,
        object_kind="rebuild",
        object_id=row.pk,
        object_name=row.cluster.slug,
        before=told.get("before"),
        after=told.get("after"),
    )
    workqueue.mark(WORK_KIND, row.pk, cluster_id=row.cluster_id)
