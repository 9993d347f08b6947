"""What made a pod, for each way in which pods are made. The objects hold what their controllers put on them."""

from __future__ import annotations

from typing import Any

import pytest

from infra.evidence import Owner, PodEvidence
from infra.pod_reading import dump_evidence, load_evidence, read_pod
from infra.workloads import READABLE, Known, Link, Workload, needs_reading, workload_of
from tests.unit.infra.pods import T0
from tests.unit.infra.pods import pod as plain_pod

SEEN, INFERRED = Known.SEEN, Known.INFERRED


def made(owner: tuple[str, str] | None = None, name: str = "pod", **labels: str) -> PodEvidence:
    """A pod with that controller and these labels (``__`` stands for ``/``, ``_`` for ``-`` and ``9`` for ``.``)."""
    thing = plain_pod(labels={})
    thing["metadata"]["name"] = name
    thing["metadata"]["labels"] = dict(labels)
    if owner is not None:
        thing["metadata"]["ownerReferences"] = [
            {"kind": "Other", "name": "not-the-controller", "uid": "u0"},
            {"kind": owner[0], "name": owner[1], "uid": "u1", "controller": True, "apiVersion": "x/v1"},
        ]
    return load_evidence(dump_evidence(read_pod(thing, seen_at=T0)))


HASH = {"pod-template-hash": "7c9d"}
CASES: list[tuple[str, PodEvidence, Workload]] = [
    ("bare pod", made(name="debug"), Workload("Pod", "debug", SEEN)),
    ("static pod", made(("Node", "gpu-0"), "driver-gpu-0"), Workload("static Pod", "driver", SEEN)),
    ("Deployment", made(("ReplicaSet", "vllm-7c9d"), **HASH), Workload("Deployment", "vllm", INFERRED)),
    (
        "Argo Rollout",
        made(("ReplicaSet", "web-5f"), **{"rollouts-pod-template-hash": "5f", "pod-template-hash": "5f"}),
        Workload("Rollout", "web", INFERRED),
    ),
    ("DaemonSet", made(("DaemonSet", "dcgm")), Workload("DaemonSet", "dcgm", SEEN)),
    (
        "JobSet",
        made(("Job", "train-workers-0"), **{"jobset.sigs.k8s.io/jobset-name": "train"}),
        Workload("JobSet", "train", INFERRED),
    ),
    (
        "LeaderWorkerSet's leader",
        made(("StatefulSet", "llama"), **{"leaderworkerset.sigs.k8s.io/name": "llama"}),
        Workload("LeaderWorkerSet", "llama", INFERRED),
    ),
    (
        "LeaderWorkerSet's worker",
        made(("Pod", "llama-0"), **{"leaderworkerset.sigs.k8s.io/name": "llama"}),
        Workload("LeaderWorkerSet", "llama", INFERRED),
    ),
    (
        "Kubeflow notebook",
        made(("StatefulSet", "nb"), **{"notebook-name": "nb"}),
        Workload("Notebook", "nb", INFERRED),
    ),
    ("PyTorchJob", made(("PyTorchJob", "bert")), Workload("PyTorchJob", "bert", SEEN)),
    ("Argo workflow", made(("Workflow", "etl-x7")), Workload("Workflow", "etl-x7", SEEN)),
    (
        "RayJob",
        made(
            ("RayCluster", "r-x"),
            **{"ray.io/cluster": "r-x", "ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "r"},
        ),
        Workload("RayJob", "r", INFERRED),
    ),
    (
        "RayCluster",
        made(("RayCluster", "shared"), **{"ray.io/cluster": "shared", "ray.io/originated-from-crd": "RayCluster"}),
        Workload("RayCluster", "shared", SEEN),
    ),
    (
        "KServe",
        made(("ReplicaSet", "iris-7c9d"), **HASH, **{"serving.kserve.io/inferenceservice": "iris"}),
        Workload("InferenceService", "iris", INFERRED),
    ),
    ("Slinky's node set", made(("NodeSet", "slurm-gpu")), Workload("NodeSet", "slurm-gpu", SEEN)),
    (
        "Slurm bridge",
        made(**{"scheduler.slinky.slurm.net/slurm-jobid": "4711"}),
        Workload("Slurm job", "4711", INFERRED, "slurm job 4711"),
    ),
    (
        "Kueue's pod group",
        made(**{"kueue.x-k8s.io/queue-name": "gpu", "kueue.x-k8s.io/pod-group-name": "g1"}),
        Workload("pod group", "g1", INFERRED, "gpu"),
    ),
    (
        "Kueue's job",
        made(("PyTorchJob", "bert"), **{"kueue.x-k8s.io/queue-name": "gpu"}),
        Workload("PyTorchJob", "bert", SEEN, "gpu"),
    ),
    ("a Job alone", made(("Job", "fit")), Workload("Job", "fit", Known.OWNER_NOT_READ)),
    ("a ReplicaSet alone", made(("ReplicaSet", "rs")), Workload("ReplicaSet", "rs", Known.OWNER_NOT_READ)),
    ("a StatefulSet alone", made(("StatefulSet", "db")), Workload("StatefulSet", "db", Known.OWNER_NOT_READ)),
]


@pytest.mark.parametrize(("pod", "workload"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_pod_of_each_kind(pod: PodEvidence, workload: Workload) -> None:
    assert workload_of(pod) == workload
    assert needs_reading(pod) == (workload.known is Known.OWNER_NOT_READ)


def test_a_hash_that_is_no_part_of_the_name_proves_nothing() -> None:
    for name in ("vllm-aaaa", "7c9d", "-7c9d"):
        assert workload_of(made(("ReplicaSet", name), **HASH)).kind == "ReplicaSet"


@pytest.mark.parametrize(
    "label", ["jobset.sigs.k8s.io/jobset-name", "notebook-name", "leaderworkerset.sigs.k8s.io/name"]
)
def test_a_label_without_the_owner_that_goes_with_it_says_nothing(label: str) -> None:
    assert workload_of(made(("Workflow", "w"), **{label: "other"})) == Workload("Workflow", "w", SEEN)
    assert workload_of(made(name="p", **{label: "other"})) == Workload("Pod", "p", SEEN)


def test_what_was_read_of_the_controller_goes_on_or_ends_there() -> None:
    job = made(("Job", "nightly-29"))
    assert workload_of(job, Link(Owner("CronJob", "nightly", "u2"))) == Workload("CronJob", "nightly", SEEN)
    assert workload_of(job, Link(None)) == Workload("Job", "nightly-29", SEEN)
    assert workload_of(job, Link(None, readable=False)) == Workload("Job", "nightly-29", Known.OWNER_NOT_READABLE)


def test_labels_go_before_what_was_read() -> None:
    """A JobSet's Job is owned by the JobSet: both say the same, and the label is there at once."""
    job = made(("Job", "train-0"), **{"jobset.sigs.k8s.io/jobset-name": "train"})
    assert workload_of(job, Link(Owner("JobSet", "train", "u2"))).name == "train"


def test_only_what_the_preflight_asks_for_is_read() -> None:
    from infra.kube.access import OPTIONAL, whys

    plural = {"Job": "jobs", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}
    assert {plural[kind] for kind in READABLE} == {review.resource for review in whys(OPTIONAL)}


def test_a_label_for_cost_codes_is_kept_where_it_is_asked_for() -> None:
    thing: dict[str, Any] = plain_pod(labels={"cost-center": "K7", "secret": "x"})
    assert read_pod(thing, seen_at=T0).labels == ()
    assert read_pod(thing, seen_at=T0, more_labels=frozenset({"cost-center"})).label("cost-center") == "K7"
