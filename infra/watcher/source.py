"""Where a target's objects come from: a cluster through ``infra.kube``, or (in tests) a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Protocol

from infra.kube.client import KubeClient
from infra.kube.errors import KubeError, NotFound
from infra.kube.reader import Page
from infra.kube.watching import WatchEvent
from portal.kernel.clock import parse_rfc3339

_KINDS = {"pods": "Pod", "nodes": "Node", "namespaces": "Namespace"}
LEASES = "kube-node-lease"


class Source(Protocol):
    """One resource of one API server."""

    def confirm_cluster(self) -> None:
        """Raises WrongCluster where the address leads to another cluster than the one that was connected."""
        ...

    def pages(self) -> Iterator[Page]:
        """All objects. A page that says ``restarted`` begins the list anew."""
        ...

    def events(self, resource_version: str) -> Iterator[WatchEvent]:
        """Events after that version until the server ends the stream. Raises Gone where the version is too old."""
        ...

    def is_gone(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the API server says in so many words that this object is not there (404, or another uid)."""
        ...

    def lease_renewed_at(self, node: str) -> datetime | None:
        """When the node's kubelet last renewed its Lease; None where that can't be told."""
        ...


class KubeSource:
    """A cluster's API server.

    ``client`` is asked for each list and each stream, so that new credentials are used as soon as they are stored.
    """

    def __init__(self, client: Callable[[], KubeClient], resource: str) -> None:
        self._client = client
        self._kind = _KINDS[resource]

    def confirm_cluster(self) -> None:
        self._client().require_identity()

    def pages(self) -> Iterator[Page]:
        return self._client().list_pages("v1", self._kind)

    def events(self, resource_version: str) -> Iterator[WatchEvent]:
        return self._client().watch("v1", self._kind, resource_version=resource_version)

    def is_gone(self, namespace: str, name: str, uid: str) -> bool:
        try:
            found = self._client().get("v1", self._kind, name, namespace, metadata_only=True)
        except NotFound:
            return True
        return bool(found["metadata"]["uid"] != uid)

    def lease_renewed_at(self, node: str) -> datetime | None:
        try:
            lease: dict[str, Any] = self._client().get("coordination.k8s.io/v1", "Lease", node, LEASES)
            return parse_rfc3339(lease["spec"]["renewTime"])
        except (KubeError, KeyError, ValueError):
            return None
