"""The work of a run through a cluster's history: find how far it reaches, read one bounded window, store it.

Windows go from the watch's begin backwards, the newest first. Reading needs no transaction; storing is one: evidence,
capacity and the moved cursor stand or fall together. The cursor always is a moment at which something was scraped, so
that windows that meet there agree on what was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from infra.models import Cluster, PodObservation, Rebuild
from infra.prometheus import PrometheusClient, PrometheusError, Series
from infra.retroactive import questions
from infra.retroactive.nodes import NodeHistory, read_nodes
from infra.retroactive.pods import PastPod
from infra.retroactive.reading import Scrapes, read_pods, scrapes, tells_uids
from infra.selectors.history import past_figures, rebuilt
from infra.services.changes import lock_changes
from infra.services.past_nodes import store_past_nodes, watched_nodes
from infra.services.past_pods import held, store_past_pods
from portal.kernel import workqueue
from portal.kernel.clock import epoch_ms, format_rfc3339, from_epoch_ms, utcnow

MILLISECOND = timedelta(milliseconds=1)
GAP_STEPS = 5
"""Steps without a scrape that are still no gap worth telling."""
REACH_POINTS = 5000
MOST_NOTES = 50


class PartialAnswerError(Exception):
    """The server warned that its answer may lack data: what is not in it is not known to be absent."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was read: from ``low`` to ``high`` (the cursor). ``scraped.first`` is where the cursor goes."""

    low: datetime
    high: datetime
    scraped: Scrapes
    pods: dict[str, PastPod] = field(default_factory=dict)
    answers: dict[str, Sequence[Series]] = field(default_factory=dict)
    queries: int = 0


class Asking:
    """Questions to a Prometheus, counted; a partial answer is refused."""

    def __init__(self, client: PrometheusClient) -> None:
        self.client, self.count = client, 0

    def instant(self, query: str, at: datetime) -> list[Series]:
        """The query's value at an instant."""
        self.count += 1
        return self._whole(self.client.instant(query, at))

    def range(self, query: str, start: datetime, end: datetime, step: timedelta) -> list[Series]:
        """Its values from start to end, both included."""
        self.count += 1
        return self._whole(self.client.range(query, start, end, step))

    def _whole(self, found: list[Series]) -> list[Series]:
        if self.client.partial:
            raise PartialAnswerError(
                f"{self.client.label} warned that its answer may lack data: {'; '.join(self.client.warnings)[:300]}. "
                "What is missing in it would look as if it had ended, so it is asked again."
            )
        return found


def oldest_sample(asking: Asking, since: datetime, until: datetime) -> datetime | None:
    """The first of wide steps at which kube-state-metrics was scraped; None: there is no history of it.

    One query of one series. Steps are at most as wide as a few hours, so a history shorter than that is found by the
    last of them, ``until`` itself.
    """
    step = max(timedelta(minutes=1), (until - since) / REACH_POINTS)
    found = asking.range(questions.reach(asking.client.selector), since, until, step)
    found += asking.instant(questions.reach(asking.client.selector), until - timedelta(seconds=1))
    times = [at for one in found for at, value in one.samples if value]
    return from_epoch_ms(min(times)) if times else None


def read_window(rebuild: Rebuild, asking: Asking) -> Window:
    """Ask for the next window.

    Raises:
        PrometheusError, PartialAnswerError: nothing usable was answered.
    """
    step, select = timedelta(seconds=rebuild.step_seconds), asking.client.selector
    ms = step // MILLISECOND
    wanted = max(rebuild.from_at, rebuild.searched_to - timedelta(seconds=rebuild.window_seconds))
    low = from_epoch_ms(epoch_ms(wanted) // ms * ms)
    high = rebuild.cursor
    at_the_watch = epoch_ms(rebuild.until_at) if high == rebuild.until_at else None

    def over(query: str) -> list[Series]:
        found = asking.range(query, low, rebuild.searched_to, step)
        # Between the two nothing was scraped: only the edge itself is asked for.
        return found + asking.range(query, high, high, step) if rebuild.searched_to < high else found

    each = questions.over_the_window(select)
    seen = scrapes(over(each.pop("scraped")), ms, end=at_the_watch)
    if seen.first is None or seen.first >= epoch_ms(high):
        return Window(low, high, Scrapes(), queries=asking.count)
    answers: dict[str, Sequence[Series]] = {name: over(query) for name, query in each.items()}
    for name, query in questions.at_the_end(select, high - low + step, step).items():
        answers[name] = asking.instant(query, high)
    if not tells_uids(answers):
        answers |= {name: over(query) for name, query in questions.without_uids(select).items()}
    return Window(low, high, seen, read_pods(answers, seen), answers, asking.count)


def store_reach(rebuild_id: UUID, oldest: datetime | None, queries: int) -> Rebuild:
    """Note how far the history reaches. In the caller's transaction."""
    row = Rebuild.objects.select_for_update().get(pk=rebuild_id)
    if row.state != Rebuild.State.PENDING:
        return row
    row.queries += queries
    row.started_at = row.started_at or utcnow()
    row.last_error, row.failures = "", 0
    row.oldest_sample_at = oldest
    if oldest is None:
        row.state, row.finished_at = Rebuild.State.FAILED, utcnow()
        row.last_error = (
            f"There is no sample of {questions.NODE_SOURCE} from {format_rfc3339(row.from_at)} until "
            f"{format_rfc3339(row.until_at)}. History is rebuilt from kube-state-metrics: have Prometheus scrape "
            "it, or check the matchers of the cluster's Prometheus."
        )
    else:
        ms = row.step_seconds * 1000
        wide = max(timedelta(minutes=1), (row.until_at - row.from_at) / REACH_POINTS)
        begin = from_epoch_ms((epoch_ms(oldest) - wide // MILLISECOND) // ms * ms)
        row.from_at = min(max(row.from_at, begin), row.until_at)
        row.state = Rebuild.State.RUNNING
    row.save()
    return row


def store_window(rebuild_id: UUID, window: Window) -> Rebuild | None:
    """Write what a window told, and move the cursor. In the caller's transaction; None: the run was stopped, or moved
    on, meanwhile, and nothing was written."""
    row = Rebuild.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=rebuild_id)
    if row.state != Rebuild.State.RUNNING or row.cursor != window.high:
        return None
    row.queries += window.queries
    row.last_error, row.failures = "", 0
    row.windows_done += 1
    row.searched_to = min(window.low, row.searched_to)
    if window.scraped.first is not None:
        _store(row, window)
    if row.searched_to <= row.from_at:
        row.state, row.finished_at = Rebuild.State.DONE, utcnow()
    row.window_seconds = min(row.window_seconds * 2, 86_400)
    row.save()
    covered = rebuilt(row.cluster_id)
    if covered is not None:
        row.pods, row.pods_proved, _, _, row.error_ms = past_figures(row.cluster_id, covered)
        row.save(update_fields=["pods", "pods_proved", "error_ms"])
    return row


def _store(row: Rebuild, window: Window) -> None:
    assert window.scraped.first is not None
    changes = lock_changes(row.cluster_id)
    cluster = Cluster.objects.select_for_update(no_key=True).get(pk=row.cluster_id)
    step = row.step_seconds * 1000
    before = rebuilt(row.cluster_id)
    edge = from_epoch_ms(window.scraped.first)
    gaps = window.scraped.gaps(GAP_STEPS * step)
    first = window.high == row.until_at
    reached = before.start if before else row.until_at
    looked_at = store_past_pods(
        cluster, window.pods.values(), changes, until=row.until_at, step=step, gaps=gaps,
        also_watched=first, moved_from=reached if edge < reached else None,
    )  # fmt: skip
    history = _nodes(window, looked_at, row, cluster)
    stored = store_past_nodes(cluster, history, changes, until=row.until_at)
    changes.save()
    row.cursor = edge
    row.searched_to = min(row.searched_to, edge)
    told = {(start, end) for start, end in row.gaps}
    told |= {(format_rfc3339(from_epoch_ms(a)), format_rfc3339(from_epoch_ms(b))) for a, b in gaps}
    row.gaps = sorted(list(pair) for pair in told)
    row.notes = list(dict.fromkeys([*row.notes, *stored.notes]))[:MOST_NOTES]
    names = {piece.node for piece in history.pieces}
    row.nodes = max(row.nodes, len(names))
    # The edge between what is rebuilt and what is watched is metered again as well.
    workqueue.mark("metering", cluster.pk, cause="watch")


def _nodes(window: Window, pods: list[PodObservation], row: Rebuild, cluster: Cluster) -> NodeHistory:
    at_the_watch = window.high == row.until_at
    return read_nodes(
        window.answers,
        window.scraped,
        holdings=held(pods, row.until_at),
        still_there=watched_nodes(cluster) if at_the_watch else frozenset(),
    )


# --- trouble ---------------------------------------------------------------------------------------------------------

LEAST_WINDOW = 900
MOST_FAILURES = {True: 100, False: 3}
"""In a row, of those that may pass and of those that will not."""
LONGEST_PAUSE = 300.0


def store_trouble(rebuild_id: UUID, error: Exception, queries: int) -> float | None:
    """Note what went wrong; the answer is when to try again, in seconds, or None where that is up to somebody. In the
    caller's transaction. A window that is too large, or takes too long, is halved."""
    row = Rebuild.objects.select_for_update().get(pk=rebuild_id)
    if row.state not in (Rebuild.State.PENDING, Rebuild.State.RUNNING):
        return None
    row.queries += queries
    kind = error.kind if isinstance(error, PrometheusError) else ""
    row.last_error = getattr(error, "sentence", "") or str(error)
    if kind in ("too_large", "timeout") and row.window_seconds > LEAST_WINDOW and row.state == Rebuild.State.RUNNING:
        row.window_seconds = max(LEAST_WINDOW, row.window_seconds // 2)
        row.save()
        return 1.0 if kind == "too_large" else _pause(1, error)
    row.failures += 1
    passes = bool(getattr(error, "retry", True))
    if row.failures >= MOST_FAILURES[passes]:
        row.state, row.finished_at = Rebuild.State.FAILED, utcnow()
    row.save()
    return None if row.state == Rebuild.State.FAILED else _pause(row.failures, error)


def _pause(failures: int, error: Exception) -> float:
    asked = getattr(error, "retry_after", None) or 0.0
    return float(max(asked, min(LONGEST_PAUSE, 2.0 ** min(failures, 10))))
