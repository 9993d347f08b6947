"""Inside a tenant cluster: who may do what there, the robots, and what its own API server tells.

The way in is the Secret ``vc-NAME`` on the host: read for each run, used in memory, never stored. Every write asks the
host cluster's guard first, so a paused host or the stop of all writing holds inside too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
from tenants.tenantclusters.access import (
    EDITORS,
    LABELS,
    RBAC,
    ROBOTS_NAMESPACE,
    Access,
    access_manifests,
    editors_manifest,
    is_the_teams,
)

_SHOWN = 20
"""Refused pods that are kept to be shown; their number is kept in full."""
MOST = 2_000
"""Objects of a kind that are looked at. Its administrators may make any number of them, of any size, and the worker is
everybody's: so they are read in small pages, and of each only what is looked at is kept."""
_PAGE = 50


@dataclass(frozen=True)
class InsideView:
    """What its API server told. ``version`` as it says: ``v1.35.4``; ``nodes``: what the tenant sees, not its own;
    ``pods``: those that wait. Neither number goes beyond :data:`MOST`."""

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
    nodes = _some(client, "v1", "Node", _named, metadata_only=True)
    pods = _some(client, "v1", "Pod", _pod, field_selector="status.phase=Pending")
    # Where nothing waits, no event can speak of it.
    events = _some(client, "v1", "Event", _event, field_selector="reason=SyncError") if pods else []
    return InsideView(version, len(nodes), len(pods), tuple(refused_pods(pods, events)))


def _some(
    client: KubeClient, api_version: str, kind: str, kept: Callable[[Obj], Obj], *, most: int = MOST, **chosen: Any
) -> list[Obj]:
    """The first ``most`` objects of a kind, of each only what ``kept`` leaves; ``chosen``: as ``list_pages`` has it."""
    found: list[Obj] = []
    for page in client.list_pages(api_version, kind, limit=_PAGE, **chosen):
        if page.restarted:
            found.clear()
        found += map(kept, page.items)
        if len(found) >= most:
            break
    return found[:most]


def _named(obj: Obj) -> Obj:
    return {"metadata": {key: obj["metadata"].get(key) for key in ("name", "namespace", "uid", "deletionTimestamp")}}


def _labelled(obj: Obj) -> Obj:
    return {"metadata": {**_named(obj)["metadata"], "labels": obj["metadata"].get("labels")}}


def _binding(obj: Obj) -> Obj:
    return _named(obj) | {"roleRef": obj.get("roleRef"), "subjects": obj.get("subjects") or []}


def _pod(obj: Obj) -> Obj:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return _named(obj) | {"spec": {"nodeName": spec.get("nodeName")}, "status": {"phase": status.get("phase")}}


def _event(obj: Obj) -> Obj:
    told = ("involvedObject", "regarding", "reason", "message", "note", "series", "lastTimestamp", "eventTime")
    made = {"creationTimestamp": obj["metadata"].get("creationTimestamp")}
    return {key: obj[key] for key in told if key in obj} | {"metadata": made}


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
        for one in _some(
            client, api_version, kind, _named, namespace=namespace, label_selector=selector(LABELS), metadata_only=True
        ):
            metadata = one["metadata"]
            if (kind, metadata["name"]) not in keep and not metadata.get("deletionTimestamp"):
                item.require(WRITE_TIMEOUT)
                _delete(client, api_version, kind, metadata, namespace)
    _apply_editors(item, client, access)


def _apply_editors(item: Claimed, client: KubeClient, access: Access) -> None:
    """The bindings in the team's namespaces: what is there is read in one go, as there may be many."""
    listed = _some(client, f"{RBAC}/v1", "RoleBinding", _binding, label_selector=selector(LABELS))
    live = {one["metadata"]["namespace"]: one for one in listed if one["metadata"]["name"] == EDITORS}
    for one in _some(client, "v1", "Namespace", _labelled, metadata_only=True):
        metadata = one["metadata"]
        if metadata["deletionTimestamp"]:
            live.pop(metadata["name"], None)
            continue
        wanted = editors_manifest(access, metadata["name"])
        if wanted is None or not is_the_teams(metadata["name"], metadata["labels"] or {}):
            continue
        found = live.pop(metadata["name"], None)
        if found is not None and _says_the_same(found, wanted):
            continue
        item.require(WRITE_TIMEOUT)
        with suppress(NotFound):  # the namespace was deleted meanwhile
            if found is not None and found["roleRef"] != wanted["roleRef"]:
                _delete(client, f"{RBAC}/v1", "RoleBinding", found["metadata"], metadata["name"])
            client.apply(wanted, force=True)
    for namespace, one in live.items():
        item.require(WRITE_TIMEOUT)
        _delete(client, f"{RBAC}/v1", "RoleBinding", one["metadata"], namespace)


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
    return _says_the_same(live, manifest)


def _says_the_same(live: Obj, wanted: Obj) -> bool:
    same = _order(live.get("subjects") or []) == _order(wanted["subjects"])
    return same and live.get("roleRef") == wanted["roleRef"]


def _order(subjects: Sequence[Obj]) -> list[tuple[str, str, str]]:
    return sorted((one["kind"], one.get("namespace", ""), one["name"]) for one in subjects)


def _delete(client: KubeClient, api_version: str, kind: str, metadata: Obj, namespace: str) -> None:
    try:
        client.delete(api_version, kind, metadata["name"], namespace, uid=metadata["uid"])
    except NotFound:
        return
