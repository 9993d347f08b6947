"""What runs: rolling updates, jobs, restarts, images, quota, garbage collection, namespaces."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.dynamic.exceptions import ForbiddenError, NotFoundError

from tests.unit.simulator.conftest import Client, deployment, pod, wait_for
from tests.unit.simulator.test_server_objects import collect, ready


def settled(client: Client, ns: str, name: str) -> Any:
    """The deployment once it has rolled out, else None."""
    found = client.deployments.get(name=name, namespace=ns).to_dict()
    status, wanted = found["status"], found["spec"]["replicas"]
    done = (
        status.get("observedGeneration") == found["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == wanted
        and status.get("availableReplicas", 0) == wanted
        and status.get("replicas", 0) == wanted
    )
    return found if done else None


def test_rolling_update_within_its_limits(whole: Client) -> None:
    ns = whole.namespace()
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    whole.apply(deployment("web", ns, 3, strategy=strategy))
    first = wait_for(lambda: settled(whole, ns, "web"), "the first roll-out")
    types = {row["type"]: (row["status"], row["reason"]) for row in first["status"]["conditions"]}
    assert types == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    _, before = whole.cluster.call("GET", f"/api/v1/namespaces/{ns}/pods")
    whole.apply(deployment("web", ns, 3, "example.invalid/web:2", strategy=strategy))
    wait_for(lambda: settled(whole, ns, "web"), "the second roll-out")
    sets = whole.kind("ReplicaSet", "apps/v1").get(namespace=ns).items
    assert sorted((rs.spec.replicas, rs.metadata.annotations["deployment.kubernetes.io/revision"]) for rs in sets) == [
        (0, "1"),
        (3, "2"),
    ]
    # played back from the watch: at no time more than four pods that count, or fewer than three that are ready
    state = {row["metadata"]["name"]: row for row in before["items"]}
    events = collect(whole, ns, 1, resource_version=before["metadata"]["resourceVersion"])
    assert events
    for kind, obj in events:
        state[obj["metadata"]["name"]] = obj
        if kind == "DELETED":
            del state[obj["metadata"]["name"]]
        counted = [row for row in state.values() if "deletionTimestamp" not in row["metadata"]]
        assert len(counted) <= 4
        assert sum(ready(row) for row in counted) >= 3


def test_a_full_quota_holds_up_a_surge_and_says_so(whole: Client) -> None:
    ns = whole.namespace()
    quota = {"metadata": {"name": "gpu"}, "spec": {"hard": {"requests.nvidia.com/gpu": "1"}}}
    whole.kind("ResourceQuota").create(body=quota, namespace=ns)
    whole.apply(deployment("web", ns, limits={"nvidia.com/gpu": "1"}))
    wait_for(lambda: settled(whole, ns, "web"), "the roll-out")
    whole.apply(deployment("web", ns, image="example.invalid/web:2", limits={"nvidia.com/gpu": "1"}))

    def refused() -> Any:
        rows = whole.deployments.get(name="web", namespace=ns).to_dict()["status"].get("conditions") or []
        return next((row for row in rows if row["type"] == "ReplicaFailure"), None)

    row = wait_for(refused, "the condition ReplicaFailure")
    assert row["reason"] == "FailedCreate"
    assert (
        "exceeded quota: gpu, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=1" in row["message"]
    )
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    whole.apply(deployment("web", ns, image="example.invalid/web:2", limits={"nvidia.com/gpu": "1"}, strategy=rolling))
    wait_for(lambda: settled(whole, ns, "web"), "the roll-out without surge")
    assert refused() is None


def test_scaling_and_recreate(whole: Client) -> None:
    ns = whole.namespace()
    whole.apply(deployment("web", ns, 2, strategy={"type": "Recreate"}))
    wait_for(lambda: settled(whole, ns, "web"), "two replicas")
    body = {"spec": {"replicas": 4}}
    path = f"/apis/apps/v1/namespaces/{ns}/deployments/web/scale"
    code, scale = whole.cluster.call("PATCH", path, body, media="application/merge-patch+json")
    assert (code, scale["kind"], scale["spec"]["replicas"]) == (200, "Scale", 4)
    wait_for(lambda: settled(whole, ns, "web"), "four replicas")
    whole.apply(deployment("web", ns, 1, "example.invalid/web:2", strategy={"type": "Recreate"}), force_conflicts=True)
    wait_for(lambda: settled(whole, ns, "web"), "the new one alone")


def test_a_job_that_completes_and_one_that_fails(whole: Client) -> None:
    ns = whole.namespace()
    jobs = whole.kind("Job", "batch/v1")

    def job(name: str, code: int, backoff: int = 1) -> dict[str, Any]:
        notes = {"sim.aifactory.dev/run-for": "0.2", "sim.aifactory.dev/exit-code": str(code)}
        spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.invalid/job:1"}]}
        return {
            "metadata": {"name": name},
            "spec": {"backoffLimit": backoff, "template": {"metadata": {"annotations": notes}, "spec": spec}},
        }

    jobs.create(body=job("good", 0), namespace=ns)
    jobs.create(body=job("bad", 3), namespace=ns)

    def condition_of(name: str, kind: str) -> Any:
        rows = jobs.get(name=name, namespace=ns).to_dict()["status"].get("conditions") or []
        return next((row for row in rows if row["type"] == kind), None)

    wait_for(lambda: condition_of("good", "Complete"), "the good job")
    row = wait_for(lambda: condition_of("bad", "Failed"), "the bad job")
    assert row["reason"] == "BackoffLimitExceeded"
    ended = [p for p in whole.pods_in(ns) if p["metadata"]["labels"]["job-name"] == "bad"]
    assert len(ended) == 2
    for found in ended:
        assert found["status"]["phase"] == "Failed"
        assert found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_a_deleted_job_leaves_its_pods_unless_told(whole: Client) -> None:
    ns = whole.namespace()
    jobs = whole.kind("Job", "batch/v1")
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.invalid/job:1"}]}
    for name in ("left", "taken"):
        jobs.create(body={"metadata": {"name": name}, "spec": {"template": {"spec": spec}}}, namespace=ns)
    wait_for(lambda: len(whole.pods_in(ns)) == 2, "both pods")
    jobs.delete(name="left", namespace=ns)
    jobs.delete(name="taken", namespace=ns, propagation_policy="Background")

    def left() -> bool:
        rows = whole.pods_in(ns)
        names = [row["metadata"]["labels"]["job-name"] for row in rows]
        return names == ["left"] and "ownerReferences" not in rows[0]["metadata"]

    wait_for(left, "one orphan and nothing else")


def test_crash_loop(whole: Client) -> None:
    ns = whole.namespace()
    whole.pods.create(body=pod("loop", annotations={"sim.aifactory.dev/crash-after": "0.1"}), namespace=ns)

    def looping() -> Any:
        row = ((whole.pod(ns, "loop") or {}).get("status", {}).get("containerStatuses") or [{}])[0]
        waiting = (row.get("state") or {}).get("waiting") or {}
        return row if waiting.get("reason") == "CrashLoopBackOff" and row["restartCount"] >= 2 else None

    row = wait_for(looping, "CrashLoopBackOff")
    assert row["lastState"]["terminated"]["exitCode"] == 1
    assert whole.pod(ns, "loop")["status"]["phase"] == "Running"


def test_an_image_that_is_not_there(whole: Client) -> None:
    ns = whole.namespace()
    whole.pods.create(body=pod("bad", image="example.invalid/x:does-not-exist"), namespace=ns)

    def waiting() -> Any:
        rows = (whole.pod(ns, "bad") or {}).get("status", {}).get("containerStatuses") or [{}]
        return (rows[0].get("state") or {}).get("waiting", {}).get("reason") == "ImagePullBackOff"

    wait_for(waiting, "ImagePullBackOff")
    whole.pods.patch(
        body={"spec": {"containers": [{"name": "main", "image": "example.invalid/x:1"}]}}, name="bad", namespace=ns
    )
    wait_for(lambda: ready(whole.pod(ns, "bad")), "the pod with the right image")
    reasons = {event.reason for event in whole.kind("Event").get(namespace=ns).items}
    assert {"Scheduled", "Pulling", "Pulled", "Created", "Started", "Failed", "BackOff"} <= reasons


def test_init_containers_and_sidecars(whole: Client) -> None:
    ns = whole.namespace()
    inits = [
        {"name": "fetch", "image": "example.invalid/fetch:1"},
        {"name": "proxy", "image": "example.invalid/proxy:1", "restartPolicy": "Always"},
    ]
    whole.pods.create(body=pod("p", initContainers=inits), namespace=ns)
    wait_for(lambda: ready(whole.pod(ns, "p")), "the pod to be ready")
    first, second = whole.pod(ns, "p")["status"]["initContainerStatuses"]
    assert first["state"]["terminated"]["reason"] == "Completed"
    assert first["ready"] is True
    assert "running" in second["state"]
    whole.pods.delete(name="p", namespace=ns)
    wait_for(lambda: whole.pod(ns, "p") is None, "the pod to be gone")


def test_pending_says_why_and_goes_on_when_there_is_room(whole: Client) -> None:
    ns = whole.namespace()
    pool: dict[str, Any] = {"nodeSelector": {"aifactory.dev/pool": "l4"}}
    for number in range(4):
        whole.pods.create(body=pod(f"p{number}", 1, **pool), namespace=ns)
    whole.pods.create(body=pod("waits", 1, **pool), namespace=ns)

    def waiting() -> Any:
        found = [p for p in whole.pods_in(ns) if not p["spec"].get("nodeName")]
        rows = found[0]["status"].get("conditions") if found else None
        return rows[0] if rows else None

    row = wait_for(waiting, "a pod that does not fit")
    assert (row["type"], row["status"], row["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert row["message"].startswith("0/11 nodes are available: ")
    assert "4 Insufficient nvidia.com/gpu" in row["message"]
    assert "7 node(s) didn't match Pod's node affinity/selector" in row["message"]
    event = next(e for e in whole.kind("Event").get(namespace=ns).items if e.reason == "FailedScheduling")
    assert event.message == row["message"]
    assert event.reportingComponent == "default-scheduler"

    def bound() -> list[Any]:
        return [p for p in whole.pods_in(ns) if p["spec"].get("nodeName")]

    placed = bound()
    whole.pods.delete(name=placed[0]["metadata"]["name"], namespace=ns)
    wait_for(lambda: len(whole.pods_in(ns)) == 4 and len(bound()) == len(placed), "a waiting pod to take its place")
    for found in whole.pods_in(ns):
        whole.pods.delete(name=found["metadata"]["name"], namespace=ns)
    wait_for(lambda: not whole.pods_in(ns), "the cards to be free again")


def test_limit_range_fills_in_what_a_quota_asks_for(whole: Client) -> None:
    ns = whole.namespace()
    quota = {"metadata": {"name": "all"}, "spec": {"hard": {"requests.cpu": "4", "pods": "3", "count/services": "1"}}}
    whole.kind("ResourceQuota").create(body=quota, namespace=ns)
    with pytest.raises(ForbiddenError, match=r"failed quota: all: must specify requests\.cpu for: main"):
        whole.pods.create(body=pod("a"), namespace=ns)
    limits = [{"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}, "max": {"cpu": "3"}}]
    rule = {"metadata": {"name": "defaults"}, "spec": {"limits": limits}}
    whole.kind("LimitRange").create(body=rule, namespace=ns)
    made = whole.pods.create(body=pod("a"), namespace=ns)
    assert made.spec.containers[0].resources.to_dict() == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}
    with pytest.raises(ForbiddenError, match="maximum cpu usage per Container is 3, but limit is 5"):
        whole.pods.create(body=pod("b", limits={"cpu": "5"}), namespace=ns)
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    whole.kind("Service").create(body=service, namespace=ns)
    with pytest.raises(
        ForbiddenError, match="exceeded quota: all, requested: count/services=1, used: count/services=1"
    ):
        whole.kind("Service").create(body={**service, "metadata": {"name": "t"}}, namespace=ns)


def test_pod_security_levels(whole: Client) -> None:
    ns = whole.namespace({"pod-security.kubernetes.io/enforce": "restricted"})
    with pytest.raises(ForbiddenError, match='violates PodSecurity \\\\"restricted:latest\\\\"'):
        whole.pods.create(body=pod("bare"), namespace=ns)
    body = pod("hard", securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}})
    body["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    whole.pods.create(body=body, namespace=ns)
    low = whole.namespace({"pod-security.kubernetes.io/enforce": "baseline"})
    whole.pods.create(body=pod("bare"), namespace=low)
    host = pod("host", volumes=[{"name": "dev", "hostPath": {"path": "/dev"}}])
    with pytest.raises(ForbiddenError, match="hostPath volumes"):
        whole.pods.create(body=host, namespace=low)


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_propagation(whole: Client, policy: str) -> None:
    ns = whole.namespace()
    whole.apply(deployment("web", ns, 1))
    wait_for(lambda: settled(whole, ns, "web"), "the roll-out")
    answer = whole.deployments.delete(name="web", namespace=ns, propagation_policy=policy)
    sets = whole.kind("ReplicaSet", "apps/v1")
    if policy == "Background":
        assert answer.kind == "Status"
    else:
        finalizer = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}[policy]
        assert answer.metadata.finalizers == [finalizer]

    def gone() -> bool:
        try:
            whole.deployments.get(name="web", namespace=ns)
        except NotFoundError:
            return True
        return False

    wait_for(gone, "the deployment to be gone")
    if policy == "Orphan":
        (rs,) = sets.get(namespace=ns).items
        assert "ownerReferences" not in rs.to_dict()["metadata"]
        assert len(whole.pods_in(ns)) == 1
    elif policy == "Foreground":
        assert not sets.get(namespace=ns).items
        assert not whole.pods_in(ns)
    else:
        wait_for(lambda: not sets.get(namespace=ns).items and not whole.pods_in(ns), "all of it to be gone")


def test_finalizers_hold_an_object(whole: Client) -> None:
    ns = whole.namespace()
    maps = whole.kind("ConfigMap")
    maps.create(body={"metadata": {"name": "a", "finalizers": ["lab.example/keep"]}}, namespace=ns)
    answer = maps.delete(name="a", namespace=ns)
    assert answer.metadata.deletionTimestamp
    assert maps.get(name="a", namespace=ns).metadata.deletionTimestamp == answer.metadata.deletionTimestamp
    maps.patch(
        body={"metadata": {"finalizers": None}}, name="a", namespace=ns, content_type="application/merge-patch+json"
    )
    with pytest.raises(NotFoundError):
        maps.get(name="a", namespace=ns)


def test_a_namespace_takes_everything_with_it(whole: Client) -> None:
    ns = whole.namespace()
    whole.apply(deployment("web", ns, 2))
    wait_for(lambda: settled(whole, ns, "web"), "the roll-out")
    whole.kind("Namespace").delete(name=ns)
    path = f"/api/v1/namespaces/{ns}"
    wait_for(lambda: whole.cluster.call("GET", path)[0] == 404, "the namespace to be gone")
    assert not whole.pods_in(ns)
    assert whole.cluster.call("POST", f"{path}/configmaps", {"metadata": {"name": "x"}})[0] == 404


def test_stateful_set_in_order(whole: Client) -> None:
    ns = whole.namespace()
    body = deployment("db", ns, 2)
    body["kind"] = "StatefulSet"
    body["spec"]["serviceName"] = "db"
    whole.apply(body)
    wait_for(lambda: sum(ready(p) for p in whole.pods_in(ns)) == 2, "both pods")
    assert sorted(p["metadata"]["name"] for p in whole.pods_in(ns)) == ["db-0", "db-1"]
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "example.invalid/web:2"
    whole.apply(body)

    def replaced() -> bool:
        rows = whole.pods_in(ns)
        images = {p["spec"]["containers"][0]["image"] for p in rows}
        return images == {"example.invalid/web:2"} and sum(ready(p) for p in rows) == 2

    wait_for(replaced, "both pods with the new image")


def test_logs_of_a_pod(whole: Client) -> None:
    ns = whole.namespace()
    whole.pods.create(body=pod("p"), namespace=ns)
    wait_for(lambda: ready(whole.pod(ns, "p")), "the pod")
    text = whole.core.read_namespaced_pod_log("p", ns)
    assert f"simulated container main of {ns}/p" in text
    code, body = whole.cluster.call("GET", f"/api/v1/namespaces/{ns}/pods/p/log?previous=true")
    assert code == 400
    assert "previous terminated container" in body["message"]
