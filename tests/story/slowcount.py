"""Who held what, counted slowly and without the portal: from a watch of its own, second by second where it must.

The kubelet's times are whole seconds, so a pod's seconds are counted one by one. Shares are written down by the test
that makes the pods.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import urllib3
import yaml

from tests.support.served import ServedCluster

SHARE = "tests.aifactory.dev/millionths"
"""Annotation of a pod: what it holds, in millionths of a card."""


@dataclass
class Pod:
    """What the cluster said of it. ``gone``: our clock, when its deletion was seen."""

    namespace: str
    name: str
    millionths: int
    started: datetime | None = None
    finished: datetime | None = None
    running: bool = False
    waiting: bool = False
    over: bool = False
    gone: datetime | None = None

    def held(self, until: datetime) -> tuple[datetime, datetime] | None:
        """From its first start to its end, or to ``until``; None where it never started before that."""
        if self.started is None or self.started >= until:
            return None
        end = until
        if self.over or self.gone is not None:
            # Out of a back-off a pod ends when it is gone; else with the last of its containers.
            end = self.gone if self.waiting and self.gone is not None else (self.finished or self.gone or until)
        return self.started, min(end, until)


@dataclass
class SlowCount(threading.Thread):
    """Follows all pods of a cluster until :meth:`finish`."""

    cluster: ServedCluster
    pods: dict[str, Pod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._version = ""
        self._done = threading.Event()
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        self._token = config["users"][0]["user"]["token"]
        self._pool = urllib3.PoolManager(ssl_context=self.cluster.context())

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        """Watch, again and again."""
        while not self._done.is_set():
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                self._follow()
            self._done.wait(0.1)

    def finish(self) -> list[Pod]:
        """Read no more; the pods."""
        self._done.set()
        self.join(30)
        return list(self.pods.values())

    def _follow(self) -> None:
        answer = self._pool.request(
            "GET",
            f"{self.cluster.server}/api/v1/pods?watch=true&timeoutSeconds=2&resourceVersion={self._version}",
            headers={"Authorization": f"Bearer {self._token}"},
            preload_content=False,
            retries=False,
            timeout=urllib3.Timeout(connect=10, read=30),
        )
        with contextlib.closing(answer):
            for line in answer.read_chunked():
                for event in map(json.loads, line.splitlines()):
                    if event["type"] == "ERROR":  # history was forgotten: what was missed is not this count's to miss
                        assert event["object"]["code"] == 410, event
                        self._version = ""
                        return
                    self._version = event["object"]["metadata"]["resourceVersion"]
                    self._note(event["type"], event["object"])

    def _note(self, kind: str, seen: dict[str, object]) -> None:
        metadata: dict[str, object] = seen["metadata"]  # type: ignore[assignment]
        annotations: dict[str, str] = metadata.get("annotations") or {}  # type: ignore[assignment]
        if SHARE not in annotations:
            return
        pod = self.pods.setdefault(
            str(metadata["uid"]), Pod(str(metadata["namespace"]), str(metadata["name"]), int(annotations[SHARE]))
        )
        status: dict[str, object] = seen.get("status") or {}  # type: ignore[assignment]
        containers: list[dict[str, dict[str, dict[str, str]]]] = status.get("containerStatuses") or []  # type: ignore[assignment]
        for one in containers:
            pod.waiting = bool(one.get("lastState", {}).get("terminated")) and "waiting" in one.get("state", {})
            for state in (one.get("state", {}), one.get("lastState", {})):
                for facts in state.values():
                    if start := facts.get("startedAt"):
                        at = datetime.fromisoformat(start)
                        pod.started = min(pod.started or at, at)
                    if end := facts.get("finishedAt"):
                        at = datetime.fromisoformat(end)
                        pod.finished = max(pod.finished or at, at)
        pod.over = status.get("phase") in ("Succeeded", "Failed")
        if kind == "DELETED":
            pod.gone = datetime.now(UTC)


def seconds(pods: Iterable[Pod], start: datetime, end: datetime) -> dict[str, int]:
    """Millionths·seconds of each namespace within [start, end), counted second by second.

    Pods begin and end at whole seconds; so must the window, or its edge is cut at the millisecond.
    """
    found: dict[str, int] = defaultdict(int)
    for pod in pods:
        held = pod.held(end)
        if held is None:
            continue
        first, last = max(held[0], start), held[1]
        milliseconds = int(last.timestamp() * 1000) - int(first.timestamp() * 1000)
        found[pod.namespace] += pod.millionths * max(0, milliseconds)
    return {namespace: amount for namespace, amount in found.items() if amount}
