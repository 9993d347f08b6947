"""Objects over the wire, with the official client: create, read, change, apply, delete, list, watch."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from kubernetes import watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import (
    ConflictError,
    DynamicApiError,
    ForbiddenError,
    NotFoundError,
    UnprocessibleEntityError,
)

from tests.support.simulator import SimulatorProcess
from tests.unit.simulator.conftest import Client, deployment, pod, wait_for


def status_of(error: DynamicApiError) -> dict[str, Any]:
    import json

    body: dict[str, Any] = json.loads(error.body or "{}")
    return body


def test_create_get_replace_patch_delete(whole: Client) -> None:
    ns = whole.namespace()
    maps = whole.kind("ConfigMap")
    made = maps.create(body={"metadata": {"name": "a"}, "data": {"x": "1"}}, namespace=ns)
    assert made.metadata.uid
    body = made.to_dict()
    body["data"]["x"] = "2"
    second = maps.replace(body=body, namespace=ns)
    assert int(second.metadata.resourceVersion) > int(made.metadata.resourceVersion)
    with pytest.raises(ConflictError):
        maps.replace(body=body, namespace=ns)  # the version is old by now
    same = maps.replace(body={"metadata": {"name": "a"}, "data": {"x": "2"}}, namespace=ns)
    assert same.metadata.resourceVersion == second.metadata.resourceVersion
    merged = maps.patch(
        body={"metadata": {"labels": {"l": "1"}}, "data": {"y": "3"}},
        name="a",
        namespace=ns,
        content_type="application/merge-patch+json",
    )
    assert merged.data.to_dict() == {"x": "2", "y": "3"}
    gone = maps.delete(name="a", namespace=ns)
    assert (gone.kind, gone.status) == ("Status", "Success")
    assert gone.details.uid == made.metadata.uid
    with pytest.raises(NotFoundError) as missing:
        maps.get(name="a", namespace=ns)
    assert status_of(missing.value)["details"] == {"name": "a", "kind": "configmaps"}


def test_generation_counts_changes_of_the_spec(whole: Client) -> None:
    ns = whole.namespace()
    body = deployment("web", ns, 0)
    first = whole.apply(body)
    assert first.metadata.generation == 1
    whole.apply({**body, "metadata": {**body["metadata"], "labels": {"a": "b"}}})
    body["spec"]["paused"] = True
    whole.apply({**body, "metadata": {**body["metadata"], "labels": {"a": "b"}}})
    found = whole.deployments.get(name="web", namespace=ns)
    assert found.metadata.generation == 2


def test_an_identical_apply_changes_nothing(whole: Client) -> None:
    ns = whole.namespace()
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpu", "namespace": ns},
        "spec": {
            "hard": {"requests.nvidia.com/gpu": "2", "requests.nvidia.com/gpumem": "20000", "limits.cpu": "1000m"}
        },
    }
    whole.apply(body)
    quota = whole.kind("ResourceQuota")
    wait_for(lambda: quota.get(name="gpu", namespace=ns).to_dict()["status"].get("hard"), "the status")
    before = quota.get(name="gpu", namespace=ns)
    assert before.spec.hard.to_dict()["requests.nvidia.com/gpumem"] == "20k"
    after = whole.apply(body)
    assert after.metadata.resourceVersion == before.metadata.resourceVersion
    assert after.to_dict() == before.to_dict()


def test_dry_run_stores_nothing(whole: Client) -> None:
    ns = whole.namespace()
    body = deployment("web", ns)
    dry = whole.apply(body, dry_run="All")
    assert dry.spec.strategy.type == "RollingUpdate"
    with pytest.raises(NotFoundError):
        whole.deployments.get(name="web", namespace=ns)


def test_a_conflict_names_the_manager_and_force_takes_over(whole: Client) -> None:
    ns = whole.namespace()
    whole.apply(deployment("web", ns, 0, paused=True))
    with pytest.raises(ConflictError) as refused:
        whole.apply(deployment("web", ns, 0, "example.invalid/web:2"), manager="gitops")
    body = status_of(refused.value)
    field = '.spec.template.spec.containers[name="main"].image'
    assert body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "portal"', "field": field}
    ]
    taken = whole.apply(deployment("web", ns, 0, "example.invalid/web:2"), manager="gitops", force_conflicts=True)
    assert taken.spec.template.spec.containers[0].image == "example.invalid/web:2"


def test_what_is_invalid_is_refused_with_its_field(whole: Client) -> None:
    ns = whole.namespace()
    body = deployment("web", ns)
    body["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    with pytest.raises(UnprocessibleEntityError) as refused:
        whole.apply(body)
    found = status_of(refused.value)
    assert found["details"]["causes"][0]["field"] == "spec.template.metadata.labels"
    assert found["message"].startswith('Deployment.apps "web" is invalid: spec.template.metadata.labels: Invalid value')
    stuck = deployment("stuck", ns, strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}})
    with pytest.raises(UnprocessibleEntityError, match="may not be 0 when `maxSurge` is 0"):
        whole.apply(stuck)
    labelled = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"l": "x" * 64}}}
    with pytest.raises(UnprocessibleEntityError, match="must be no more than 63 bytes"):
        whole.kind("ConfigMap").create(body=labelled, namespace=ns)


def test_immutable_selector(whole: Client) -> None:
    ns = whole.namespace()
    whole.apply(deployment("web", ns, 0))
    other = deployment("web", ns, 0)
    other["spec"]["selector"] = {"matchLabels": {"app": "x"}}
    other["spec"]["template"]["metadata"]["labels"] = {"app": "x"}
    with pytest.raises(UnprocessibleEntityError, match="field is immutable"):
        whole.apply(other)


def test_unknown_kinds_are_named(whole: Client) -> None:
    ns = whole.namespace()
    code, body = whole.cluster.call("GET", f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets")
    assert code == 501
    assert "poddisruptionbudgets of policy/v1" in body["message"]
    code, body = whole.cluster.call("GET", "/apis/kueue.x-k8s.io/v1beta1/clusterqueues")
    assert (code, body) == (404, "404 page not found\n")
    code, body = whole.cluster.call("GET", f"/api/v1/namespaces/{ns}/pods/a/exec")
    assert code == 501


def test_selectors_and_fields(whole: Client) -> None:
    ns = whole.namespace()
    maps = whole.kind("ConfigMap")
    for name, labels in (("a", {"tier": "x"}), ("b", {"tier": "y"}), ("c", {})):
        maps.create(body={"metadata": {"name": name, "labels": labels}}, namespace=ns)

    def names(**selector: str) -> list[str]:
        return [item.metadata.name for item in maps.get(namespace=ns, **selector).items]

    assert names(label_selector="tier in (x,y)") == ["a", "b"]
    assert names(label_selector="tier=x") == ["a"]
    assert names(field_selector="metadata.name=c") == ["c"]
    everywhere = maps.get(label_selector="tier=y", field_selector=f"metadata.namespace={ns}")
    assert [item.metadata.name for item in everywhere.items] == ["b"]


def test_paging_is_whole(whole: Client) -> None:
    ns = whole.namespace()
    maps = whole.kind("ConfigMap")
    for number in range(7):
        maps.create(body={"metadata": {"name": f"c{number}", "labels": {"p": "1"}}}, namespace=ns)
    seen: list[str] = []
    page = maps.get(namespace=ns, label_selector="p=1", limit=3)
    while True:
        seen += [item.metadata.name for item in page.items]
        token = page.metadata.to_dict().get("continue")
        if not token:
            break
        page = maps.get(namespace=ns, label_selector="p=1", limit=3, _continue=token)
    assert seen == [f"c{number}" for number in range(7)]


def test_collections_are_deleted_by_selector(whole: Client) -> None:
    ns = whole.namespace()
    maps = whole.kind("ConfigMap")
    for name, labels in (("a", {"go": "1"}), ("b", {"go": "1"}), ("c", {})):
        maps.create(body={"metadata": {"name": name, "labels": labels}}, namespace=ns)
    maps.delete(namespace=ns, label_selector="go=1")
    left = [item.metadata.name for item in maps.get(namespace=ns).items]
    assert "c" in left
    assert not {"a", "b"} & set(left)


def test_preconditions_of_a_deletion(whole: Client) -> None:
    ns = whole.namespace()
    maps = whole.kind("ConfigMap")
    made = maps.create(body={"metadata": {"name": "a"}}, namespace=ns)
    with pytest.raises(ConflictError, match="UID in the precondition"):
        maps.delete(name="a", namespace=ns, body={"preconditions": {"uid": "other"}})
    with pytest.raises(ConflictError, match="ResourceVersion in the precondition"):
        maps.delete(name="a", namespace=ns, body={"preconditions": {"resourceVersion": "1"}})
    fine = {"preconditions": {"uid": made.metadata.uid, "resourceVersion": made.metadata.resourceVersion}}
    maps.delete(name="a", namespace=ns, body=fine)


def test_the_observer_reads_and_never_writes(simulated_fleet: SimulatorProcess, tmp_path: Any, whole: Client) -> None:
    observer = Client(simulated_fleet["gpu-fra-1"], tmp_path, observe=True)
    assert observer.kind("Node").get().items
    assert observer.pods.get(namespace="team-vision").items
    with pytest.raises(ForbiddenError):
        observer.kind("Secret").get(namespace="default")
    with pytest.raises(ForbiddenError, match='cannot create resource \\\\"namespaces\\\\"'):
        observer.kind("Namespace").create(body={"metadata": {"name": "x"}})
    with pytest.raises(ForbiddenError):
        observer.apply(deployment("web", "default"))

    def may(client: Client, **attributes: str) -> bool:
        body = {"spec": {"resourceAttributes": attributes}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        code, answer = client.cluster.call("POST", path, body, observe=client is observer)
        assert code == 201
        return bool(answer["status"]["allowed"])

    assert may(observer, verb="list", resource="pods")
    assert not may(observer, verb="create", resource="pods")
    assert not may(observer, verb="get", resource="pods", subresource="log")
    assert may(whole, verb="create", resource="pods")
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    _, rules = whole.cluster.call("POST", path, {"spec": {"namespace": "default"}}, observe=True)
    verbs = {verb for row in rules["status"]["resourceRules"] for verb in row["verbs"]}
    assert verbs == {"get", "list", "watch"}


# --- watches ---------------------------------------------------------------------------------------------


def collect(client: Client, namespace: str, seconds: int, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    stream = watch.Watch().stream(client.core.list_namespaced_pod, namespace, timeout_seconds=seconds, **more)
    return [(event["type"], event["raw_object"]) for event in stream]


def test_the_life_of_a_pod_as_a_watch_shows_it(whole: Client) -> None:
    ns = whole.namespace()
    version = whole.pods.get(namespace=ns).metadata.resourceVersion
    whole.pods.create(body=pod("two", 2), namespace=ns)
    wait_for(lambda: ready(whole.pod(ns, "two")), "pod two to be ready")
    whole.pods.delete(name="two", namespace=ns)
    wait_for(lambda: whole.pod(ns, "two") is None, "pod two to be gone")
    # everything is asked for afterwards: the watch resumes from the version before
    events = collect(whole, ns, 1, resource_version=version)
    kinds = [kind for kind, _ in events]
    assert kinds[0] == "ADDED"
    assert kinds[-1] == "DELETED"
    assert set(kinds[1:-1]) == {"MODIFIED"}
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))
    first, going = events[0][1], [obj for _, obj in events if "deletionTimestamp" in obj["metadata"]]
    assert first["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert len(going) == 4  # three MODIFIED and the DELETED, as recorded
    real = [line["object"] for line in recorded_lines() if "deletionTimestamp" in line["object"]["metadata"]]
    for ours, theirs in zip(going, real, strict=True):
        assert ours["status"]["phase"] == theirs["status"]["phase"]
        assert ours["metadata"]["deletionGracePeriodSeconds"] == theirs["metadata"]["deletionGracePeriodSeconds"]
        assert ours["metadata"]["generation"] == theirs["metadata"]["generation"]
        (row,), (real_row,) = ours["status"]["containerStatuses"], theirs["status"]["containerStatuses"]
        assert set(row) == set(real_row)
        assert set(row["state"]) == set(real_row["state"])
    ended = going[1]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 143
    assert ended["finishedAt"] >= ended["startedAt"]


def recorded_lines() -> list[dict[str, Any]]:
    import json

    from tests.unit.simulator.conftest import RECORDED

    text = (RECORDED / "api-watch-pods.jsonl").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    return rows


def ready(found: dict[str, Any] | None) -> bool:
    rows = (found or {}).get("status", {}).get("conditions") or []
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


def test_bookmarks_and_selectors(whole: Client) -> None:
    ns = whole.namespace()
    maps = whole.kind("ConfigMap")
    version = maps.get(namespace=ns).metadata.resourceVersion
    maps.create(body={"metadata": {"name": "a", "labels": {"in": "yes"}}}, namespace=ns)
    maps.patch(body={"metadata": {"labels": {"in": None}}}, name="a", namespace=ns)
    maps.patch(body={"metadata": {"labels": {"in": "yes"}}}, name="a", namespace=ns)
    maps.create(body={"metadata": {"name": "b"}}, namespace=ns)
    stream = watch.Watch().stream(
        whole.core.list_namespaced_config_map,
        ns,
        label_selector="in=yes",
        resource_version=version,
        timeout_seconds=2,
        allow_watch_bookmarks=True,
    )
    events = [(e["type"], e["raw_object"]["metadata"]) for e in stream]
    assert [kind for kind, _ in events if kind != "BOOKMARK"] == ["ADDED", "DELETED", "ADDED"]
    marks = [meta for kind, meta in events if kind == "BOOKMARK"]
    assert marks
    assert all(set(meta) == {"resourceVersion"} for meta in marks)


def test_initial_events_end_with_a_bookmark(whole: Client) -> None:
    ns = whole.namespace()
    maps = whole.kind("ConfigMap")
    maps.create(body={"metadata": {"name": "a"}}, namespace=ns)
    stream = maps.watch(
        namespace=ns, timeout=1, allow_watch_bookmarks=True, send_initial_events=True,
        resource_version_match="NotOlderThan",
    )  # fmt: skip
    events = [(event["type"], event["raw_object"]["metadata"]) for event in stream]
    kinds = [kind for kind, _ in events]
    end = kinds.index("BOOKMARK")
    assert set(kinds[:end]) == {"ADDED"}
    assert events[end][1]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_too_old_a_version(fresh_simulator: SimulatorProcess, tmp_path: Any) -> None:
    client = Client(fresh_simulator["gpu-fra-1"], tmp_path)
    ns = client.namespace()
    client.kind("ConfigMap").create(body={"metadata": {"name": "a"}}, namespace=ns)
    path = f"/api/v1/namespaces/{ns}/configmaps?watch=1&resourceVersion=1&timeoutSeconds=3"
    client.cluster.sim("POST", "history/compact")
    code, line = client.cluster.call("GET", path)
    assert code == 200
    assert line["type"] == "ERROR"
    wanted = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "Expired",
        "code": 410,
    }
    assert {**line["object"], "message": ""} == {**wanted, "message": ""}
    assert line["object"]["message"].startswith("too old resource version: 1 (")
    with pytest.raises(ApiException) as gone:
        list(watch.Watch().stream(client.core.list_namespaced_config_map, ns, resource_version="1", timeout_seconds=3))
    assert gone.value.status == 410


def test_many_watches_and_their_end(fresh_simulator: SimulatorProcess, tmp_path: Any) -> None:
    client = Client(fresh_simulator["gpu-fra-1"], tmp_path)
    ns = client.namespace()
    seen: list[str] = []
    ended: list[BaseException | None] = []

    def follow() -> None:
        own = Client(fresh_simulator["gpu-fra-1"], tmp_path)
        try:
            stream = watch.Watch().stream(own.core.list_namespaced_config_map, ns, timeout_seconds=60)
            seen.extend(event["type"] for event in stream if event["object"].metadata.name == "signal")
            ended.append(None)
        except Exception as error:  # noqa: BLE001  what kind of end it was is looked at below
            ended.append(error)

    threads = [threading.Thread(target=follow, daemon=True) for _ in range(40)]
    for thread in threads:
        thread.start()
    wait_for(lambda: client.cluster.sim("GET", "state")["watches"] == 40, "all watches to be open", 60)
    client.kind("ConfigMap").create(body={"metadata": {"name": "signal"}}, namespace=ns)
    wait_for(lambda: len(seen) == 40, "every watch to see the object", 30)
    # the client itself opens a watch again that was cut; so the watches end with the process
    assert client.cluster.sim("POST", "watches/end", {"cut": True})["ended"] == 40
    fresh_simulator.stop()
    for thread in threads:
        thread.join(30)
    assert len(ended) == 40
    assert seen.count("ADDED") >= 40


def test_a_watch_waits_for_what_comes(whole: Client) -> None:
    ns = whole.namespace()
    got: list[str] = []

    def follow() -> None:
        got.extend(kind for kind, _ in collect(whole, ns, 3))

    thread = threading.Thread(target=follow)
    thread.start()
    time.sleep(0.3)
    whole.pods.create(body=pod("late"), namespace=ns)
    thread.join()
    assert got[0] == "ADDED"
    assert "MODIFIED" in got
