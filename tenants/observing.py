"""What the state of a replica's workloads and pods means, as a phase and a sentence. Pure.

Objects are as the API server answers them: ``apps/v1`` Deployment, ``leaderworkerset.x-k8s.io/v1`` LeaderWorkerSet,
``v1`` Pod. Readiness is taken from what was observed of the generation that was applied, never assumed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Object = Mapping[str, Any]


class Phase(StrEnum):
    """Where a replica is on its way. The order is that of a good start; the last five are apart."""

    PLACED = "Placed"
    APPLYING = "Applying"
    SCHEDULING = "Scheduling"
    PULLING = "Pulling"
    STARTING = "Starting"
    READY = "Ready"
    UPDATING = "Updating"
    DEGRADED = "Degraded"
    FAILED = "Failed"
    DELETING = "Deleting"
    DELETED = "Deleted"


@dataclass(frozen=True, slots=True)
class Observed:
    """What is seen of a replica. ``reason`` is a word for programs, ``message`` a sentence."""

    phase: Phase
    reason: str
    message: str
    ready_pods: int = 0
    wanted_pods: int = 0

    @property
    def ready(self) -> bool:
        """Every pod of the applied generation serves."""
        return self.phase is Phase.READY


_QUOTA = re.compile(r"exceeded quota: ([^,]+), requested: (.+), used: (.+), limited: (.+?)$")
_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_PRIORITY = (Phase.FAILED, Phase.SCHEDULING, Phase.PULLING, Phase.STARTING, Phase.DEGRADED)


def observe(workloads: Sequence[Object], pods: Sequence[Object], *, was_ready: bool) -> Observed:
    """Judge one replica.

    Args:
        workloads: its workloads as read after applying (an absent one is left out by the caller and counts as
            not made yet).
        pods: its pods that are not being deleted or have ended.
        was_ready: whether it has been Ready with what is applied now; then "not ready" is a fault, not a start.
    """
    wanted = sum(_wanted(workload) for workload in workloads)
    live = [pod for pod in pods if not _deleting(pod) and _phase(pod) not in ("Succeeded", "Failed")]
    ready = sum(_is_ready(pod) for pod in live)
    if workloads and wanted and all(_rolled_out(workload) for workload in workloads) and ready >= wanted:
        return Observed(Phase.READY, "Ready", f"{_pods(wanted)} ready.", wanted, wanted)
    for workload in workloads:
        if refusal := _refusal(workload):
            return Observed(Phase.FAILED, refusal[0], refusal[1], ready, wanted)
    worst = _worst([_judge(pod) for pod in live if not _is_ready(pod)])
    if worst is None:
        if ready and was_ready:
            return Observed(Phase.DEGRADED, "PodsMissing", f"{ready} of {_pods(wanted)} ready.", ready, wanted)
        missing = "The cluster has not made the pods yet." if not live else "The cluster is replacing the pods."
        return Observed(Phase.STARTING, "WaitingForPods", missing, ready, wanted)
    phase, reason, message = worst
    if was_ready and phase in (Phase.STARTING, Phase.PULLING, Phase.SCHEDULING):
        phase = Phase.DEGRADED
    count = f" {ready} of {_pods(wanted)} ready." if wanted > 1 else ""
    return Observed(phase, reason, message + count, ready, wanted)


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _wanted(workload: Object) -> int:
    spec = workload.get("spec") or {}
    replicas = int(spec.get("replicas", 1))
    size = (spec.get("leaderWorkerTemplate") or {}).get("size")
    return replicas * int(size) if size else replicas


def _rolled_out(workload: Object) -> bool:
    """Whether its status speaks of the applied generation and nothing of an older one is left."""
    status, metadata = workload.get("status") or {}, workload.get("metadata") or {}
    replicas = int((workload.get("spec") or {}).get("replicas", 1))
    if workload.get("kind") == "LeaderWorkerSet":
        available = {c.get("type"): c.get("status") for c in status.get("conditions") or []}.get("Available")
        return available == "True" and int(status.get("updatedReplicas") or 0) >= replicas
    return (
        int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0)
        and int(status.get("updatedReplicas") or 0) == replicas
        and int(status.get("replicas") or 0) == replicas
        and int(status.get("readyReplicas") or 0) == replicas
    )


def _refusal(workload: Object) -> tuple[str, str] | None:
    """The cluster refuses to make the pods: (reason, sentence)."""
    for condition in (workload.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return _refused(str(condition.get("message") or ""))
    return None


def _refused(message: str) -> tuple[str, str]:
    found = _QUOTA.search(message)
    if not found:
        return "PodRefused", f"The cluster refuses the pod: {_short(message)}."
    quota, requested, used, limited = found.groups()
    numbers = [_numbers(text) for text in (requested, used, limited)]
    parts = [
        f"{resource.removeprefix('requests.')} {numbers[1].get(resource, '?')} of {numbers[2].get(resource, '?')} "
        f"used, {amount} more asked for"
        for resource, amount in numbers[0].items()
    ]
    return "QuotaRefused", f"The pod is refused by quota {quota}: {'; '.join(parts)}."


def _numbers(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text.split(","))
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}


Judged = tuple[Phase, str, str]


def _worst(judged: Sequence[Judged]) -> Judged | None:
    return min(judged, key=lambda one: _PRIORITY.index(one[0]), default=None)


def _judge(pod: Object) -> Judged:
    """Why a pod is not ready."""
    name = (pod.get("metadata") or {}).get("name", "pod")
    status = pod.get("status") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or []}
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        why = _short(str(scheduled.get("message") or "no reason given"))
        return Phase.SCHEDULING, "Unschedulable", f"Pod {name} finds no node: {why}."
    images = {c.get("name"): c.get("image", "") for c in (pod.get("spec") or {}).get("containers") or []}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        if fault := _container_fault(container, str(images.get(container.get("name"), container.get("image", "")))):
            return fault
    if not (pod.get("spec") or {}).get("nodeName"):
        return Phase.SCHEDULING, "Scheduling", f"Pod {name} waits for a node."
    running = [c for c in status.get("containerStatuses") or [] if (c.get("state") or {}).get("running")]
    if running:
        return Phase.STARTING, "EngineStarting", "The engine runs and loads the model; it does not answer /health yet."
    image = images.get("engine", "")
    return Phase.PULLING, "Pulling", f"The node pulls {image or 'the image'} and prepares the pod."


def _container_fault(container: Mapping[str, Any], image: str) -> Judged | None:
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    reason, said = str(waiting.get("reason") or ""), _short(str(waiting.get("message") or ""))
    name = container.get("name", "engine")
    if reason in _PULL:
        return (
            Phase.FAILED,
            "ImagePull",
            f"Image {image} cannot be pulled: {said or reason}. Check its name, tag and login.",
        )
    if reason in _CONFIG:
        return Phase.FAILED, reason, f"Container {name} can't be started: {said or reason}."
    if reason == "CrashLoopBackOff":
        last = (container.get("lastState") or {}).get("terminated") or {}
        code = last.get("exitCode")
        ended = f" with exit code {code}" if code is not None else ""
        why = f" ({last['reason']})" if last.get("reason") not in (None, "Error") else ""
        return (
            Phase.FAILED,
            "CrashLoop",
            (
                f"Container {name} ends{ended}{why} each time it is started, "
                f"{container.get('restartCount', 0)} restarts so far. The cards stay held and are charged: read its "
                "log."
            ),
        )
    terminated = state.get("terminated") or {}
    if terminated and terminated.get("exitCode"):
        return (
            Phase.FAILED,
            "ContainerEnded",
            f"Container {name} ended with exit code {terminated['exitCode']}; the cluster starts it again.",
        )
    return None


def _deleting(pod: Object) -> bool:
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _short(message: str) -> str:
    """One line without a full stop at its end."""
    line = " ".join(message.split())
    return (line if len(line) <= 300 else line[:299] + "…").rstrip(".")
