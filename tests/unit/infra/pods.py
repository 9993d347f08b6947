"""Pods as a test writes them: Kubernetes objects with no more than what matters."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.evidence import PodEvidence, merge_all
from infra.pod_reading import read_pod
from portal.kernel.clock import format_rfc3339

T0 = datetime(2026, 5, 4, 10, tzinfo=UTC)


def at(minutes: float) -> datetime:
    """So many minutes after the tests' beginning."""
    return T0 + timedelta(minutes=minutes)


def text(minutes: float | None) -> str | None:
    return None if minutes is None else format_rfc3339(at(minutes))


def running(start: float) -> dict[str, Any]:
    return {"running": {"startedAt": text(start)}}


def terminated(start: float | None, end: float | None, code: int = 0) -> dict[str, Any]:
    return {"terminated": {"startedAt": text(start), "finishedAt": text(end), "exitCode": code}}


def waiting(reason: str = "ContainerCreating") -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


def container(
    name: str = "main", requests: dict[str, str] | None = None, restart_policy: str | None = None
) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": name, "resources": {"requests": requests or {}}}
    return spec if restart_policy is None else {**spec, "restartPolicy": restart_policy}


def status(
    name: str = "main",
    state: dict[str, Any] | None = None,
    last: dict[str, Any] | None = None,
    restarts: int = 0,
) -> dict[str, Any]:
    return {"name": name, "state": state or {}, "lastState": last or {}, "restartCount": restarts}


def pod(
    version: int = 1,
    *,
    phase: str = "Pending",
    scheduled: float | None = None,
    statuses: Sequence[dict[str, Any]] = (),
    init_statuses: Sequence[dict[str, Any]] = (),
    containers: Sequence[dict[str, Any]] | None = None,
    init: Sequence[dict[str, Any]] = (),
    policy: str = "Always",
    deleting: float | None = None,
    node: str = "node-a",
    namespace: str = "team",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    scheduler: str = "default-scheduler",
) -> dict[str, Any]:
    """A Pod object that asks for one GPU, bound to a node if `scheduled` is given."""
    conditions = []
    if scheduled is not None:
        conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": text(scheduled)}]
    meta: dict[str, Any] = {
        "uid": "uid-1",
        "namespace": namespace,
        "name": "pod",
        "resourceVersion": str(version),
        "annotations": annotations or {},
        "labels": labels or {},
    }
    if deleting is not None:
        meta["deletionTimestamp"] = text(deleting)
    return {
        "metadata": meta,
        "spec": {
            "nodeName": node if scheduled is not None else "",
            "restartPolicy": policy,
            "schedulerName": scheduler,
            "containers": list(containers or [container(requests={"nvidia.com/gpu": "1"})]),
            "initContainers": list(init),
        },
        "status": {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": list(statuses),
            "initContainerStatuses": list(init_statuses),
        },
    }


def seen(*objects: dict[str, Any], at_minutes: float = 60, deleted: bool = False) -> PodEvidence:
    """Evidence of these objects, all seen at one time; the last may be a deletion."""
    sights = [read_pod(one, seen_at=at(at_minutes), deleted=deleted and one is objects[-1]) for one in objects]
    return merge_all(sights)["uid-1"]
