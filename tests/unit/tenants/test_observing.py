"""From the cluster's state to a phase and a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from tenants.observing import Phase, observe


def workload(
    replicas: int = 1, *, ready: int = 0, generation: int = 2, observed: int = 2, **status: Any
) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"name": "w", "generation": generation},
        "spec": {"replicas": replicas},
        "status": {
            "observedGeneration": observed,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": ready,
            **status,
        },
    }


def pod(
    *,
    phase: str = "Pending",
    node: str = "n1",
    ready: bool = False,
    statuses: list[dict[str, Any]] | None = None,
    **rest: Any,
) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}, *rest.pop("conditions", [])]
    return {
        "metadata": {"name": "w-1", **rest},
        "spec": {"nodeName": node, "containers": [{"name": "engine", "image": "vllm/vllm:v1"}]},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": statuses or []},
    }


def waiting(reason: str, message: str = "", **rest: Any) -> dict[str, Any]:
    return {"name": "engine", "state": {"waiting": {"reason": reason, "message": message}}, **rest}


RUNNING = {"name": "engine", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}


def test_ready_only_when_the_applied_generation_is_what_runs() -> None:
    ready = pod(phase="Running", ready=True, statuses=[RUNNING])
    assert observe([workload(ready=1)], [ready], was_ready=False).ready
    stale = observe([workload(ready=1, generation=3)], [ready], was_ready=False)
    assert not stale.ready
    assert not observe([workload(2, ready=1)], [ready], was_ready=False).ready
    assert not observe([], [ready], was_ready=False).ready


def test_a_pod_of_the_old_generation_does_not_count_as_ready() -> None:
    rolling = workload(ready=1, updatedReplicas=0)
    assert not observe([rolling], [pod(phase="Running", ready=True)], was_ready=True).ready


@pytest.mark.parametrize(
    ("given", "phase", "reason", "said"),
    [
        (pod(node=""), Phase.SCHEDULING, "Scheduling", "waits for a node"),
        (
            pod(
                node="", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]
            ),
            Phase.SCHEDULING,
            "Unschedulable",
            "finds no node: 0/3 nodes are available.",
        ),
        (pod(), Phase.PULLING, "Pulling", "pulls vllm/vllm:v1"),
        (pod(statuses=[waiting("ContainerCreating")]), Phase.PULLING, "Pulling", "pulls vllm/vllm:v1"),
        (
            pod(statuses=[waiting("ImagePullBackOff", 'Back-off pulling image "vllm/vllm:v1"')]),
            Phase.FAILED,
            "ImagePull",
            "Image vllm/vllm:v1 cannot be pulled: Back-off pulling",
        ),
        (
            pod(statuses=[waiting("CreateContainerConfigError", 'secret "hf" not found')]),
            Phase.FAILED,
            "CreateContainerConfigError",
            'secret "hf" not found',
        ),
        (
            pod(
                phase="Running",
                statuses=[
                    waiting(
                        "CrashLoopBackOff",
                        restartCount=4,
                        lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    )
                ],
            ),
            Phase.FAILED,
            "CrashLoop",
            "exit code 137 (OOMKilled) each time it is started, 4 restarts",
        ),
        (pod(phase="Running", statuses=[RUNNING]), Phase.STARTING, "EngineStarting", "loads the model"),
    ],
)
def test_why_a_pod_is_not_ready(given: dict[str, Any], phase: Phase, reason: str, said: str) -> None:
    seen = observe([workload()], [given], was_ready=False)
    assert (seen.phase, seen.reason) == (phase, reason)
    assert said in seen.message


def test_quota_refusal_is_told_with_numbers() -> None:
    refused = workload(
        conditions=[
            {
                "type": "ReplicaFailure",
                "status": "True",
                "reason": "FailedCreate",
                "message": 'pods "w-1" is forbidden: exceeded quota: aifactory-quota, requested: '
                "requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=4",
            }
        ]
    )
    seen = observe([refused], [], was_ready=False)
    assert seen.phase is Phase.FAILED
    assert seen.reason == "QuotaRefused"
    assert "nvidia.com/gpu 4 of 4 used, 1 more asked for" in seen.message


def test_what_was_ready_is_degraded_not_starting() -> None:
    seen = observe([workload()], [pod(phase="Running", statuses=[RUNNING])], was_ready=True)
    assert seen.phase is Phase.DEGRADED
    assert observe([workload(2, ready=1)], [pod(phase="Running", ready=True)], was_ready=True).message == (
        "1 of 2 pods ready."
    )


def test_pods_that_leave_are_not_counted() -> None:
    leaving = pod(phase="Running", ready=True, deletionTimestamp="2026-01-01T00:00:00Z")
    assert not observe([workload(ready=1)], [leaving], was_ready=True).ready


def test_the_worst_pod_speaks() -> None:
    bad = pod(statuses=[waiting("ErrImagePull", "not found")])
    seen = observe([workload(2)], [pod(phase="Running", statuses=[RUNNING]), bad], was_ready=False)
    assert seen.reason == "ImagePull"
    assert seen.message.endswith("0 of 2 pods ready.")
