"""vCluster: what a running tenant cluster shows on the host and inside. Pure.

Sources: loft-sh/vcluster pkg/kubeconfig (the Secret ``vc-NAME``), pkg/lifecycle (pause), pkg/syncer/translator (labels
and annotations of synced objects); recorded objects in tests/data. Names of synced objects are never parsed: labels
and annotations tell what they are.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from infra.kube.classify import exceeded_quota
from infra.kube.errors import clean
from infra.kube.kubeconfig import Credentials, KubeconfigRefused, parse_kubeconfig

MANAGED_BY = "vcluster.loft.sh/managed-by"
PAUSED = "loft.sh/paused"
PAUSED_REPLICAS = "loft.sh/paused-replicas"
PAUSED_DATE = "loft.sh/paused-date"

_HARMLESS = "the object has been modified"
_WAITING_TROUBLE = ("BackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "CreateContainer")


class SecretRefused(ValueError):
    """The Secret with the way in can't be used. The text is a sentence; it holds no value of the Secret."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass(frozen=True)
class ControlPlane:
    """A StatefulSet of a control plane. ``current``: its controller has seen the newest wish."""

    wanted: int
    ready: int
    current: bool
    paused: bool
    image: str

    @property
    def is_ready(self) -> bool:
        """It runs as it is wanted."""
        return self.current and self.wanted > 0 and self.ready >= self.wanted


@dataclass(frozen=True)
class Refused:
    """A pod inside that the host does not take. ``over_quota``: for the quota; else for another rule."""

    namespace: str
    name: str
    sentence: str
    over_quota: bool

    def as_json(self) -> dict[str, Any]:
        """For storage."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "sentence": self.sentence,
            "over_quota": self.over_quota,
        }


def release_labels(name: str) -> dict[str, str]:
    """The labels of the control plane's own objects (StatefulSet and pods)."""
    return {"app": "vcluster", "release": name}


def volume_claim(name: str) -> str:
    """The claim of the control plane's volume, which holds all that was stored in the tenant cluster."""
    return f"data-{name}-0"


def cluster_role(name: str, namespace: str) -> str:
    """The ClusterRole (and its binding) of a control plane that reads objects of the whole host, cut as the chart."""
    return f"vc-{name}-v-{namespace}"[:63].rstrip("-")


def cluster_scoped_owner(name: str, namespace: str) -> str:
    """The value of ``managed-by`` on cluster-wide objects that were synced from inside."""
    return f"{namespace}-x-{name}"


def read_credentials(secret: Mapping[str, Any], *, endpoint: str, now: datetime) -> Credentials:
    """The way in, from the Secret ``vc-NAME``: its kubeconfig, held against the endpoint that we asked for.

    Raises:
        SecretRefused: no kubeconfig in it, another server than ``endpoint``, or no certificate authority to know the
            server by.
    """
    try:
        encoded = (secret.get("data") or {})["config"]
        text = base64.b64decode(encoded, validate=True).decode()
    except (KeyError, TypeError, binascii.Error, UnicodeDecodeError):
        raise SecretRefused("NoKubeconfig", "The tenant cluster's Secret has no kubeconfig in it yet.") from None
    try:
        credentials = parse_kubeconfig(text, now=now)
    except KubeconfigRefused as error:
        raise SecretRefused(
            "KubeconfigRefused", f"The kubeconfig in the tenant cluster's Secret can't be used: {error}"
        ) from None
    if credentials.server != endpoint.rstrip("/"):
        raise SecretRefused(
            "EndpointDiffers",
            f"The tenant cluster's Secret names the server {credentials.server}, and {endpoint} was asked for. "
            "Nothing is sent there; see to the chart's exportKubeConfig.server.",
        )
    if credentials.ca_data is None:
        raise SecretRefused(
            "NoAuthority",
            "The kubeconfig in the tenant cluster's Secret has no certificate-authority-data: the server could be "
            "anybody. See to the chart's exportKubeConfig.insecure.",
        )
    return credentials


def read_control_plane(stateful_set: Mapping[str, Any]) -> ControlPlane:
    """A StatefulSet (apps/v1)."""
    metadata = stateful_set.get("metadata") or {}
    spec, status = stateful_set.get("spec") or {}, stateful_set.get("status") or {}
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    image = next((str(one.get("image") or "") for one in containers if one.get("name") == "syncer"), "")
    return ControlPlane(
        wanted=int(spec.get("replicas", 1)),
        ready=int(status.get("readyReplicas") or 0),
        current=int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0),
        paused=(metadata.get("annotations") or {}).get(PAUSED) == "true",
        image=image or (str(containers[0].get("image") or "") if containers else ""),
    )


def control_plane_trouble(pods: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> str:
    """Why the control plane does not start, as far as its pods and the host's events tell; "" where they don't."""
    for pod in pods:
        status = pod.get("status") or {}
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waiting = (container.get("state") or {}).get("waiting") or {}
            reason = str(waiting.get("reason") or "")
            if any(word in reason for word in _WAITING_TROUBLE):
                said = clean(str(waiting.get("message") or ""))
                return f"Container {container.get('name')} of the control plane: {reason}. {said}".strip()
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                said = clean(str(condition.get("message") or ""))
                return f"The control plane's pod has no node yet: {said}"
    newest = max(
        (one for one in events if one.get("type") == "Warning" and one.get("reason") in _HOST_REASONS),
        key=_when,
        default=None,
    )
    return "" if newest is None else f"{newest['reason']} on the host: {clean(str(newest.get('message') or ''))}"


_HOST_REASONS = frozenset({"FailedCreate", "FailedMount", "FailedAttachVolume", "ProvisioningFailed"})


def refused_pods(pods: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> list[Refused]:
    """Pods inside that wait because the host refuses them, by namespace and name.

    A refusal is only told inside: the pod is Pending, without a node and without a condition, and an event
    ``SyncError`` says why. The same event is written for a harmless race ("the object has been modified"), also on
    pods that run: those say nothing.

    Args:
        pods: of all namespaces of the tenant cluster.
        events: its events of the reason ``SyncError``.
    """
    waiting = {_key(pod["metadata"]) for pod in pods if _waits(pod)}
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for event in events:
        about = event.get("involvedObject") or event.get("regarding") or {}
        if about.get("kind") != "Pod" or event.get("reason") != "SyncError" or _HARMLESS in _said(event):
            continue
        key = (str(about.get("namespace") or ""), str(about.get("name") or ""))
        if key in waiting and (key not in newest or _when(newest[key]) <= _when(event)):
            newest[key] = event
    return [_refused(key, _said(newest[key])) for key in sorted(newest)]


def _refused(key: tuple[str, str], said: str) -> Refused:
    found = exceeded_quota(said)
    if found is None:
        return Refused(*key, f"The host cluster refuses it: {clean(said)}", over_quota=False)
    lines = [
        f"{found.used[name]} of {found.limited[name]} {name.removeprefix('requests.')}, {amount} more asked for"
        for name, amount in sorted(found.requested.items())
        if name in found.used and name in found.limited
    ]
    return Refused(*key, f"Over your quota on this cluster: {'; '.join(lines) or found.quota}.", over_quota=True)


def _waits(pod: Mapping[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Pending" and not (pod.get("spec") or {}).get("nodeName")


def _key(metadata: Mapping[str, Any]) -> tuple[str, str]:
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _said(event: Mapping[str, Any]) -> str:
    return str(event.get("message") or event.get("note") or "")


def _when(event: Mapping[str, Any]) -> str:
    """RFC 3339 in UTC, which sorts as text; events of the two APIs carry their time in different fields."""
    series = event.get("series") or {}
    for value in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")):
        if value:
            return str(value)
    return str((event.get("metadata") or {}).get("creationTimestamp") or "")
