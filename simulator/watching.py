"""Watches: resume from a version, bookmarks, selectors, a bounded history, and ways to break them for tests."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator

from simulator.errors import bad_request, too_old
from simulator.kinds import Kind, Obj
from simulator.objects import namespace_of
from simulator.reading import dumps, partial, predicate
from simulator.request import Request, Target
from simulator.selectors import Predicate
from simulator.store import Change, Entry, Store


class WatchCut(Exception):
    """The watch is to end in the middle of its stream, without a proper end."""


class Hub:
    """Wakes the watches of a kind when something changes, and ends all of them on demand."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._waiting: dict[Kind, set[asyncio.Event]] = {}
        self._cut = 0
        self._ended = 0
        self.open = 0
        store.listen(self._changed)

    def _changed(self, change: Change) -> None:
        for event in self._waiting.get(change.kind, ()):
            event.set()

    def end_all(self, *, cut: bool) -> int:
        """End every open watch: cut off, or closed in order. Returns how many there were."""
        if cut:
            self._cut += 1
        else:
            self._ended += 1
        for events in self._waiting.values():
            for event in events:
                event.set()
        return self.open

    async def stream(self, request: Request, target: Target, bookmark_every: float) -> AsyncGenerator[bytes, None]:
        """The lines of one watch. Raises WatchCut when it is cut off."""
        watch = _Watch(self.store, request, target)
        event = asyncio.Event()
        waiting = self._waiting.setdefault(target.kind, set())
        waiting.add(event)
        cut, ended = self._cut, self._ended
        self.open += 1
        try:
            start = time.monotonic()
            deadline = start + watch.timeout
            next_bookmark = start + bookmark_every
            lines = watch.begin()
            while True:
                if lines:
                    yield b"".join(lines)
                if watch.failed or self._ended != ended:
                    return
                if self._cut != cut:
                    raise WatchCut
                event.clear()
                lines = watch.more()
                if lines:
                    continue
                now = time.monotonic()
                if now >= deadline:
                    if watch.bookmarks:
                        yield watch.bookmark()
                    return
                if watch.bookmarks and now >= next_bookmark:
                    next_bookmark = now + bookmark_every
                    lines = [watch.bookmark()]
                    continue
                wait = min(deadline, next_bookmark if watch.bookmarks else deadline) - now
                try:
                    await asyncio.wait_for(event.wait(), wait)
                except TimeoutError:
                    continue
        finally:
            self.open -= 1
            waiting.discard(event)


class _Watch:
    """Where one watch stands."""

    def __init__(self, store: Store, request: Request, target: Target) -> None:
        self.store = store
        self.kind = target.kind
        self.namespace = target.namespace
        self.test: Predicate | None = predicate(request)
        self.metadata_only = request.metadata_only
        self.bookmarks = request.flag("allowWatchBookmarks")
        self.initial = request.flag("sendInitialEvents")
        self.timeout: float = request.number("timeoutSeconds") or random.uniform(1800, 3600)  # noqa: S311  only spreads the ends
        self.failed = False
        text = request.query.get("resourceVersion", "")
        if text and not text.isdigit():
            raise bad_request(f"invalid resource version: {text!r}")
        self.asked = int(text or 0)
        if self.initial and request.query.get("resourceVersionMatch") != "NotOlderThan":
            raise bad_request(
                "sendInitialEvents: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        self.at = self.asked

    def begin(self) -> list[bytes]:
        """The first lines: nothing when resuming, the present state otherwise."""
        if self.asked and not self.initial:
            return []
        self.at = self.store.version
        entries = self.store.table(self.kind).values()
        lines = [self._line("ADDED", entry) for entry in entries if self._wants(entry.obj)]
        if self.initial and self.bookmarks:
            lines.append(self.bookmark({"k8s.io/initial-events-end": "true"}))
        return lines

    def more(self) -> list[bytes]:
        """What happened since the last line."""
        oldest = self.store.oldest(self.kind)
        if self.at < oldest or self.at > self.store.version:
            self.failed = True
            return [dumps({"type": "ERROR", "object": too_old(self.at, oldest)}) + b"\n"]
        lines = []
        for change in self.store.since(self.kind, self.at):
            self.at = change.version
            line = self._event(change)
            if line:
                lines.append(line)
        return lines

    def _event(self, change: Change) -> bytes | None:
        """The event as this watch's selector sees it: what stops matching is DELETED, what starts is ADDED."""
        before = change.old is not None and self._wants(change.old.obj)
        after = change.type != "DELETED" and self._wants(change.new.obj)
        if after:
            return self._line("MODIFIED" if before else "ADDED", change.new)
        if before:
            return self._line("DELETED", change.new)
        return None

    def _wants(self, obj: Obj) -> bool:
        if self.namespace and namespace_of(obj) != self.namespace:
            return False
        return self.test is None or self.test(obj)

    def _line(self, kind: str, entry: Entry) -> bytes:
        raw = dumps(partial(entry.obj)) if self.metadata_only else entry.raw
        return b'{"type":"' + kind.encode() + b'","object":' + raw + b"}\n"

    def bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        """A BOOKMARK at the present version: everything before it has been sent."""
        self.at = max(self.at, self.store.version)
        meta: Obj = {"resourceVersion": str(self.at)}
        if annotations:
            meta["annotations"] = annotations
        if self.metadata_only:
            obj: Obj = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
        else:
            obj = {**self.kind.blank(), "metadata": meta}
        return dumps({"type": "BOOKMARK", "object": obj}) + b"\n"
