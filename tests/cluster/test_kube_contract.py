"""What the client needs of a Kubernetes API, asked of each control plane. The real one is right where they differ."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import pytest

from infra.kube import errors
from infra.kube.access import Review, reviews
from infra.kube.client import KubeClient
from infra.kube.watching import EventType
from infra.models import Cluster
from tests.cluster.backends import SimulatorBackend
from tests.cluster.conftest import PATIENCE, Plane, until_pods_are_taken

GPU = "nvidia.com/gpu"


def wait_until(condition: Any, what: str, seconds: float = PATIENCE) -> Any:
    """Poll until ``condition()`` is true; fails with ``what``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    pytest.fail(f"waited {seconds:g} s for: {what}")


def is_gone(client: KubeClient, *key: str) -> bool:
    try:
        client.get(*key)
    except errors.NotFound:
        return True
    return False


def pod(plane: Plane, name: str, gpus: int = 1) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "example.invalid/x:1",
        "resources": {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": plane.namespace},
        "spec": {"containers": [container]},
    }


def deployment(plane: Plane, name: str = "web", replicas: int = 1) -> dict[str, Any]:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "example.invalid/x:1"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": plane.namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


# ---- who it is and what we may -----------------------------------------------------------------------------


def test_version_and_identity(plane: Plane) -> None:
    assert plane.client.version()["gitVersion"].startswith("v1.")
    assert plane.client.identity() == plane.cluster.identity
    plane.client.require_identity()


def test_the_administrator_has_every_right_and_the_observer_those_of_observe(plane: Plane) -> None:
    observer = KubeClient(plane.backend.credentials(observe=True), name="sut")
    assert all(plane.client.access_review(review) for review in reviews("manage"))
    assert all(observer.access_review(review) for review in reviews("observe"))
    for refused in (
        Review("create", "", "namespaces"),
        Review("patch", "apps", "deployments"),
        Review("delete", "", "pods"),
        Review("get", "", "secrets"),
    ):
        assert not observer.access_review(refused), refused
    assert any("pods" in rule["resources"] for rule in observer.rules_review(plane.namespace))


def test_a_token_that_nobody_gave_is_unauthorized(plane: Plane) -> None:
    stranger = replace(plane.backend.credentials(), token="nobody-gave-this")
    with pytest.raises(errors.Unauthorized):
        KubeClient(stranger, name="sut").list_all("v1", "Node")


def test_what_the_guard_lets_through_rbac_still_refuses(plane: Plane) -> None:
    observer = KubeClient(plane.backend.credentials(observe=True), name="sut", cluster_id=plane.cluster.pk)
    with pytest.raises(errors.Forbidden) as caught:
        observer.apply(plane.config_map("a"))
    assert "configmaps" in caught.value.sentence


# ---- reading -----------------------------------------------------------------------------------------------


def test_an_object_that_is_not_there_is_not_found_and_a_kind_that_is_not_served_is_not_that(plane: Plane) -> None:
    with pytest.raises(errors.NotFound):
        plane.client.get("v1", "ConfigMap", "none", plane.namespace)
    with pytest.raises(errors.NotFound):
        plane.client.get("v1", "Pod", "none", "no-such-namespace")
    with pytest.raises(errors.KubeError) as caught:
        plane.client.get("nothing.example/v1", "Thing", "a", plane.namespace)
    assert not isinstance(caught.value, errors.NotFound)


def test_lists_come_in_pages_of_one_version(plane: Plane) -> None:
    for number in range(5):
        plane.client.apply(plane.config_map(f"c{number}", {"half": str(number % 2)}))
    query: dict[str, Any] = {"namespace": plane.namespace, "label_selector": "half"}
    pages = list(plane.client.list_pages("v1", "ConfigMap", limit=2, **query))
    assert [len(page.items) for page in pages] == [2, 2, 1]
    assert len({page.resource_version for page in pages}) == 1
    items = [item for page in pages for item in page.items]
    assert [item["metadata"]["name"] for item in items] == [f"c{number}" for number in range(5)]
    assert {(item["apiVersion"], item["kind"]) for item in items} == {("v1", "ConfigMap")}
    odd = plane.client.list_all("v1", "ConfigMap", namespace=plane.namespace, label_selector="half=1")
    assert [item["metadata"]["name"] for item in odd.items] == ["c1", "c3"]
    one = plane.client.list_all("v1", "ConfigMap", namespace=plane.namespace, field_selector="metadata.name=c4")
    assert [item["metadata"]["name"] for item in one.items] == ["c4"]
    only_metadata = plane.client.list_all("v1", "ConfigMap", metadata_only=True, **query)
    assert {item["kind"] for item in only_metadata.items} == {"PartialObjectMetadata"}
    assert all("data" not in item for item in only_metadata.items)


def test_a_list_begins_anew_when_its_version_is_forgotten(plane: Plane) -> None:
    for number in range(4):
        plane.client.apply(plane.config_map(f"c{number}"))
    pages = plane.client.list_pages("v1", "ConfigMap", namespace=plane.namespace, limit=2)
    first = next(pages)
    plane.client.apply(plane.config_map("c9"))
    plane.backend.forget_history()
    rest = list(pages)
    assert not first.restarted
    assert [page.restarted for page in rest][:1] == [True]
    names = [item["metadata"]["name"] for page in rest for item in page.items]
    assert set(names) >= {"c0", "c1", "c2", "c3", "c9"}
    assert len(names) == len(set(names))


def test_a_watch_brings_what_happened_since_and_is_resumed_without_loss_or_repeat(plane: Plane) -> None:
    start = plane.client.list_all("v1", "ConfigMap", namespace=plane.namespace).resource_version
    created = plane.client.apply(plane.config_map("a", x="1"))
    plane.client.apply(plane.config_map("a", x="2"))
    plane.client.delete("v1", "ConfigMap", "a", plane.namespace, uid=created.object["metadata"]["uid"])

    def watch(version: str, seconds: int = 5) -> Any:
        events = plane.client.watch(
            "v1", "ConfigMap", namespace=plane.namespace, resource_version=version, timeout_seconds=seconds,
            field_selector="metadata.name=a",
        )  # fmt: skip
        return (event for event in events if event.type is not EventType.BOOKMARK)

    events = list(itertools.islice(watch(start), 3))
    assert [event.type for event in events] == [EventType.ADDED, EventType.MODIFIED, EventType.DELETED]
    assert [event.object["data"]["x"] for event in events] == ["1", "2", "2"]
    again = list(itertools.islice(watch(events[0].resource_version), 2))
    assert [event.resource_version for event in again] == [event.resource_version for event in events[1:]]
    assert list(watch(events[-1].resource_version, 1)) == [], "the server ends the stream, and that is no error"


def test_a_watch_can_begin_with_the_present(plane: Plane) -> None:
    plane.client.apply(plane.config_map("a"))
    plane.client.apply(plane.config_map("b"))
    events = []
    for event in plane.client.watch(
        "v1", "ConfigMap", namespace=plane.namespace, resource_version="", initial_events=True, timeout_seconds=5
    ):
        events.append(event)
        if event.initial_events_end:
            break
    added = [event.object["metadata"]["name"] for event in events if event.type is EventType.ADDED]
    assert {"a", "b"} <= set(added)
    assert events[-1].initial_events_end


def test_a_watch_from_a_forgotten_version_is_gone(plane: Plane) -> None:
    old = plane.client.list_all("v1", "ConfigMap", namespace=plane.namespace).resource_version
    plane.client.apply(plane.config_map("a"))
    plane.client.apply(plane.config_map("b"))
    plane.backend.forget_history()
    with pytest.raises(errors.Gone):
        list(plane.client.watch("v1", "ConfigMap", resource_version=old, timeout_seconds=1))


# ---- server-side apply -------------------------------------------------------------------------------------


def test_apply_creates_changes_removes_and_otherwise_writes_nothing(plane: Plane) -> None:
    first = plane.client.apply(plane.config_map("a", x="1", y="1"))
    version = first.object["metadata"]["resourceVersion"]
    assert (first.created, first.changed) == (True, True)
    plane.backend.count_anew()
    same = plane.client.apply(plane.config_map("a", x="1", y="1"), known_resource_version=version)
    assert (same.created, same.changed) == (False, False)
    assert (plane.backend.writes(), plane.backend.changes()) == (1, 0)
    less = plane.client.apply(plane.config_map("a", x="2"), known_resource_version=version)
    assert less.changed
    assert less.object["data"] == {"x": "2"}, "what is left out is removed"


def test_a_dry_run_keeps_nothing(plane: Plane) -> None:
    assert plane.client.apply(plane.config_map("a", x="1"), dry_run=True).object["data"] == {"x": "1"}
    assert is_gone(plane.client, "v1", "ConfigMap", "a", plane.namespace)


def test_a_conflict_names_the_manager_and_the_fields_and_force_takes_them(plane: Plane) -> None:
    plane.client.apply(deployment(plane, replicas=1))
    plane.client.apply(deployment(plane, replicas=2), field_manager="gitops", force=True)
    with pytest.raises(errors.ApplyConflict) as caught:
        plane.client.apply(deployment(plane, replicas=1))
    assert caught.value.managers == ("gitops",)
    assert caught.value.fields == (".spec.replicas",)
    forced = plane.client.apply(deployment(plane, replicas=1), force=True)
    assert forced.object["spec"]["replicas"] == 1


def test_labels_are_patched_on_exactly_one_object(plane: Plane) -> None:
    uid = plane.client.apply(plane.config_map("a", {"keep": "1", "drop": "1"})).object["metadata"]["uid"]
    key = ("v1", "ConfigMap", "a", plane.namespace)
    patched = plane.client.patch_metadata(*key, uid=uid, labels={"new": "1", "drop": None}, annotations={"n": "x"})
    assert patched["metadata"]["labels"] == {"keep": "1", "new": "1"}
    assert patched["metadata"]["annotations"]["n"] == "x"
    with pytest.raises(errors.StaleWrite):
        plane.client.patch_metadata(*key, uid="00000000-0000-0000-0000-000000000000", labels={"new": "2"})


def test_invalid_objects_are_refused_with_their_fields(plane: Plane) -> None:
    with pytest.raises(errors.Invalid) as caught:
        plane.client.apply(plane.config_map("Bad_Name"))
    assert "metadata.name" in caught.value.sentence


def test_a_field_that_the_crd_does_not_know_is_permanent(plane: Plane) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"gpus": {"type": "integer"}}}}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.contract.example"},
        "spec": {
            "group": "contract.example",
            "scope": "Namespaced",
            "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    plane.client.apply(crd)
    gadget: dict[str, Any] = {
        "apiVersion": "contract.example/v1",
        "kind": "Gadget",
        "metadata": {"name": "m", "namespace": plane.namespace},
        "spec": {"gpus": 1},
    }

    def served() -> bool:
        try:
            return bool(plane.client.apply(gadget))
        except errors.ApiMissing:
            return False

    wait_until(served, "the new kind to be served")
    with pytest.raises(errors.SchemaRefused) as caught:
        plane.client.apply({**gadget, "spec": {"gpus": 1, "colour": "red"}})
    assert caught.value.path == ".spec.colour"


# ---- refusals ----------------------------------------------------------------------------------------------


def test_a_quota_refuses_with_its_numbers(plane: Plane) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpu", "namespace": plane.namespace},
        "spec": {"hard": {f"requests.{GPU}": "2"}},
    }
    plane.client.apply(quota)

    def settled() -> bool:
        status = plane.client.get("v1", "ResourceQuota", "gpu", plane.namespace).get("status") or {}
        return f"requests.{GPU}" in (status.get("used") or {})

    wait_until(settled, "the quota's status")
    until_pods_are_taken(plane.client, plane.namespace)
    plane.client.apply(pod(plane, "one", 1))
    with pytest.raises(errors.QuotaRefused) as caught:
        plane.client.apply(pod(plane, "four", 4))
    resource = f"requests.{GPU}"
    assert caught.value.quota == "gpu"
    assert (caught.value.requested, caught.value.used) == ({resource: "4"}, {resource: "1"})
    assert caught.value.limited == {resource: "2"}


def test_nothing_new_goes_into_a_namespace_that_is_being_deleted(plane: Plane) -> None:
    held = plane.config_map("held")
    held["metadata"]["finalizers"] = ["contract.example/keep"]
    uid = plane.client.apply(held).object["metadata"]["uid"]
    namespace = plane.client.get("v1", "Namespace", plane.namespace)
    plane.client.delete("v1", "Namespace", plane.namespace, uid=namespace["metadata"]["uid"])
    with pytest.raises(errors.NamespaceTerminating):
        plane.client.apply(plane.config_map("late"))
    key = ("v1", "ConfigMap", "held", plane.namespace)
    wait_until(lambda: plane.client.get(*key)["metadata"].get("deletionTimestamp"), "the deletion of what is in it")
    assert plane.client.get(*key)["metadata"]["uid"] == uid
    plane.client.apply(plane.config_map("held"))
    wait_until(lambda: is_gone(plane.client, "v1", "Namespace", plane.namespace), "the namespace to go")


# ---- deleting ----------------------------------------------------------------------------------------------


def test_only_the_object_that_was_meant_is_deleted(plane: Plane) -> None:
    key = ("v1", "ConfigMap", "a", plane.namespace)
    metadata = plane.client.apply(plane.config_map("a", x="1")).object["metadata"]
    with pytest.raises(errors.StaleWrite):
        plane.client.delete(*key, uid="00000000-0000-0000-0000-000000000000")
    plane.client.apply(plane.config_map("a", x="2"))
    with pytest.raises(errors.StaleWrite):
        plane.client.delete(*key, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    plane.client.delete(*key, uid=metadata["uid"])
    wait_until(lambda: is_gone(plane.client, *key), "the deletion")
    with pytest.raises(errors.NotFound):
        plane.client.delete(*key, uid=metadata["uid"])


def test_in_the_foreground_an_object_goes_after_what_it_owns(plane: Plane) -> None:
    uid = plane.client.apply(deployment(plane)).object["metadata"]["uid"]
    key = ("apps/v1", "Deployment", "web", plane.namespace)

    def pods() -> list[dict[str, Any]]:
        return plane.client.list_all("v1", "Pod", namespace=plane.namespace, label_selector="app=web").items

    wait_until(pods, "a pod")
    plane.client.delete(*key, uid=uid, propagation="Foreground")
    wait_until(lambda: is_gone(plane.client, *key), "the deployment to go")
    assert pods() == []


# ---- through the API server --------------------------------------------------------------------------------


def test_a_service_that_is_not_there_is_not_reached_through_the_proxy(plane: Plane) -> None:
    with pytest.raises(errors.KubeError):
        plane.client.service_proxy_get(plane.namespace, "none", 80, "/metrics")


def test_metrics_through_the_proxy(plane: Plane) -> None:
    if plane.backend.exporter is None:
        pytest.skip("no kubelet: nothing listens behind a service")
    text = plane.client.service_proxy_get(*plane.backend.exporter, "metrics").decode()
    assert "DCGM_FI_DEV_GPU_UTIL" in text
    with pytest.raises(errors.Permanent, match="more than 100 bytes"):
        plane.client.service_proxy_get(*plane.backend.exporter, "metrics", max_bytes=100)


def test_the_end_of_a_log(plane: Plane) -> None:
    if plane.backend.exporter is None:
        pytest.skip("no kubelet: no container writes a log")
    plane.client.apply(deployment(plane))

    def running() -> list[dict[str, Any]]:
        pods = plane.client.list_all("v1", "Pod", namespace=plane.namespace, label_selector="app=web").items
        return [pod for pod in pods if pod["status"].get("phase") == "Running"]

    name = wait_until(running, "a running pod")[0]["metadata"]["name"]
    whole = plane.client.logs(plane.namespace, name)
    assert whole
    assert plane.client.logs(plane.namespace, name, container="main", tail_lines=1).count("\n") <= 1
    assert len(plane.client.logs(plane.namespace, name, limit_bytes=5)) <= 5
    with pytest.raises(errors.NotFound):
        plane.client.logs(plane.namespace, "none")


# ---- what goes wrong on the way ----------------------------------------------------------------------------


def test_overload_is_waited_out_and_a_lost_answer_says_nothing_about_the_write(plane: Plane) -> None:
    backend = plane.backend
    if not isinstance(backend, SimulatorBackend):
        pytest.skip("faults are ordered from the simulator")
    where = {"namespace": plane.namespace, "resource": "configmaps"}
    backend.fault(**where, verb="list", status=429, retry_after=2)
    with pytest.raises(errors.Retryable) as caught:
        plane.client.list_all("v1", "ConfigMap", namespace=plane.namespace)
    assert caught.value.retry_after == 2.0
    backend.fault(**where, verb="patch", status=503, after=True)
    with pytest.raises(errors.Retryable):
        plane.client.apply(plane.config_map("a", x="1"))
    again = plane.client.apply(plane.config_map("a", x="1"))
    assert not again.created, "the first write had been carried out"
    backend.fault(**where, verb="get", cut=True)
    with pytest.raises(errors.Unreachable) as broken:
        plane.client.get("v1", "ConfigMap", "a", plane.namespace)
    assert broken.value.cause == "broken"


# ---- writing is asked of the database, each time -----------------------------------------------------------


def test_an_observed_cluster_gets_no_write_at_all(plane: Plane) -> None:
    uid = plane.client.apply(plane.config_map("a")).object["metadata"]["uid"]
    Cluster.objects.filter(pk=plane.cluster.pk).update(mode=Cluster.Mode.OBSERVE)
    plane.backend.count_anew()
    key = ("v1", "ConfigMap", "a", plane.namespace)
    for write in (
        lambda: plane.client.apply(plane.config_map("a", x="2")),
        lambda: plane.client.apply(plane.config_map("a", x="2"), force=True, dry_run=True),
        lambda: plane.client.delete(*key, uid=uid),
        lambda: plane.client.patch_metadata(*key, uid=uid, labels={"x": "y"}),
    ):
        with pytest.raises(errors.ObserveOnly):
            write()
    assert plane.client.get(*key)["metadata"]["uid"] == uid
    assert plane.backend.writes() == 0
    Cluster.objects.filter(pk=plane.cluster.pk).update(mode=Cluster.Mode.MANAGE)
    plane.client.apply(plane.config_map("a", x="2"))
    assert plane.backend.writes() == 1, "the count would have shown a write"
