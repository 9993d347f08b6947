"""What made a pod: the workload at the end of its chain of owners, as far as it is certain. Pure: no Django.

The pod's controller reference is the first link. Further links come from labels that the controllers themselves put on
their pods (each named below with its project), and from one rule of names that Kubernetes guarantees: a Deployment's
ReplicaSet is called like the Deployment, a dash, and the pod-template-hash that is also a label. Where neither says
more, the controller itself has to be read (:class:`Link`), and :func:`needs_reading` says so.

A label is anybody's to write, so a workload by label is *inferred*; what an owner reference says is *seen*.

Sources of the labels: Kubernetes (``pod-template-hash``), JobSet (``jobset.sigs.k8s.io/jobset-name``), LeaderWorkerSet
(``leaderworkerset.sigs.k8s.io/name``), Kueue (``kueue.x-k8s.io/queue-name``, ``pod-group-name``), KubeRay
(``ray.io/cluster``, ``ray.io/originated-from-crd`` and ``-cr-name``), Argo Rollouts (``rollouts-pod-template-hash``),
Kubeflow (``notebook-name``), KServe (``serving.kserve.io/inferenceservice``), Slinky's slurm-bridge
(``scheduler.slinky.slurm.net/slurm-jobid``). Kinds such as PyTorchJob, Workflow and Slinky's NodeSet own their pods
themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from infra.evidence import Owner, PodEvidence

QUEUE = "kueue.x-k8s.io/queue-name"
POD_GROUP = "kueue.x-k8s.io/pod-group-name"
SLURM_JOB = "scheduler.slinky.slurm.net/slurm-jobid"
TEMPLATE_HASH = "pod-template-hash"
ROLLOUT_HASH = "rollouts-pod-template-hash"
RAY_CLUSTER = "ray.io/cluster"
RAY_CRD = "ray.io/originated-from-crd"
RAY_CR = "ray.io/originated-from-cr-name"

_OF_OWNER: dict[str, tuple[tuple[str, str], ...]] = {
    "Job": (("jobset.sigs.k8s.io/jobset-name", "JobSet"),),
    "StatefulSet": (("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"), ("notebook-name", "Notebook")),
    # A worker of a LeaderWorkerSet hangs on its leader, which is a pod.
    "Pod": (("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),),
}
"""Owner's kind → labels that its own controller sets on the pods, and the kind that they name."""

_ANY = (("serving.kserve.io/inferenceservice", "InferenceService"),)
"""Labels that stand above a Deployment too."""

LABELS = frozenset(
    {
        QUEUE,
        POD_GROUP,
        SLURM_JOB,
        TEMPLATE_HASH,
        ROLLOUT_HASH,
        RAY_CLUSTER,
        RAY_CRD,
        RAY_CR,
        "jobset.sigs.k8s.io/jobset-name",
        "leaderworkerset.sigs.k8s.io/name",
        "notebook-name",
        "serving.kserve.io/inferenceservice",
    }
)
"""What is kept of a pod's labels for this."""

READABLE = {"Job": "batch/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}
"""Controllers that may have an owner of their own, and are worth reading where labels don't tell."""


class Known(StrEnum):
    """How the workload is known."""

    SEEN = "seen"
    INFERRED = "inferred"
    OWNER_NOT_READ = "owner not read"
    OWNER_NOT_READABLE = "owner not readable"


@dataclass(frozen=True, slots=True)
class Workload:
    """The object that a person made, or the nearest to it that is certain. ``queue``: where it waited, if anywhere.

    ``known``: ``owner not read`` and ``owner not readable`` say that something may stand above it.
    """

    kind: str
    name: str
    known: Known
    queue: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Link:
    """What was read of a controller: its own controller (None: it has none). ``readable`` False: we may not look."""

    parent: Owner | None
    readable: bool = True


def workload_of(pod: PodEvidence, read: Link | None = None) -> Workload:
    """The workload of a pod.

    Args:
        read: what was read of the pod's controller, where it was.
    """
    kind, name, known = _workload(pod, read)
    return Workload(kind, name, known, pod.label(QUEUE) or _slurm_queue(pod))


def needs_reading(pod: PodEvidence) -> bool:
    """Whether only reading the pod's controller could tell what stands above it."""
    return workload_of(pod).known is Known.OWNER_NOT_READ


def _workload(pod: PodEvidence, read: Link | None) -> tuple[str, str, Known]:
    owner = pod.owner
    for label, kind in _ANY:
        if pod.label(label):
            return kind, pod.label(label), Known.INFERRED
    if owner is None:
        return _without_owner(pod)
    if owner.kind == "Node":  # the mirror of a static pod: the kubelet's own
        return "static Pod", pod.name.removesuffix(f"-{owner.name}"), Known.SEEN
    above_it = _by_label(owner, pod)
    if above_it is not None:
        return above_it
    if owner.kind not in READABLE:
        return owner.kind, owner.name, Known.SEEN
    if read is None:
        return owner.kind, owner.name, Known.OWNER_NOT_READ
    if not read.readable:
        return owner.kind, owner.name, Known.OWNER_NOT_READABLE
    above = read.parent or owner
    return above.kind, above.name, Known.SEEN


def _by_label(owner: Owner, pod: PodEvidence) -> tuple[str, str, Known] | None:
    """What stands above the controller, where its kind and the pod's labels together say so."""
    if pod.label(RAY_CLUSTER) and pod.label(RAY_CRD) in ("RayJob", "RayService") and pod.label(RAY_CR):
        return pod.label(RAY_CRD), pod.label(RAY_CR), Known.INFERRED
    for label, kind in _OF_OWNER.get(owner.kind, ()):
        if pod.label(label):
            return kind, pod.label(label), Known.INFERRED
    return _from_template(owner.name, pod) if owner.kind == "ReplicaSet" else None


def _from_template(name: str, pod: PodEvidence) -> tuple[str, str, Known] | None:
    """The Deployment (or Argo's Rollout) of a ReplicaSet: its name, less the hash that is also the pods' label."""
    for label, kind in ((ROLLOUT_HASH, "Rollout"), (TEMPLATE_HASH, "Deployment")):
        value = pod.label(label)
        if value and name.endswith(f"-{value}") and len(name) > len(value) + 1:
            return kind, name.removesuffix(f"-{value}"), Known.INFERRED
    return None


def _without_owner(pod: PodEvidence) -> tuple[str, str, Known]:
    if pod.label(SLURM_JOB):
        return "Slurm job", pod.label(SLURM_JOB), Known.INFERRED
    if pod.label(POD_GROUP):
        return "pod group", pod.label(POD_GROUP), Known.INFERRED
    return "Pod", pod.name, Known.SEEN


def _slurm_queue(pod: PodEvidence) -> str:
    return f"slurm job {pod.label(SLURM_JOB)}" if pod.label(SLURM_JOB) else ""
