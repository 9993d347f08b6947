"""``manage.py watch``: takes targets, follows each in a thread of its own, keeps the leases, and ends in order."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from django.db import DatabaseError, close_old_connections, connection
from django.db.models.functions import Now

from infra.kube.client import KubeClient
from infra.models import Cluster
from infra.watcher import targets
from infra.watcher.follower import Follower
from infra.watcher.inbox import Closed, Committers, Inbox
from infra.watcher.namespaces import live_namespaces
from infra.watcher.nodes import live_nodes
from infra.watcher.pods import live_pods
from infra.watcher.source import KubeSource, Source
from infra.watcher.targets import Held
from portal.kernel import heartbeat
from portal.kernel.models import Heartbeat
from portal.kernel.scoping import system_scope

logger = logging.getLogger(__name__)

KIND = "watcher"
_LIVE: dict[str, Callable[[UUID], Sequence[tuple[str, str, str]]]] = {
    "pods": live_pods,
    "nodes": live_nodes,
    "namespaces": live_namespaces,
}


def kube_source(held: Held) -> Source:
    """The API server of the target's cluster, with the credentials that are stored when it is asked."""

    def client() -> KubeClient:
        close_old_connections()
        try:
            return KubeClient.for_cluster(Cluster.objects.get(pk=held.cluster_id))
        finally:
            connection.close()  # a follower must not keep one: there are many

    return KubeSource(client, held.resource)


class _Following(threading.Thread):
    """One held target."""

    def __init__(self, held: Held, committers: Committers, source: Callable[[Held], Source]) -> None:
        super().__init__(name=f"follow-{held.resource}-{held.cluster_id}", daemon=True)
        self.held = held
        self.inbox = Inbox(held, committers)
        self._source = source
        self._stop_asked = threading.Event()

    def run(self) -> None:
        follower = Follower(self.held, self._source(self.held), self.inbox, self._live)
        failures = 0
        while not self._stop_asked.is_set() and not self.inbox.closed:
            try:
                wait = follower.run_once()
                failures = 0
            except Closed:
                break
            except Exception:
                # A fault of ours, or the database is away: go on from the last event that was put.
                failures += 1
                wait = min(60.0, 2.0**failures)
                logger.exception("following %s of cluster %s failed", self.held.resource, self.held.cluster_id)
            self._stop_asked.wait(wait)
        self.inbox.close()

    def _live(self) -> list[tuple[str, str, str]]:
        try:
            return list(_LIVE[self.held.resource](self.held.cluster_id))
        finally:
            connection.close()

    def let_go(self) -> None:
        """Ask it to end. It may sit in a read; what it reads then goes nowhere."""
        self._stop_asked.set()


class Watcher:
    """The process. :meth:`run` returns after ``stop``."""

    def __init__(
        self,
        *,
        name: str,
        limit: int = 0,
        committers: int = 4,
        tick: float = 5.0,
        lease: timedelta = targets.LEASE,
        source: Callable[[Held], Source] = kube_source,
    ) -> None:
        self.name = name
        self._limit = limit
        self._tick, self._lease = tick, lease
        self._source = source
        self._committers = Committers(committers)
        self._following: dict[UUID, _Following] = {}

    def run(self, stop: threading.Event) -> None:
        """Watch until ``stop`` is set, then write what was read and give the leases back."""
        self._committers.start()
        try:
            while not stop.is_set():
                try:
                    self.tick()
                except DatabaseError:
                    # Leases run out while the database is away; the tokens keep two holders from both writing.
                    logger.exception("the database does not answer; what is held stays held until its lease ends")
                    connection.close()
                stop.wait(self._tick)
        finally:
            self._end()

    def tick(self) -> None:
        """Prolong what is held, drop what is lost or ended, take what is free, and give up more than a fair share."""
        close_old_connections()
        with system_scope("watcher"):
            heartbeat.beat(KIND, self.name, {"targets": len(self._following)})
            targets.ensure_targets()
            ours = targets.renew([one.held for one in self._following.values()], lease=self._lease)
        for target_id, following in list(self._following.items()):
            if target_id not in ours or following.inbox.closed or not following.is_alive():
                self._drop(following, release=target_id in ours)
        share = self._fair_share()
        for following in list(self._following.values())[share:]:
            self._drop(following, release=True)
        with system_scope("watcher"):
            taken = targets.claim(self.name, share - len(self._following), lease=self._lease)
        for held in taken:
            following = _Following(held, self._committers, self._source)
            self._following[held.target_id] = following
            following.start()

    def _fair_share(self) -> int:
        with system_scope("watcher"):
            alive = Heartbeat.objects.filter(kind=KIND, seen_at__gt=Now() - self._lease).count()
            share = math.ceil(targets.watched() / max(1, alive))
        return min(share, self._limit) if self._limit else share

    def _drop(self, following: _Following, *, release: bool) -> None:
        following.let_go()
        following.inbox.close()
        self._following.pop(following.held.target_id, None)
        if release:
            with system_scope("watcher"):
                targets.release([following.held])

    def _end(self) -> None:
        for following in self._following.values():
            following.let_go()
        if not self._committers.stop(timeout=10.0):
            logger.warning("not all of what was read could be written; it is read again from the stored version")
        for following in self._following.values():
            following.inbox.close()
        try:
            with system_scope("watcher"):
                targets.release([following.held for following in self._following.values()])
                Heartbeat.objects.filter(kind=KIND, instance=self.name).delete()
        except DatabaseError:
            logger.exception("the leases could not be given back; they run out by themselves")
        finally:
            connection.close()
