"""The meter of one cluster: evidence into allocations, final hours into usage and capacity. Safe to repeat and to kill.

One transaction works new evidence in, and sets right what it changes of hours that were written already. Then each
chunk of hours that became final is a transaction of its own. ``MeterProgress`` moves on with the rows that it speaks
of, so a kill at any point leaves nothing half done; and because usage is written as a difference, doing a step twice
adds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Case, Count, F, Max, Min, Q, When

from billing.models import DeviceAllocation, MeterProgress
from billing.services.allocations import Change, allocations_update
from billing.services.capacity import capacity_write
from billing.services.cuts import cuts_within
from billing.services.usage import idle_usage_write, slots_of, usage_write
from infra.models import CapacitySpan, Cluster
from infra.models.evidence import EvidenceSource
from portal.kernel.clock import HOUR, Interval, format_rfc3339, hour_start, parse_rfc3339, utcnow
from portal.kernel.scoping import system_scope

Scope = Callable[[], AbstractContextManager[None]]

ROWS_PER_CHUNK = 100_000
"""About how many rows one transaction writes: it bounds what a kill repeats, and how long locks are held."""
MOST_HOURS = 7 * 24

_SNAPSHOT = """
SELECT coalesce((SELECT value FROM infra_changecounter WHERE cluster_id = %(cluster)s), 0),
    CASE WHEN count(*) FILTER (WHERE watermark IS NULL) = 0 THEN min(watermark) END
FROM infra_watchtarget WHERE cluster_id = %(cluster)s AND resource IN ('pods', 'nodes')
"""


@dataclass(frozen=True, slots=True)
class Metered:
    """What a run did. ``done`` is false where its time was up first."""

    rows: int
    final_until: datetime | None
    done: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Evidence up to ``seq`` is there, and with it everything that happened before ``watermark``."""

    seq: int
    watermark: datetime | None


def snapshot_of(cluster_id: UUID) -> Snapshot:
    """Both figures by one statement, so they belong together. An unwatched target: no watermark, no final hour.

    Namespaces are not waited for: a claim that follows a label begins when the watch shows it, whenever that is.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SNAPSHOT, {"cluster": cluster_id})
        row = cursor.fetchone()
        assert row is not None
        return Snapshot(*row)


def meter_cluster(
    cluster_id: UUID,
    *,
    scope: Scope | None = None,
    budget_seconds: float = 25.0,
    until: datetime | None = None,
) -> Metered:
    """Work in what is new, and write the hours that have become final.

    Args:
        scope: opens the transaction of each step (a fenced one in a worker); default: a system scope.
        budget_seconds: after so long no further chunk of hours is begun.
        until: no hour from here on is taken for final (default: what the watermarks say).
    """
    scope = scope or (lambda: system_scope("metering"))
    started = time.monotonic()
    with scope():
        cluster = Cluster.objects.get(pk=cluster_id)
        progress = _lock(cluster)
        snapshot = snapshot_of(cluster_id)
        rows = _work_in(cluster, progress, snapshot)
    final = hour_start(min(snapshot.watermark, until or snapshot.watermark)) if snapshot.watermark else None
    while final is not None:
        if time.monotonic() - started > budget_seconds:
            return Metered(rows, final, done=False)
        with scope():
            progress = _lock(cluster)
            if progress.metered_from is None and _first_hour(cluster) is None:
                return Metered(rows, _nothing_until(progress, final))
            window = _next_window(cluster, progress, final)
            if window is None:
                return Metered(rows, progress.final_until)
            rows += _write_hours(cluster, progress, window)
    return Metered(rows, None)


def meter_again(cluster_id: UUID, window: Interval, *, scope: Scope | None = None) -> Metered:
    """Look at all evidence of these hours again, and add what their usage lacks (0 rows where it lacks nothing).

    For facts that carry no change number: a GPU type that got its memory, a corrected cost code. Only hours that were
    written before are touched.
    """
    scope = scope or (lambda: system_scope("metering again"))
    with scope():
        cluster = Cluster.objects.get(pk=cluster_id)
        progress = _lock(cluster)
        snapshot = snapshot_of(cluster_id)
        rows = _work_in(cluster, progress, snapshot, everything_since=window.start)
    at = hour_start(window.start)
    while True:
        with scope():
            progress = _lock(cluster)
            end = min(window.end, progress.final_until or at)
            if at >= end:
                return Metered(rows, progress.final_until)
            chunk = Interval(at, min(hour_start(end), at + HOUR * _chunk_hours(cluster, at)))
            if chunk.is_empty:
                return Metered(rows, progress.final_until)
            rows += _write(cluster, progress, chunk)
            at = chunk.end


def _lock(cluster: Cluster) -> MeterProgress:
    MeterProgress.objects.bulk_create([MeterProgress(cluster=cluster)], ignore_conflicts=True)
    return MeterProgress.objects.select_for_update().get(cluster=cluster)


# --- evidence --------------------------------------------------------------------------------------------------------


def _work_in(
    cluster: Cluster, progress: MeterProgress, snapshot: Snapshot, everything_since: datetime | None = None
) -> int:
    """New evidence into allocations; what that changes of written hours is set right. Answers rows of usage added."""
    if snapshot.seq == progress.through_seq and not progress.unmetered and everything_since is None:
        return _recut(cluster, progress)
    changes = allocations_update(cluster, progress, everything_since=everything_since)
    nodes = _changed_nodes(cluster, progress.through_seq)
    rows = _recut(cluster, progress) + _redo(cluster, progress, changes, nodes)
    progress.through_seq = max(progress.through_seq, snapshot.seq)
    progress.updated_at = utcnow()
    progress.save()
    return rows


Stretches = dict[UUID, tuple[datetime, datetime | None]]
"""Node → from when until when its capacity is not what it was (None: from then on)."""


def _changed_nodes(cluster: Cluster, seq: int) -> Stretches:
    """Spans that are new or changed since. One that was known, and has ended since, touches nothing before its end: a
    node is in one state for months. One that was rebuilt from history has ended, and was never changed: only its own
    time is touched. Any other touches all that follows."""
    spans = CapacitySpan.objects.filter(cluster=cluster, changed_seq__gt=seq).values_list("node_id")
    past = Q(source=EvidenceSource.RETROACTIVE, ended_at__isnull=False)
    begin = Case(When(began_seq__lte=seq, ended_at__isnull=False, then=F("ended_at")), default=F("started_at"))
    rows = spans.annotate(first=Min(begin), last=Max("ended_at"), other=Count("pk", filter=~past))
    return {node: (first, None if other else last) for node, first, last, other in rows}


def _redo(cluster: Cluster, progress: MeterProgress, changes: Iterable[Change], nodes: Stretches) -> int:
    """Write again what is final already and touched by the changes, in chunks of hours."""
    final = progress.final_until
    if final is None:
        return 0
    late = [change for change in changes if change.start < final]
    late_nodes = {node: stretch for node, stretch in nodes.items() if stretch[0] < final}
    if not late and not late_nodes:
        return 0
    stretches = [(change.start, change.end) for change in late] + list(late_nodes.values())
    start = hour_start(min(first for first, _ in stretches))
    end = max(min(final, last or final) for _, last in stretches)
    window = Interval(start, min(final, end if end == hour_start(end) else hour_start(end) + HOUR))
    if window.is_empty:
        return 0
    progress.cuts = sorted({*progress.cuts, *(format_rfc3339(cut) for cut in cuts_within(window))})
    node_ids = late_nodes.keys() | {change.node_id for change in late if change.node_id is not None}
    rows, at = 0, window.start
    while at < window.end:
        chunk = Interval(at, min(window.end, at + HOUR * _chunk_hours(cluster, at)))
        rows += _redo_chunk(cluster, progress, chunk, late, node_ids)
        at = chunk.end
    if progress.metered_from is None or window.start < progress.metered_from:
        progress.metered_from = window.start
    return rows


def _redo_chunk(
    cluster: Cluster, progress: MeterProgress, window: Interval, late: Sequence[Change], node_ids: Collection[UUID]
) -> int:
    slots = slots_of(window, _cuts(progress))
    written = capacity_write(cluster.pk, slots, node_ids)
    # What one pod occupies may change what its neighbours on the card do.
    ids = set(
        DeviceAllocation.objects.filter(_overlapping(window), cluster=cluster, node_id__in=node_ids).values_list(
            "id", flat=True
        )
    )
    ids |= {change.allocation_id for change in late}
    rows = usage_write(cluster.pk, slots, allocation_ids=ids, physical=written.physical)
    return rows + idle_usage_write(cluster.pk, window, written, node_ids=sorted(node_ids))


def _recut(cluster: Cluster, progress: MeterProgress) -> int:
    """Cut written hours anew where a rate or period edge inside them has come or gone."""
    if progress.final_until is None or progress.metered_from is None:
        return 0
    known = set(_cuts(progress))
    wanted = set(cuts_within(Interval(progress.metered_from, progress.final_until)))
    if known == wanted:
        return 0
    progress.cuts = sorted(format_rfc3339(cut) for cut in wanted)
    rows = 0
    for hour in sorted({hour_start(cut) for cut in known ^ wanted}):
        rows += _write(cluster, progress, Interval(hour, hour + HOUR))
    progress.save()
    return rows


# --- final hours -----------------------------------------------------------------------------------------------------


def _next_window(cluster: Cluster, progress: MeterProgress, final: datetime) -> Interval | None:
    """The next hours to write, no more than a chunk; None when all final hours are there."""
    start = progress.final_until or _first_hour(cluster)
    if start is None or start >= final:
        return None
    return Interval(start, min(final, start + HOUR * _chunk_hours(cluster, start)))


def _nothing_until(progress: MeterProgress, final: datetime) -> datetime:
    """A cluster that never had a card: that is known, too, and final. What is heard of that time later is late."""
    if progress.final_until is None or progress.final_until < final:
        progress.final_until, progress.updated_at = final, utcnow()
        progress.save()
    return progress.final_until


def _first_hour(cluster: Cluster) -> datetime | None:
    firsts = [
        model.objects.filter(cluster=cluster).aggregate(first=Min("started_at"))["first"]
        for model in (DeviceAllocation, CapacitySpan)
    ]
    known = [first for first in firsts if first is not None]
    return hour_start(min(known)) if known else None


def _chunk_hours(cluster: Cluster, start: datetime) -> int:
    hour = _overlapping(Interval(start, start + HOUR))
    rows = sum(model.objects.filter(hour, cluster=cluster).count() for model in (DeviceAllocation, CapacitySpan))
    return max(1, min(MOST_HOURS, ROWS_PER_CHUNK // (rows + 1)))


def _write_hours(cluster: Cluster, progress: MeterProgress, window: Interval) -> int:
    cuts = set(_cuts(progress)) | set(cuts_within(window))
    progress.cuts = sorted(format_rfc3339(cut) for cut in cuts)
    rows = _write(cluster, progress, window)
    progress.metered_from = progress.metered_from or window.start
    progress.final_until = window.end
    progress.updated_at = utcnow()
    progress.save()
    return rows


def _write(cluster: Cluster, progress: MeterProgress, window: Interval) -> int:
    slots = slots_of(window, _cuts(progress))
    written = capacity_write(cluster.pk, slots)
    rows = usage_write(cluster.pk, slots, physical=written.physical)
    return rows + idle_usage_write(cluster.pk, window, written)


def _cuts(progress: MeterProgress) -> list[datetime]:
    return [parse_rfc3339(text) for text in progress.cuts]


def _overlapping(window: Interval) -> Q:
    return Q(started_at__lt=window.end) & (Q(ended_at__isnull=True) | Q(ended_at__gt=window.start))
