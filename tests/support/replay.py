"""The recorded run of ``tests/data/recorded``, played through the watcher's own follower and commit.

What differs from a real watch is only where the events come from (:class:`Recording` in the place of a cluster) and
what time it is: the clock shows, for each event, the latest instant that its object names, so that what the watcher
dates by its own clock lies where it lay when the run was recorded. Modes:

==========  ============================================================================================
whole       list before the first event, then one stream
resume      the watcher dies after ``cut`` events; another resumes from the stored version, ``outage`` later
relist      as resume, but the history is gone: a list ``missed`` events later, whatever happened between unseen
twice       each stream is sent twice
shuffled    the events in any order (``seed``)
==========  ============================================================================================
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from infra.kube.errors import Call, Gone
from infra.kube.reader import Page
from infra.kube.watching import EventType, WatchEvent
from infra.models import Cluster, Site
from infra.watcher import targets
from infra.watcher.commit import commit
from infra.watcher.follower import Follower
from infra.watcher.items import Item
from infra.watcher.nodes import live_nodes
from infra.watcher.pods import live_pods
from infra.watcher.targets import Held
from portal.kernel.clock import parse_rfc3339, time_source
from portal.kernel.scoping import system_scope

DATA = Path(__file__).resolve().parents[1] / "data" / "recorded"
BEGIN = datetime(2026, 11, 29, 16, 30, 40, tzinfo=UTC)
"""After the nodes were made, before the first pod."""
END = datetime(2026, 11, 29, 16, 45, 42, tzinfo=UTC)
"""When the recording ended."""

Mode = Literal["whole", "resume", "relist", "twice", "shuffled"]


def truth() -> dict[str, Any]:
    """The true figures, computed from the pods' times and requests when the run was recorded."""
    data: dict[str, Any] = json.loads((DATA / "truth.json").read_text())
    return data


def recorded_cluster(slug: str = "recorded") -> Cluster:
    """A cluster row for the run; nothing can be asked of it."""
    site, _ = Site.objects.get_or_create(slug="lab", defaults={"name": "Lab"})
    return Cluster.objects.create(
        slug=slug,
        name=slug,
        site=site,
        api_server="https://127.0.0.1:1",
        kubeconfig_ciphertext=b"none",
        identity=f"identity-of-{slug}",
    )


@dataclass
class Clock:
    """What :func:`portal.kernel.clock.utcnow` answers during a replay."""

    now: datetime = BEGIN

    def __call__(self) -> datetime:
        return self.now


@dataclass(frozen=True)
class Moment:
    """One event, and when it came."""

    at: datetime
    event: WatchEvent


def moments() -> list[Moment]:
    """The recorded pod events in their order."""
    at, found = BEGIN, []
    for line in (DATA / "pods-watch.jsonl").read_text().splitlines():
        entry = json.loads(line)
        thing = entry["object"]
        if entry["type"] == "DELETED":
            at += timedelta(seconds=1)
        at = max(at, *_instants(thing))
        event = WatchEvent(EventType(entry["type"]), thing, thing["metadata"]["resourceVersion"])
        found.append(Moment(at, event))
    return found


def _instants(value: Any) -> Iterator[datetime]:
    """Every instant that an object names, but its deletion timestamp, which may lie ahead."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key != "deletionTimestamp":
                yield from _instants(item)
    elif isinstance(value, list):
        for item in value:
            yield from _instants(item)
    elif isinstance(value, str) and value[:4] == "2026" and value.endswith("Z"):
        yield parse_rfc3339(value)


@dataclass
class Recording:
    """A :class:`~infra.watcher.source.Source` that plays a list and a stream."""

    clock: Clock
    listed: Sequence[dict[str, Any]]
    listed_version: str
    stream: Sequence[Moment] = ()
    gone_before: int = 0
    """Versions lower than this are answered with 410."""
    until: datetime | None = None
    """When a bookmark ends the stream; None: it breaks off without."""
    renewals: dict[str, datetime] = field(default_factory=dict)

    def confirm_cluster(self) -> None:
        """It is."""

    def pages(self) -> Iterator[Page]:
        half = len(self.listed) // 2
        yield Page(list(self.listed[:half]), self.listed_version)
        yield Page(list(self.listed[half:]), self.listed_version)

    def events(self, resource_version: str) -> Iterator[WatchEvent]:
        if int(resource_version) < self.gone_before:
            raise Gone(Call("recorded", "watch"), "too old")
        last = resource_version
        for moment in self.stream:
            self.clock.now = max(self.clock.now, moment.at) if self.until else moment.at
            last = moment.event.resource_version
            yield moment.event
        if self.until is not None:
            self.clock.now = max(self.until, self.clock.now)
            yield WatchEvent(EventType.BOOKMARK, {"metadata": {"resourceVersion": last}}, last)

    def is_gone(self, namespace: str, name: str, uid: str) -> bool:
        return all(thing["metadata"]["uid"] != uid for thing in self.listed)

    def lease_renewed_at(self, node: str) -> datetime | None:
        return self.renewals.get(node)


class Batches:
    """A sink that commits every ``size`` items, and the rest when it is flushed."""

    def __init__(self, held: Held, size: int) -> None:
        self._held, self._size = held, size
        self._items: list[Item] = []

    def put(self, item: Item) -> None:
        self._items.append(item)
        if len(self._items) >= self._size:
            self.flush()

    def flush(self) -> None:
        """Commit what is left."""
        items, self._items = self._items, []
        self._held = commit(self._held, items)


def take(cluster: Cluster, resource: str) -> Held:
    """Hold a target of the cluster, whoever held it before."""
    with system_scope("replay"):
        targets.ensure_targets()
        row = cluster.watch_targets.get(resource=resource)
        row.lease_until, row.not_before = None, None
        row.save(update_fields=["lease_until", "not_before"])
        return next(h for h in targets.claim("replay", 1000) if h.target_id == row.pk)


def follow(cluster: Cluster, resource: str, source: Recording, *, batch: int = 7, rounds: int = 1) -> Held:
    """Take the target and follow the source, ``rounds`` times; the answer is the lease."""
    held = take(cluster, resource)
    sink = Batches(held, batch)

    def live() -> Sequence[tuple[str, str, str]]:
        return live_pods(cluster.pk) if resource == "pods" else live_nodes(cluster.pk)

    follower = Follower(held, source, sink, live)
    with time_source(source.clock):
        for _ in range(rounds):
            follower.run_once()
        sink.flush()
    return held


def replay_nodes(cluster: Cluster, *, begin: datetime = BEGIN, until: datetime = END) -> None:
    """The recorded nodes, in service from ``begin`` on, watched until ``until``."""
    listed = json.loads((DATA / "nodes.json").read_text())
    source = Recording(Clock(begin), listed["items"], "300", until=until)
    follow(cluster, "nodes", source)


def replay_pods(
    cluster: Cluster,
    mode: Mode = "whole",
    *,
    cut: int = 62,
    missed: int = 10,
    outage: timedelta = timedelta(seconds=2),
    seed: int = 0,
    batch: int = 7,
) -> None:
    """The recorded pods in one of the modes (see the module).

    Args:
        cut: how many events the first watcher reads; ``missed``: how many more happened before the list (relist).
        outage: resume: how long nobody watched; the events of that time come when the stream is open again.
    """
    every = moments()
    clock = Clock(BEGIN)
    if mode == "shuffled":
        random.Random(seed).shuffle(every)
    if mode in ("whole", "shuffled", "twice"):
        stream = every * (2 if mode == "twice" else 1)
        until = END if mode != "shuffled" else None
        follow(cluster, "pods", Recording(clock, (), "326", stream, until=until), batch=batch)
        return
    first, rest = every[:cut], every[cut:]
    follow(cluster, "pods", Recording(clock, (), "326", first), batch=batch)
    clock.now = first[-1].at + outage
    if mode == "resume":
        follow(cluster, "pods", Recording(clock, (), "", rest, until=END), batch=batch)
        return
    unseen, rest = rest[:missed], rest[missed:]
    there = state_after(first + unseen)
    version = (first + unseen)[-1].event.resource_version
    clock.now = max(clock.now, (first + unseen)[-1].at)
    source = Recording(clock, there, version, rest, gone_before=int(version), until=END)
    follow(cluster, "pods", source, batch=batch, rounds=2)


def state_after(events: Sequence[Moment]) -> list[dict[str, Any]]:
    """What a list would have held after these events."""
    there: dict[str, dict[str, Any]] = {}
    for moment in events:
        uid = moment.event.object["metadata"]["uid"]
        if moment.event.type is EventType.DELETED:
            there.pop(uid, None)
        else:
            there[uid] = moment.event.object
    return list(there.values())


def replay(cluster: Cluster, mode: Mode = "whole", **options: Any) -> None:
    """Nodes and pods of the recorded run into PostgreSQL; ``options`` as of :func:`replay_pods`."""
    replay_nodes(cluster)
    replay_pods(cluster, mode, **options)
