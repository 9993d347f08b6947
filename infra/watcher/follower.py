"""Following one target: list once, then watch for ever. No database: what is read goes to a sink, in order."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from infra.evidence import PodEvidence
from infra.kube.errors import Gone, KubeError
from infra.kube.watching import EventType, WatchEvent
from infra.namespace_reading import read_namespace
from infra.node_reading import read_node
from infra.pod_reading import read_pod
from infra.watcher.items import Connected, Failed, Item, Listed, NodeSight, Seen, Sight, Unreadable
from infra.watcher.pods import concerns_us, cost_code_labels
from infra.watcher.source import Source
from infra.watcher.targets import Held
from portal.kernel.clock import utcnow

logger = logging.getLogger(__name__)

BACKLOG_AFTER = timedelta(seconds=10)
"""After a longer pause the first events of a stream are old news: until a bookmark, their time is not the time at
which they happened, and nothing is proved."""
SHORTEST_WAIT, LONGEST_WAIT = 1.0, 120.0


class Sink(Protocol):
    """Where items go. ``put`` may block while the database is slow, and raises to stop the follower."""

    def put(self, item: Item) -> None: ...


class EmptyList(Exception):
    """A list without any object, while there should be some: not believed."""


class Follower:
    """The state of following one target.

    Args:
        live: (namespace, name, uid) of the objects that are thought to be there; asked for where a list came empty.
    """

    def __init__(
        self, held: Held, source: Source, sink: Sink, live: Callable[[], Sequence[tuple[str, str, str]]]
    ) -> None:
        self.resource = held.resource
        self.version = held.resource_version
        self.proof = held.proof
        self.failures = held.failures
        self._source, self._sink, self._live = source, sink, live
        self._read_until = held.proof  # the stream was open and read up to then
        self._relist_reason = "first list"
        self._lists_in_a_row = 0

    def run_once(self) -> float:
        """List if need be, then read one stream to its end. Answers how many seconds to wait before the next call.

        Only what the sink raises comes out; what a cluster does wrong is told to the sink as :class:`Failed`.
        """
        try:
            if not self.version:
                self.list_all()
            self._watch()
        except Gone:
            self.version, self._relist_reason = "", "410 Gone: the history had been compacted"
            self._lists_in_a_row += 1
            # A server whose lists are outdated at once would have us list in a loop.
            return 0.0 if self._lists_in_a_row < 2 else self._wait(self._lists_in_a_row)
        except KubeError as error:
            return self._failed(error.reason, error.sentence)
        except EmptyList as error:
            return self._failed("EmptyList", str(error))
        self._lists_in_a_row = 0
        return 0.0

    # ---- list --------------------------------------------------------------------------------------------

    def list_all(self) -> None:
        """Read the complete list and pass it on; what is not in it is not there."""
        self._source.confirm_cluster()
        asked_at = utcnow()
        sights: list[Sight] = []
        uids: set[str] = set()
        unreadable = version = ""
        for page in self._source.pages():
            if page.restarted:
                asked_at, sights, uids = utcnow(), [], set()
            for thing in page.items:
                uids.add(str((thing.get("metadata") or {}).get("uid")))
                try:
                    sight = self._read(thing, seen_at=asked_at)
                except ValueError as error:  # it is there, so it stays as it was last seen
                    unreadable = f"Passed over: {error}"[:600]
                    continue
                if sight is not None:
                    sights.append(sight)
            version = page.resource_version
        if not uids:
            self._believe_empty()
        self._sink.put(Listed(version, asked_at, tuple(sights), frozenset(uids), self._relist_reason))
        if unreadable:
            logger.warning("in a list of %s: %s", self.resource, unreadable)
            self._sink.put(Unreadable(version, unreadable))
        self._connected()
        self.version, self.proof, self._read_until = version, asked_at, utcnow()

    def _believe_empty(self) -> None:
        """An empty list ends nothing by itself: each object that we knew must be denied by the server, by name."""
        for namespace, name, uid in self._live():
            if not self._source.is_gone(namespace, name, uid):
                what = f"{namespace}/{name}" if namespace else name
                raise EmptyList(
                    f"The list of {self.resource} came empty, but {what} is there. Nothing is read as deleted; the "
                    "list is asked for again."
                )

    # ---- watch -------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        opened = utcnow()
        backlog = self._read_until is None or opened - self._read_until > BACKLOG_AFTER
        unwatched_since = self.proof
        for event in self._source.events(self.version):
            now = utcnow()
            if event.type is EventType.BOOKMARK:
                backlog = False
            item = self._item(event, now, unwatched_since if backlog else None, proof=None if backlog else now)
            if self.failures:
                self._connected()
            self._sink.put(item)
            self.version, self._read_until = event.resource_version, now
            if not backlog:
                self.proof = now
            elif utcnow() - opened > timedelta(seconds=90):
                backlog = False  # a server without bookmarks
            if utcnow() - now > BACKLOG_AFTER:
                # We were held up, and what the server sent meanwhile waits: it is old news as well.
                backlog, unwatched_since, opened = True, self.proof, utcnow()
        self._read_until = utcnow() if not backlog else self._read_until
        if self.failures:
            self._connected()

    def _item(self, event: WatchEvent, now: datetime, unwatched_since: datetime | None, proof: datetime | None) -> Item:
        if event.type is EventType.BOOKMARK:
            return Seen(event.resource_version, None, proof)
        deleted = event.type is EventType.DELETED
        try:
            sight = self._read(event.object, seen_at=now, deleted=deleted, unwatched_since=unwatched_since)
        except ValueError as error:
            logger.warning("an object was passed over: %s", error)
            return Unreadable(event.resource_version, f"Passed over: {error}"[:600])
        return Seen(event.resource_version, sight, proof)

    def _read(
        self,
        thing: dict[str, Any],
        *,
        seen_at: datetime,
        deleted: bool = False,
        unwatched_since: datetime | None = None,
    ) -> Sight | None:
        if self.resource == "pods":
            pod: PodEvidence = read_pod(
                thing, seen_at=seen_at, deleted=deleted, unwatched_since=unwatched_since, more_labels=cost_code_labels()
            )
            return pod if concerns_us(pod) else None
        if self.resource == "namespaces":
            return read_namespace(thing, seen_at=seen_at, deleted=deleted, unwatched_since=unwatched_since)
        facts = read_node(thing)
        unknown = facts.ready is None and facts.has_cards and not deleted
        renewed = self._source.lease_renewed_at(facts.name) if unknown else None
        return NodeSight(facts, seen_at, deleted, unwatched_since if deleted else None, renewed)

    # ---- state -------------------------------------------------------------------------------------------

    def _connected(self) -> None:
        if self.failures:
            self.failures = 0
            self._sink.put(Connected(utcnow()))

    def _failed(self, reason: str, sentence: str) -> float:
        self.failures += 1
        wait = self._wait(self.failures)
        logger.warning("%s: %s", reason, sentence)
        self._sink.put(Failed(reason, sentence, self.failures, utcnow() + timedelta(seconds=wait)))
        return wait

    @staticmethod
    def _wait(times: int) -> float:
        """Exponential, with jitter, so that a thousand watchers don't come back in step."""
        longest = min(LONGEST_WAIT, SHORTEST_WAIT * 2.0 ** min(times - 1, 10))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311  # no secret
