"""What a cluster itself says of a namespace's pods, read by a watch that has nothing to do with the portal's."""

from __future__ import annotations

import contextlib
import json
import threading
from datetime import datetime
from typing import Any

import urllib3
import yaml

from tests.support.served import ServedCluster


class PodTimes(threading.Thread):
    """Follows the pods until :meth:`finish`; ``runs`` holds the first start and the last end of each one's containers.

    Both are as the kubelet wrote them: whole seconds.
    """

    def __init__(self, cluster: ServedCluster, namespace: str) -> None:
        super().__init__(daemon=True)
        self.cluster, self.namespace = cluster, namespace
        self.runs: dict[str, list[datetime | None]] = {}
        self._version = ""
        self._done = threading.Event()
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        self._token = config["users"][0]["user"]["token"]
        self._pool = urllib3.PoolManager(ssl_context=cluster.context())

    def run(self) -> None:
        """List and watch, again and again."""
        while not self._done.is_set():
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                self._follow()
            self._done.wait(0.1)

    def stop(self) -> None:
        """Read no more."""
        self._done.set()
        self.join(30)

    def finish(self) -> dict[str, tuple[datetime, datetime]]:
        """Start and end by the pods' uids. Fails where a pod is still running."""
        self.stop()
        ended = {uid: (start, end) for uid, (start, end) in self.runs.items() if start is not None and end is not None}
        assert len(ended) == len(self.runs), f"not all pods of {self.cluster.name} have ended: {self.runs}"
        return ended

    def _follow(self) -> None:
        """One stream, from where the last one ended, so that nothing between them is missed."""
        path = f"/api/v1/namespaces/{self.namespace}/pods?watch=true&timeoutSeconds=2&resourceVersion={self._version}"
        answer = self._pool.request(
            "GET",
            self.cluster.server + path,
            headers={"Authorization": f"Bearer {self._token}"},
            preload_content=False,
            retries=False,
            timeout=urllib3.Timeout(connect=10, read=30),
        )
        with contextlib.closing(answer):
            for line in answer.read_chunked():
                for event in map(json.loads, line.splitlines()):
                    assert event["type"] != "ERROR", event
                    self._version = event["object"]["metadata"]["resourceVersion"]
                    self._note(event["object"])

    def _note(self, pod: dict[str, Any]) -> None:
        run = self.runs.setdefault(pod["metadata"]["uid"], [None, None])
        for status in pod.get("status", {}).get("containerStatuses", []):
            for state in (status.get("state", {}), status.get("lastState", {})):
                for facts in state.values():
                    if "startedAt" in facts:
                        start = datetime.fromisoformat(facts["startedAt"])
                        run[0] = min(run[0] or start, start)
                    if "finishedAt" in facts:
                        end = datetime.fromisoformat(facts["finishedAt"])
                        run[1] = max(run[1] or end, end)
