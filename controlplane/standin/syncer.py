"""vCluster's part: the tenant's Secret, and what it copies between the tenant's API server and the host's namespace."""

from __future__ import annotations

import time
from typing import Any

from controlplane.api import Api, ApiError, Obj
from controlplane.standin.authn import configuration
from controlplane.standin.events import Events
from controlplane.standin.pool import Tenant
from controlplane.standin.release import Release
from controlplane.standin.translate import (
    MANAGED_BY,
    PREFIX,
    annotations_of,
    host_name,
    host_pod,
    labels,
    references,
)

FINISHED = ("Succeeded", "Failed")
SLOW_SECONDS = 5.0
"""How often Secret, authentication and nodes are looked at."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds before a pod that the host refused is tried again."""


class Syncer:
    """Of one release; made anew when the program starts."""

    def __init__(self, release: Release, values: Obj, host: Api, tenant: Tenant) -> None:
        self.name, self.namespace = release.name, release.namespace
        self.values, self.host, self.tenant, self.inner = values, host, tenant, tenant.api
        self._events = Events(self.inner)
        self._again: dict[str, tuple[float, float]] = {}
        """uid of a refused pod → when it is tried again, and the pause before."""
        self._slow_at = 0.0
        self._owner: Obj = {}

    def step(self) -> None:
        """Look at everything once. Raises ApiError (try again later)."""
        if time.monotonic() > self._slow_at:
            self._furnish()
            self._slow_at = time.monotonic() + SLOW_SECONDS
        if self._owner:
            self._pods()

    def look_again(self, values: Obj) -> None:
        """The values may have changed."""
        if values != self.values:
            self.values, self._slow_at = values, 0.0

    def _furnish(self) -> None:
        service = self.host.find(f"/api/v1/namespaces/{self.namespace}/services/{self.name}")
        if service is None:
            self._owner = {}
            return
        self._owner = {"name": self.name, "uid": service["metadata"]["uid"]}
        self.tenant.upgrade(self.values["controlPlane"]["distro"]["k8s"]["image"]["tag"])
        text = configuration(self.values, self.namespace, self.host)
        if text is not None:
            self.tenant.authenticate(text)
        self._secrets()
        self._nodes()

    def _secrets(self) -> None:
        """`vc-NAME`, and the further ones that the values ask for."""
        export = self.values["exportKubeConfig"]
        wanted = [{"name": f"vc-{self.name}", "server": export.get("server")}, *(export["additionalSecrets"] or [])]
        for row in wanted:
            namespace = row.get("namespace") or self.namespace
            metadata: Obj = {
                "name": row["name"],
                "namespace": namespace,
                "labels": {"app": "vcluster", "vcluster-name": self.name},
            }
            if namespace == self.namespace:
                metadata["ownerReferences"] = [self._reference()]
            data = self.tenant.secret_data(str(row.get("server") or ""))
            path = f"/api/v1/namespaces/{namespace}/secrets"
            found = self.host.find(f"{path}/{row['name']}")
            if found is None:
                body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
                self.host.create(body)
            elif found.get("data") != data:
                self.host.merge(f"{path}/{row['name']}", {"data": data})

    def _reference(self) -> Obj:
        """To the Service of the release: what is synced goes with it."""
        return {"apiVersion": "v1", "kind": "Service", "controller": False, **self._owner}

    def _nodes(self) -> None:
        """The host's nodes with all of their capacity, those that the values select; else those that pods are on."""
        wanted = self.values["sync"]["fromHost"]["nodes"]
        hosts = self.host.items("/api/v1/nodes")
        if wanted["enabled"]:
            chosen = ((wanted.get("selector") or {}).get("labels") or {}).items()
            hosts = [one for one in hosts if chosen <= (one["metadata"].get("labels") or {}).items()]
        else:
            used = {pod["spec"].get("nodeName") for pod in self._host_pods()}
            hosts = [one for one in hosts if one["metadata"]["name"] in used]
        there = {one["metadata"]["name"]: one for one in self.inner.items("/api/v1/nodes")}
        for node in hosts:
            name = node["metadata"]["name"]
            if name not in there:
                tags = {**(node["metadata"].get("labels") or {}), MANAGED_BY: self.name}
                body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": tags}, "spec": {}}
                self.inner.create(body)
            given = node.get("status") or {}
            status = {key: given[key] for key in ("capacity", "allocatable", "conditions", "nodeInfo") if key in given}
            known = (there.get(name) or {}).get("status") or {}
            if any(known.get(key) != value for key, value in status.items() if key != "conditions"):
                self.inner.merge(f"/api/v1/nodes/{name}/status", {"status": status})
        for name in set(there) - {node["metadata"]["name"] for node in hosts}:
            self.inner.delete(f"/api/v1/nodes/{name}")

    def _host_pods(self) -> list[Obj]:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return self.host.items(f"{path}?labelSelector={MANAGED_BY}%3D{self.name}")

    def _pods(self) -> None:
        there = {(pod["metadata"].get("annotations") or {}).get(f"{PREFIX}uid"): pod for pod in self._host_pods()}
        inner = {pod["metadata"]["uid"]: pod for pod in self.inner.items("/api/v1/pods")}
        for uid, pod in inner.items():
            try:
                self._one(pod, there.get(uid))
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
        for uid, host in there.items():
            if uid not in inner:
                self._end(host)
        self._again = {uid: row for uid, row in self._again.items() if uid in inner}

    def _one(self, pod: Obj, host: Obj | None) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if host is None:
            finished = (pod.get("status") or {}).get("phase") in FINISHED
            if metadata.get("deletionTimestamp") or (pod["spec"].get("nodeName") and not finished):
                self.inner.call("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}})
            elif not finished:
                self._create(pod)
            return
        if metadata.get("deletionTimestamp"):
            self._end(host)
        self._copy_back(pod, host, path)

    def _end(self, host: Obj) -> None:
        metadata = host["metadata"]
        if not metadata.get("deletionTimestamp"):
            path = f"/api/v1/namespaces/{self.namespace}/pods/{metadata['name']}"
            self.host.delete(path, uid=metadata["uid"])

    def _copy_back(self, pod: Obj, host: Obj, path: str) -> None:
        node = host["spec"].get("nodeName")
        if node and not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod["metadata"]["name"]},
                "target": target,
            }
            self.inner.call("POST", f"{path}/binding", body)
        told, known = _status(host), _status(pod)
        if any(known.get(key) != value for key, value in told.items()):
            self.inner.merge(f"{path}/status", {"status": told})

    def _create(self, pod: Obj) -> None:
        uid = pod["metadata"]["uid"]
        at, pause = self._again.get(uid, (0.0, FIRST_PAUSE))
        if time.monotonic() < at:
            return
        try:
            self._make(pod)
            self._again.pop(uid, None)
        except ApiError as error:
            if error.status not in (400, 403, 422):
                raise
            self._again[uid] = time.monotonic() + pause, min(pause * 2, LONGEST_PAUSE)
            metadata = pod["metadata"]
            name = host_name(metadata["name"], metadata["namespace"], self.name)
            told = error.told.replace(name, metadata["name"])
            self._events.sync_error(pod, f"Error syncing to host cluster: create object: {told}")

    def _make(self, pod: Obj) -> None:
        namespace = pod["metadata"]["namespace"]
        maps, secrets = references(pod)
        for plural, kind, names in (("configmaps", "ConfigMap", maps), ("secrets", "Secret", secrets)):
            for name in sorted(names):
                self._copy(plural, kind, namespace, name)
        inside = self.inner.call("GET", f"/api/v1/namespaces/{namespace}")
        made = host_pod(
            pod, inside["metadata"].get("labels") or {}, self.namespace, self.name, self._owner,
            token_secrets=bool(self.values["sync"]["toHost"]["pods"].get("useSecretsForSATokens")),
        )  # fmt: skip
        self.host.create(made)

    def _copy(self, plural: str, kind: str, namespace: str, name: str) -> None:
        """A ConfigMap or Secret that a pod uses; one that is not there is not copied, and the pod waits for it."""
        found = self.inner.find(f"/api/v1/namespaces/{namespace}/{plural}/{name}")
        if found is None:
            return
        found["metadata"].setdefault("namespace", namespace)
        metadata = {
            "name": host_name(name, namespace, self.name),
            "namespace": self.namespace,
            "labels": labels(found, {}, self.name),
            "annotations": annotations_of(found, kind, self.namespace, self.name),
            "ownerReferences": [self._reference()],
        }
        content: dict[str, Any] = {key: found[key] for key in ("data", "binaryData", "type") if key in found}
        self.host.apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, **content})


def _status(pod: Obj) -> Obj:
    """What is copied of a pod's status."""
    kept = ("phase", "reason", "message", "conditions", "containerStatuses", "initContainerStatuses", "podIP", "podIPs",
            "hostIP", "startTime", "qosClass")  # fmt: skip
    status = pod.get("status") or {}
    return {key: status[key] for key in kept if key in status}
