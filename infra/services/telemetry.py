"""Reading a cluster's metrics in bounded windows: who held which card, how busy it was, and what is missing.

A window is read without a transaction, and written in one together with the mark that says how far is read
(``TelemetrySource.read_until``), under that row's lock. So a kill at any point loses nothing and adds nothing twice.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Q

from infra.dcgm import HeldCard, Reading, read_cards, unmapped_nodes
from infra.dcgm.names import FB_FREE, FB_USED
from infra.hami_metrics import of_live_pods, read_hami
from infra.kube.client import KubeClient
from infra.kube.errors import Forbidden, KubeError
from infra.models import (
    Cluster,
    ClusterEndpoint,
    NamespaceClaim,
    Node,
    PodObservation,
    TelemetryGap,
    TelemetrySource,
)
from infra.models.hardware import SharingMode
from infra.outbound import EndpointError, open_endpoint
from infra.prometheus import PrometheusClient, PrometheusError, Window, windows
from infra.services import telemetry_conditions as conditions
from infra.services.health import xid_samples, xids_write
from infra.services.telemetry_sources import LOOK_BACK, Batch, exporter_batch, has_samples, prometheus_batch
from infra.services.telemetry_write import (
    SeenCard,
    devices_ensure,
    gaps_extend,
    hours_add,
    node_of_cards,
    pod_lives,
    sightings_merge,
)
from infra.telemetry import HourRow, fold, gaps_of, interval_of, tracks_of_cards, tracks_of_hami
from portal.kernel.clock import epoch_ms, from_epoch_ms, utcnow
from portal.kernel.conditions import Condition, set_condition
from portal.kernel.scoping import system_scope

Scope = Callable[[], AbstractContextManager[None]]

WINDOW = timedelta(minutes=5)
PATIENCE = timedelta(minutes=10)
"""A source that is behind, or answers in part, is waited for so long; then what it said stands, with a gap."""
FIRST = timedelta(hours=1)
"""How far back reading begins with a source that is new. What lies before is rebuilt from history."""
SHORTEST = timedelta(seconds=30)
SCRAPE_EVERY = timedelta(seconds=60)
REFUSED_FOR = timedelta(hours=1)
"""Exporters that may not be asked are asked again after so long."""


@dataclass(frozen=True)
class TelemetryRead:
    """What a run did. ``done``: everything that could be read is. ``retry`` seconds, where it should come again."""

    windows: int
    done: bool = True
    retry: float | None = None
    message: str = ""


@dataclass
class Digest:
    """A window, worked out and ready to be written."""

    window: Window
    interval_ms: int
    rows: list[HourRow] = field(default_factory=list)
    held: list[HeldCard] = field(default_factory=list)
    cards: list[SeenCard] = field(default_factory=list)
    gaps: dict[tuple[str, str], list[tuple[datetime, datetime]]] = field(default_factory=dict)
    unmapped: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    newest: datetime | None = None


def telemetry_read(cluster_id: UUID, *, scope: Scope | None = None, budget_seconds: float = 15.0) -> TelemetryRead:
    """Read on where the last run stopped, from the cluster's Prometheus; where it has none, from its exporters.

    Args:
        scope: opens the transaction of each step (a fenced one in a worker); default: a system scope.
        budget_seconds: after so long no further window is begun, and none is asked for again in smaller parts.
    """
    scope = scope or (lambda: system_scope("telemetry"))
    with scope():
        cluster = Cluster.objects.filter(pk=cluster_id, abandoned_at__isnull=True).first()
        if cluster is None:
            return TelemetryRead(0)
        endpoint = ClusterEndpoint.objects.filter(cluster=cluster, role=ClusterEndpoint.Role.METRICS).first()
        source, _ = TelemetrySource.objects.get_or_create(cluster=cluster)
    if endpoint is None:
        return _scrape(cluster, source, scope)
    endpoint.cluster = cluster
    if endpoint.paused:
        return TelemetryRead(0)
    try:
        return _read(cluster, endpoint, source, scope, budget_seconds)
    except (PrometheusError, EndpointError) as error:
        with scope():
            _conclude(source, endpoint, [conditions.not_answered(error.sentence)], answered=False)
        retry = (getattr(error, "retry_after", None) or 60.0) if error.retry else 600.0
        return TelemetryRead(0, False, retry, error.sentence)


# --- Prometheus ------------------------------------------------------------------------------------------------------


def _read(
    cluster: Cluster, endpoint: ClusterEndpoint, source: TelemetrySource, scope: Scope, budget_seconds: float
) -> TelemetryRead:
    started = time.monotonic()
    now = utcnow()
    start, end = source.read_until or now - FIRST, now - timedelta(seconds=settings.AIF_TELEMETRY_LAG_SECONDS)
    if end - start < SHORTEST:
        return TelemetryRead(0)
    look_back = max(LOOK_BACK, timedelta(milliseconds=2 * source.interval_ms + 1_000))
    done = 0
    with open_endpoint(endpoint) as http:
        client = PrometheusClient(http, endpoint.matchers)
        asked = 0

        def ask(window: Window) -> Batch:
            nonlocal asked
            asked += 1
            if asked > 1 and time.monotonic() - started > budget_seconds:
                raise PrometheusError(f"{client.label} was too slow for the time that a task has.", True)
            return prometheus_batch(client, window, look_back)

        batches = windows(start, end, ask, size=WINDOW, tries=1)
        for window, batch in batches:
            with scope():
                digest = digest_of(cluster, batch, source.interval_ms)
            behind = digest.newest is None or digest.newest < window.end - timedelta(
                milliseconds=2 * digest.interval_ms
            )
            # A source that has younger samples is not behind: it was not there yet, or had a gap.
            if behind and now - window.end < PATIENCE:
                behind = not has_samples(client, Window(max(window.end, now - WINDOW), now))
            if (batch.partial or behind) and now - window.end < PATIENCE:
                with scope():
                    found = [conditions.fresh(digest.newest or source.last_sample_at, now), conditions.complete(batch)]
                    _conclude(source, endpoint, [conditions.answered(), *found], answered=True)
                return TelemetryRead(done, False, 60.0, "The source is behind, or answers in part.")
            with scope():
                if not _write(cluster, source, endpoint, batch, digest, now):
                    return TelemetryRead(done)  # somebody else has read it meanwhile
            done += 1
            if time.monotonic() - started > budget_seconds:
                return TelemetryRead(done, False, 0.0, f"Metrics up to {window.end:%Y-%m-%d %H:%M} UTC are read.")
    return TelemetryRead(done)


def _write(
    cluster: Cluster,
    source: TelemetrySource,
    endpoint: ClusterEndpoint | None,
    batch: Batch,
    digest: Digest,
    now: datetime,
) -> bool:
    """Write a window, unless its beginning is no longer where the source stands."""
    row = TelemetrySource.objects.select_for_update().get(pk=source.pk)
    if row.read_until is not None and row.read_until != digest.window.start:
        return False
    slack = timedelta(milliseconds=2 * digest.interval_ms)
    sightings_merge(cluster, digest.held, slack=slack, now=now)
    devices_ensure(cluster, digest.cards, now)
    hours_add(cluster, digest.rows)
    xids = xid_samples((series.labels, series.samples) for series in batch.cards)
    xids_write(cluster, xids, {card.facts.uuid: card.node for card in digest.cards})
    gaps_extend(cluster, digest.gaps, slack)
    row.kind = TelemetrySource.Kind.PROMETHEUS if endpoint else TelemetrySource.Kind.EXPORTER
    row.read_until = digest.window.end
    row.interval_ms = digest.interval_ms
    row.last_sample_at = max(filter(None, (row.last_sample_at, digest.newest)), default=None)
    row.unmapped, row.silent, row.dropped = list(digest.unmapped), list(digest.silent), digest.dropped
    row.dropped_total += sum(digest.dropped.values())
    row.counters = {uuid: list(pair) for uuid, pair in batch.counters.items()}
    row.not_before = None
    row.save()
    for name in ("read_until", "interval_ms", "last_sample_at", "counters", "conditions"):
        setattr(source, name, getattr(row, name))
    found = [
        conditions.answered(),
        conditions.fresh(row.last_sample_at, now),
        conditions.complete(batch),
        conditions.mapped(digest.unmapped),
        conditions.seen(bool(batch.cards or batch.hami), digest.silent),
    ]
    _conclude(row, endpoint, found, answered=True)
    return True


def _conclude(
    source: TelemetrySource, endpoint: ClusterEndpoint | None, found: list[Condition], *, answered: bool
) -> None:
    """Store conditions with the source, and what there is to say of the endpoint."""
    now = utcnow()
    row = TelemetrySource.objects.select_for_update().get(pk=source.pk)
    for condition in found:
        row.conditions = set_condition(row.conditions, condition, now=now)
    row.save(update_fields=["conditions"])
    if endpoint is None:
        return
    told = ClusterEndpoint.objects.select_for_update().filter(pk=endpoint.pk).first()
    if told is None:
        return
    told.conditions = row.conditions
    told.read_until, told.last_sample_at = row.read_until, row.last_sample_at
    if answered:
        told.last_answer_at = now
    told.save(update_fields=["conditions", "read_until", "last_sample_at", "last_answer_at"])


# --- the exporters themselves ----------------------------------------------------------------------------------------


def _scrape(cluster: Cluster, source: TelemetrySource, scope: Scope) -> TelemetryRead:
    now = from_epoch_ms(epoch_ms(utcnow()))
    last = source.read_until if source.kind == TelemetrySource.Kind.EXPORTER else None
    if (source.not_before and now < source.not_before) or (last and now - last < SCRAPE_EVERY / 2):
        return TelemetryRead(0)
    start = source.read_until or now - SCRAPE_EVERY
    try:
        with scope():
            claims = NamespaceClaim.objects.filter(cluster=cluster, valid_to__isnull=True)
            teams = set(claims.values_list("namespace", flat=True))
        batch = exporter_batch(KubeClient.for_cluster(cluster), start, now, source.counters, teams)
    except KubeError as error:
        with scope():
            later = REFUSED_FOR if isinstance(error, Forbidden) else SCRAPE_EVERY
            TelemetrySource.objects.filter(pk=source.pk).update(not_before=now + later)
            _conclude(source, None, [conditions.not_answered(error.sentence)], answered=False)
        return TelemetryRead(0)
    if batch is None:
        with scope():
            TelemetrySource.objects.filter(pk=source.pk).update(not_before=now + timedelta(minutes=10))
            _conclude(source, None, [conditions.no_exporter()], answered=False)
        return TelemetryRead(0)
    with scope():
        digest = digest_of(cluster, batch, round(SCRAPE_EVERY / timedelta(milliseconds=1)), fixed=True)
        written = _write(cluster, source, None, batch, digest, now)
    return TelemetryRead(int(written))


# --- working a window out --------------------------------------------------------------------------------------------


def digest_of(cluster: Cluster, batch: Batch, interval_ms: int, *, fixed: bool = False) -> Digest:
    """What a batch says of its window. Reads which nodes and pods there are; writes nothing.

    Args:
        interval_ms: between two samples, where the batch does not show it. ``fixed``: it is so.
    """
    window = batch.window
    start_ms, end_ms = epoch_ms(window.start), epoch_ms(window.end)
    nodes = {
        node.name: node
        for node in Node.objects.filter(cluster=cluster, gone_at__isnull=True, cards__gt=0).select_related("pool")
    }
    reading = read_cards(batch.cards, nodes.keys())
    hami = read_hami(batch.hami)
    if not fixed:
        interval_ms = interval_of(
            ([moment for moment, _ in series.samples] for series in (*batch.cards, *batch.hami)), interval_ms
        )
    digest = Digest(window, interval_ms)
    places = _places(cluster, reading)
    reading.series = [replace(one, node=places.get(one.uuid, one.node)) for one in reading.series]
    reading.held = [replace(one, node=places.get(one.uuid, one.node)) for one in reading.held]
    lives = pod_lives(cluster, {one.workload[:2] for one in hami.series if one.workload})
    slack = timedelta(milliseconds=2 * interval_ms)

    def alive(namespace: str, pod: str, at_ms: int) -> bool:
        at = from_epoch_ms(at_ms)
        known = lives.get((namespace, pod), ())
        return any(one.since <= at and (one.until is None or at <= one.until + slack) for one in known)

    tracks = tracks_of_cards(reading.series)
    tracks += tracks_of_hami(of_live_pods(hami.series, alive), {one.uuid for one in reading.series})
    digest.rows = fold(tracks, start_ms, end_ms, interval_ms)
    digest.held = [one for one in reading.held if one.last_ms >= start_ms]
    digest.cards = _cards(reading, places)
    digest.dropped = dict(sorted((reading.dropped + hami.dropped).items()))
    moments = _moments(batch, reading)
    everything = set().union(*moments.values())
    digest.newest = from_epoch_ms(max(everything)) if everything else None
    _find_gaps(digest, batch, nodes, moments, everything)
    unmapped = unmapped_nodes(reading.series, reading.held, _holding(cluster, window, nodes))
    digest.unmapped = tuple(sorted(unmapped))
    for node in digest.unmapped:
        digest.gaps[TelemetryGap.Kind.UNMAPPED.value, node] = [(window.start, window.end)]
    return digest


def _places(cluster: Cluster, reading: Reading) -> dict[str, str]:
    """UUID → node: as the rows say; else as it was last known; else where the pod runs that holds it."""
    places = {uuid: card.node for uuid, card in reading.cards.items() if card.node}
    missing = reading.cards.keys() - places.keys()
    if not missing:
        return places
    places |= {uuid: node for uuid, node in node_of_cards(cluster.pk, missing).items() if uuid not in places}
    lost = [one for one in reading.held if one.uuid not in places]
    lives = pod_lives(cluster, {one.workload[:2] for one in lost})
    for one in lost:
        on = {life.node for life in lives.get(one.workload[:2], ()) if life.until is None and life.node}
        if len(on) == 1:
            places[one.uuid] = on.pop()
    return places


def _cards(reading: Reading, places: dict[str, str]) -> list[SeenCard]:
    """The cards with their memory in use and free together, where that is told of the whole card."""
    memory: dict[str, dict[str, int]] = defaultdict(dict)
    for one in reading.series:
        value = one.samples[-1][1] if one.samples else None
        if one.metric in (FB_USED, FB_FREE) and one.mig is None and one.scope == "card" and value is not None:
            memory[one.uuid][one.metric] = int(value)
    return [
        SeenCard(card, places.get(uuid, ""), sum(memory[uuid].values()) if len(memory[uuid]) == 2 else None)
        for uuid, card in reading.cards.items()
    ]


def _moments(batch: Batch, reading: Reading) -> dict[str, set[int]]:
    """Node → instants of samples; under "" those whose node is not known."""
    found: dict[str, set[int]] = defaultdict(set)
    for one in reading.series:
        found[one.node].update(moment for moment, _ in one.samples)
    for series in batch.hami:
        found[""].update(moment for moment, _ in series.samples)
    return found


def _find_gaps(
    digest: Digest, batch: Batch, nodes: dict[str, Node], moments: dict[str, set[int]], everything: set[int]
) -> None:
    window = digest.window
    start_ms, end_ms = epoch_ms(window.start), epoch_ms(window.end)

    def times(found: set[int]) -> list[tuple[datetime, datetime]]:
        gaps = gaps_of(found, start_ms, end_ms, digest.interval_ms)
        return [(from_epoch_ms(gap.start_ms), from_epoch_ms(gap.end_ms)) for gap in gaps]

    silent = TelemetryGap.Kind.SILENT.value
    whole = times(everything)
    if whole:
        digest.gaps[silent, ""] = whole
    if batch.partial:
        digest.gaps[TelemetryGap.Kind.PARTIAL.value, ""] = [(window.start, window.end)]
    if moments.get("") and not any(moments.get(name) for name in nodes):
        return  # the rows name no node: none can be said to be silent
    quiet = []
    for name, node in nodes.items():
        of_node = times(moments.get(name, set()))
        if not of_node or of_node == whole:
            continue
        hami = node.pool is not None and node.pool.sharing == SharingMode.HAMI
        if hami and batch.hami and not moments.get(name):
            continue  # HAMi's monitor tells instead
        digest.gaps[silent, name] = of_node
        if of_node[-1][1] == window.end:
            quiet.append(name)
    digest.silent = tuple(sorted(quiet))


def _holding(cluster: Cluster, window: Window, nodes: dict[str, Node]) -> set[str]:
    """Nodes of whole cards or MIG slices on which a pod held some for all of the window and a while before."""
    hami = {name for name, node in nodes.items() if node.pool is not None and node.pool.sharing == SharingMode.HAMI}
    pods = PodObservation.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gte=window.end),
        Q(gone_at__isnull=True) | Q(gone_at__gte=window.end),
        cluster=cluster,
        started_at__lte=window.start - LOOK_BACK,
    ).exclude(holds=[])
    return set(pods.values_list("node_name", flat=True).distinct()) - hami
