"""Flux: the objects that have a chart installed, and what they say of it. Pure.

Shapes: HelmRelease of fluxcd/helm-controller (api/v2), HelmRepository and OCIRepository of fluxcd/source-controller
(api/v1). A condition counts only when ``status.observedGeneration`` is the object's generation: before that it speaks
of the wish before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from infra.kube.errors import clean

Manifest = dict[str, Any]

HELM = "helm.toolkit.fluxcd.io/v2"
SOURCE = "source.toolkit.fluxcd.io/v1"
REQUESTED_AT = "reconcile.fluxcd.io/requestedAt"
RESET_AT = "reconcile.fluxcd.io/resetAt"

State = Literal["ready", "working", "failed"]

_NO_CHART = frozenset({"ArtifactFailed", "SourceNotReady"})
_SENTENCES = {
    "InstallFailed": "The chart could not be installed",
    "UpgradeFailed": "The chart could not be upgraded",
    "RollbackFailed": "The upgrade failed, and so did the way back",
    "RollbackSucceeded": "The upgrade failed and was taken back",
    "UninstallFailed": "The chart could not be uninstalled",
    "TestFailed": "The chart's own test failed",
    "DependencyNotReady": "Something that it depends on is not ready",
    "RetriesExceeded": "Flux has given up after its retries; have it tried again when the cause is gone",
}
_LOCKED = "another operation (install/upgrade/rollback) is in progress"


@dataclass(frozen=True)
class Release:
    """A chart to have installed.

    Attributes:
        name: of the HelmRelease, of its repository object and of the Helm release; at most 53 characters.
        namespace: where the two Flux objects live, with ``service_account``, which Flux acts as.
        target_namespace: where the chart's objects go.
        repository_url: ``https://…`` (a chart repository) or ``oci://…`` (a registry, without the chart's name).
        retry_at: set to have Flux forget its failures and try again; any text that was not used before.
    """

    name: str
    namespace: str
    target_namespace: str
    service_account: str
    repository_url: str
    chart: str
    version: str
    values: Mapping[str, Any]
    retry_at: str = ""

    @property
    def is_oci(self) -> bool:
        """The chart comes from an OCI registry."""
        return self.repository_url.startswith("oci://")


@dataclass(frozen=True)
class ReleaseState:
    """What Flux says. ``reason`` is its own word; ``message`` a sentence for people."""

    state: State
    reason: str
    message: str
    chart_version: str = ""
    """Of the release that was deployed last; empty: none was."""

    @property
    def ready(self) -> bool:
        """The chart is installed as it is wanted now."""
        return self.state == "ready"


def repository(release: Release) -> Manifest:
    """Where the chart comes from: a HelmRepository, or an OCIRepository for ``oci://``."""
    metadata = {"name": release.name, "namespace": release.namespace}
    if release.is_oci:
        spec: Manifest = {
            "interval": "10m",
            "url": f"{release.repository_url.rstrip('/')}/{release.chart}",
            "ref": {"tag": release.version},
        }
        return {"apiVersion": SOURCE, "kind": "OCIRepository", "metadata": metadata, "spec": spec}
    spec = {"interval": "10m", "url": release.repository_url}
    return {"apiVersion": SOURCE, "kind": "HelmRepository", "metadata": metadata, "spec": spec}


def helm_release(release: Release) -> Manifest:
    """The HelmRelease. Drift is repaired, but for the control plane's replicas, which a pause sets."""
    metadata: Manifest = {"name": release.name, "namespace": release.namespace}
    if release.retry_at:
        metadata["annotations"] = {REQUESTED_AT: release.retry_at, RESET_AT: release.retry_at}
    spec: Manifest = {
        "interval": "10m",
        "timeout": "10m",
        "releaseName": release.name,
        "targetNamespace": release.target_namespace,
        "storageNamespace": release.target_namespace,
        "serviceAccountName": release.service_account,
        "install": {"createNamespace": False, "disableTakeOwnership": True, "remediation": {"retries": 3}},
        "upgrade": {
            "cleanupOnFail": True,
            "remediation": {"retries": 3, "strategy": "rollback", "remediateLastFailure": True},
        },
        "uninstall": {"deletionPropagation": "foreground"},
        "driftDetection": {
            "mode": "enabled",
            "ignore": [{"paths": ["/spec/replicas"], "target": {"kind": "StatefulSet"}}],
        },
        "values": dict(release.values),
    }
    if release.is_oci:
        spec["chartRef"] = {"kind": "OCIRepository", "name": release.name}
    else:
        source = {"kind": "HelmRepository", "name": release.name}
        spec["chart"] = {"spec": {"chart": release.chart, "version": release.version, "sourceRef": source}}
    return {"apiVersion": HELM, "kind": "HelmRelease", "metadata": metadata, "spec": spec}


def read_release(release: Mapping[str, Any], source: Mapping[str, Any] | None = None) -> ReleaseState:
    """What a HelmRelease says of its newest wish.

    Args:
        release: the HelmRelease as the API server sends it.
        source: its HelmRepository or OCIRepository, for the case that the chart can't be fetched.
    """
    status = release.get("status") or {}
    deployed = _deployed(status)
    ready = _condition(status, "Ready")
    if ready is None or not (_is_current(release, status) or _failed_now(release, ready)):
        return ReleaseState("working", "Progressing", "Flux has not taken up the newest wish yet.", deployed)
    reason, said = str(ready.get("reason") or ""), clean(str(ready.get("message") or ""))
    if ready.get("status") == "True":
        return ReleaseState("ready", reason, "", deployed)
    if (broken := _source_failure(source)) or reason in _NO_CHART:
        return ReleaseState("failed", reason, _no_chart(broken or said), deployed)
    if _LOCKED in said:
        message = f"Helm's lock of an interrupted operation is in the way ({said}). Have it tried again."
        return ReleaseState("failed", reason, message, deployed)
    stalled = _condition(status, "Stalled")
    if stalled is not None and stalled.get("status") == "True":
        why = str(stalled.get("reason") or reason)
        # What is stalled says only how often it was tried; why it failed stands in Ready.
        told = ". ".join(dict.fromkeys(text for text in (clean(str(stalled.get("message") or "")), said) if text))
        return ReleaseState("failed", why, _sentence(why, told), deployed)
    # Unknown is "at work"; False with a reason of Flux's own is a failure, and any other False is told as it is.
    if ready.get("status") == "False" and reason not in ("Progressing", "ProgressingWithRetry"):
        return ReleaseState("failed", reason, _sentence(reason, said), deployed)
    return ReleaseState("working", reason or "Progressing", said or "Flux installs the chart.", deployed)


def _source_failure(source: Mapping[str, Any] | None) -> str:
    if source is None:
        return ""
    status = source.get("status") or {}
    ready = _condition(status, "Ready")
    if ready is None or ready.get("status") != "False" or not _is_current(source, status):
        return ""
    return clean(str(ready.get("message") or ready.get("reason") or "it is not ready"))


def _no_chart(said: str) -> str:
    return f"The host cluster can't reach the chart registry, or the chart is not there: {said}".rstrip(": ")


def _sentence(reason: str, said: str) -> str:
    known = _SENTENCES.get(reason, f"Flux reports {reason}" if reason else "Flux reports a failure")
    return f"{known}: {said}" if said else f"{known}."


def _is_current(obj: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    generation = (obj.get("metadata") or {}).get("generation")
    return generation is not None and status.get("observedGeneration") == generation


def _failed_now(obj: Mapping[str, Any], ready: Mapping[str, Any]) -> bool:
    """Whether Ready is False for the newest wish. helm-controller does not count a generation as observed while it
    tries again (no chart, a source that is not ready), but each condition has a generation of its own."""
    generation = (obj.get("metadata") or {}).get("generation")
    return generation is not None and ready.get("status") == "False" and ready.get("observedGeneration") == generation


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    return next((one for one in status.get("conditions") or () if one.get("type") == kind), None)


def _deployed(status: Mapping[str, Any]) -> str:
    """The chart version of the newest release that is deployed (``status.history`` has the newest first)."""
    for entry in status.get("history") or ():
        if entry.get("status") == "deployed":
            return str(entry.get("chartVersion") or "")
    return ""
