"""The syncer's events inside a tenant cluster, in the form that a real one was recorded in."""

from __future__ import annotations

import datetime as dt
import time

from controlplane.api import Api, ApiError, Obj

COMPONENT = "pod-syncer"


class Events:
    """Of one tenant cluster; the same again counts up."""

    def __init__(self, inner: Api) -> None:
        self._inner = inner
        self._known: dict[tuple[str, str], tuple[str, int]] = {}

    def sync_error(self, pod: Obj, message: str) -> None:
        """A warning about a pod that could not be made on the host."""
        metadata = pod["metadata"]
        namespace, key = metadata["namespace"], (metadata["uid"], message)
        moment = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if key in self._known:
            name, count = self._known[key]
            series = {"count": count + 1, "lastObservedTime": moment}
            try:
                self._inner.merge(f"/api/v1/namespaces/{namespace}/events/{name}", {"series": series})
                self._known[key] = name, count + 1
                return
            except ApiError as error:
                if error.status != 404:
                    raise
        name = f"{metadata['name']}.{time.time_ns():x}"
        about = {"apiVersion": "v1", "kind": "Pod", **{k: metadata[k] for k in ("name", "namespace", "uid")}}
        about["resourceVersion"] = metadata["resourceVersion"]
        self._inner.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": about,
                "type": "Warning",
                "reason": "SyncError",
                "message": message[:1024],
                "action": "SyncPod",
                "eventTime": moment,
                "reportingComponent": COMPONENT,
                "reportingInstance": f"{COMPONENT}-standin",
            }
        )
        self._known[key] = name, 1
