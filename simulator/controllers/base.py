"""How the machinery runs: keys that need a look, one after the other, on the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable

from simulator.cluster import Cluster
from simulator.errors import ApiError
from simulator.options import Options
from simulator.store import Change

log = logging.getLogger("simulator")

Key = tuple[str, ...]

_SLICE = 0.01
"""Seconds of work after which requests get their turn."""


class Controller(ABC):
    """Level triggered: `reconcile` looks at the present state and does the next thing."""

    name = ""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self.registry = cluster.registry

    @property
    def now(self) -> float:
        """Unix seconds."""
        return self.cluster.clock()

    def options(self, subresource: str = "") -> Options:
        """Options of a write in the controller's own name."""
        return Options(manager="kube-controller-manager", subresource=subresource)

    @abstractmethod
    def interest(self, change: Change) -> Iterable[Key]:
        """The keys that need a look after a change."""

    @abstractmethod
    def start(self) -> Iterable[Key]:
        """The keys that need a look at start-up."""

    @abstractmethod
    def reconcile(self, key: Key) -> float | None:
        """Do what is to be done now; returns the seconds until the next look, or None."""


class Manager:
    """Runs the controllers of one cluster."""

    def __init__(self, cluster: Cluster, controllers: list[Controller]) -> None:
        self.controllers = controllers
        self._due: dict[tuple[int, Key], None] = {}
        self._timers: dict[tuple[int, Key], tuple[float, asyncio.TimerHandle]] = {}
        self._failures: dict[tuple[int, Key], int] = {}
        self._wake = asyncio.Event()
        self._stopping = False
        cluster.store.listen(self._changed)

    def _changed(self, change: Change) -> None:
        for index, controller in enumerate(self.controllers):
            for key in controller.interest(change):
                self._add((index, key))

    def _add(self, item: tuple[int, Key]) -> None:
        self._due[item] = None
        self._wake.set()

    def look(self, name: str, key: Key) -> None:
        """Have a controller look at a key soon."""
        for index, controller in enumerate(self.controllers):
            if controller.name == name:
                self._add((index, key))

    def look_at_all(self) -> None:
        """Have every controller look at everything it cares for."""
        for index, controller in enumerate(self.controllers):
            for key in controller.start():
                self._add((index, key))

    async def run(self) -> None:
        """Work until `stop`."""
        self.look_at_all()
        while not self._stopping:
            until = time.monotonic() + _SLICE
            while self._due and time.monotonic() < until:
                item = next(iter(self._due))
                del self._due[item]
                self._one(item)
            if self._due:
                await asyncio.sleep(0)
                continue
            self._wake.clear()
            await self._wake.wait()

    def _one(self, item: tuple[int, Key]) -> None:
        controller = self.controllers[item[0]]
        try:
            again = controller.reconcile(item[1])
            self._failures.pop(item, None)
        except ApiError as error:
            failed = self._failures[item] = self._failures.get(item, 0) + 1
            again = min(0.1 * 2**failed, 10.0)
            log.debug("%s %s: %s", controller.name, "/".join(item[1]), error)
        except Exception:
            log.exception("%s failed on %s", controller.name, "/".join(item[1]))
            again = 5.0
        if again is not None:
            self._later(item, again)

    def _later(self, item: tuple[int, Key], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + max(seconds, 0.0)
        known = self._timers.get(item)
        if known is not None:
            if known[0] <= when:
                return
            known[1].cancel()
        self._timers[item] = (when, loop.call_at(when, self._ring, item))

    def _ring(self, item: tuple[int, Key]) -> None:
        self._timers.pop(item, None)
        self._add(item)

    def stop(self) -> None:
        """End `run`; nothing more is done."""
        self._stopping = True
        for _, handle in self._timers.values():
            handle.cancel()
        self._wake.set()
