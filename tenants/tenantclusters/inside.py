"""Inside a tenant cluster: who may do what there, the robots, and what its own API server tells.

The way in is the Secret ``vc-NAME`` on the host: read for each run, used in memory, never stored. Every write asks the
host cluster's guard first, so a paused host or the stop of all writing holds inside too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from infra.adapters.vcluster_state import Refused, read_credentials, refused_pods
from infra.kube.client import WRITE_TIMEOUT, KubeClient, Obj
from infra.kube.errors import NotFound
from infra.models import Cluster
from infra.names import selector
from portal.kernel.clock import utcnow
from portal.kernel.workqueue import Claimed
from tenants.models import Robot
from tenants.tenantclusters.access import LABELS, RBAC, ROBOTS_NAMESPACE, Access, access_manifests

_SHOWN = 20
"""Refused pods that are kept to be shown; their number is kept in full."""


@dataclass(frozen=True)
class InsideView:
    """What its API server told. ``version`` as it says: ``v1.35.4``; ``nodes``: what the tenant sees, not its own."""

    version: str
    nodes: int
    pods: int
    refused: tuple[Refused, ...]

    def as_json(self) -> dict[str, Any]:
        """For storage."""
        return {
            "nodes": self.nodes,
            "pods": self.pods,
            "refused_count": len(self.refused),
            "refused": [one.as_json() for one in self.refused[:_SHOWN]],
        }


@contextmanager
def way_in(secret: Mapping[str, Any], *, host: Cluster, name: str, endpoint: str) -> Iterator[tuple[KubeClient, str]]:
    """A client of the tenant cluster's API server, and the authority of its endpoint (PEM); closed at the end.

    Raises:
        SecretRefused: the Secret can't be used.
    """
    credentials = read_credentials(secret, endpoint=endpoint, now=utcnow())
    client = KubeClient(credentials, name=f"{name} (tenant cluster on {host.slug})", cluster_id=host.pk)
    try:
        yield client, credentials.ca_data or ""
    finally:
        client.close()


def look(client: KubeClient) -> InsideView:
    """Ask for the version, the nodes, and the pods that wait because the host refuses them."""
    version = str(client.version().get("gitVersion") or "")
    nodes = client.list_all("v1", "Node", metadata_only=True).items
    pods = client.list_all("v1", "Pod", field_selector="status.phase=Pending").items
    # Where nothing waits, no event can speak of it.
    events = client.list_all("v1", "Event", field_selector="reason=SyncError").items if pods else []
    return InsideView(version, len(nodes), len(pods), tuple(refused_pods(pods, events)))


def apply_access(item: Claimed, client: KubeClient, access: Access) -> None:
    """Bring roles and robots inside to what the portal's lists say, and take away what they don't.

    Identical objects are not written again. What the tenant's own administrators made is left alone.
    """
    wanted = access_manifests(access)
    for manifest in wanted:
        if not _is_as_wanted(client, manifest):
            item.require(WRITE_TIMEOUT)
            client.apply(manifest, force=True)
    keep = {(one["kind"], one["metadata"]["name"]) for one in wanted}
    for api_version, kind, namespace in _SWEPT:
        for one in client.list_all(
            api_version, kind, namespace=namespace, label_selector=selector(LABELS), metadata_only=True
        ).items:
            metadata = one["metadata"]
            if (kind, metadata["name"]) not in keep and not metadata.get("deletionTimestamp"):
                item.require(WRITE_TIMEOUT)
                _delete(client, api_version, kind, metadata, namespace)


# Bindings before accounts: without a binding a token that is still about can do nothing.
_SWEPT = ((f"{RBAC}/v1", "ClusterRoleBinding", ""), ("v1", "ServiceAccount", ROBOTS_NAMESPACE))


def robot_token(client: KubeClient, robot: Robot, seconds: int) -> str:
    """A token of a robot's ServiceAccount, good for about ``seconds`` (the server may give less).

    Raises:
        NotFound: its ServiceAccount is not there.
    """
    return client.request_token(ROBOTS_NAMESPACE, robot.name, seconds=seconds, audiences=())


def _is_as_wanted(client: KubeClient, manifest: Obj) -> bool:
    """Whether the object is there with our labels and exactly these subjects; roleRef can't be changed in place."""
    metadata = manifest["metadata"]
    try:
        live = client.get(manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace", ""))
    except NotFound:
        return False
    labels = live["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in LABELS.items()):
        return False
    if manifest["kind"] != "ClusterRoleBinding":
        return True
    if live.get("roleRef") != manifest["roleRef"]:
        _delete(client, manifest["apiVersion"], manifest["kind"], live["metadata"], "")
        return False
    return _order(live.get("subjects") or []) == _order(manifest["subjects"])


def _order(subjects: Sequence[Obj]) -> list[tuple[str, str, str]]:
    return sorted((one["kind"], one.get("namespace", ""), one["name"]) for one in subjects)


def _delete(client: KubeClient, api_version: str, kind: str, metadata: Obj, namespace: str) -> None:
    try:
        client.delete(api_version, kind, metadata["name"], namespace, uid=metadata["uid"])
    except NotFound:
        return
