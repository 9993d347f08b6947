"""Server-side apply and field ownership, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.apply import Ownership, apply, track_update
from simulator.errors import ApiError
from simulator.fields import FieldSet, compare, fields_of, show
from tests.unit.simulator.conftest import recorded

NOW = "2026-11-29T16:35:30Z"


def web(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def with_containers(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return web(template={"spec": {"containers": list(containers)}}, **spec)


def put(live: Any, given_: Any, manager: str = "portal", force: bool = False) -> Any:
    return apply(live, given_, manager, "", force, NOW)


def owners(obj: Any) -> dict[str, Any]:
    return {row["manager"]: row["fieldsV1"] for row in obj["metadata"].get("managedFields") or []}


def test_recorded_fields_round_trip() -> None:
    for file in ("api-apply-forced.json", "api-namespace-terminating.json"):
        for row in recorded(file)["metadata"]["managedFields"]:
            assert FieldSet.from_v1(row["fieldsV1"]).to_v1() == row["fieldsV1"]


def test_fields_left_out_are_removed() -> None:
    live = put(None, with_containers({"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, replicas=2))
    live["spec"]["paused"] = False  # what nobody owns, like a default
    out = put(live, with_containers({"name": "a", "image": "1"}))
    assert "replicas" not in out["spec"]
    assert out["spec"]["template"]["spec"]["containers"] == [{"name": "a", "image": "1"}]
    assert out["spec"]["paused"] is False


def test_a_removed_list_item_goes_with_its_defaults() -> None:
    live = put(None, with_containers({"name": "a", "image": "1"}, {"name": "b", "image": "1"}))
    for container in live["spec"]["template"]["spec"]["containers"]:
        container["imagePullPolicy"] = "IfNotPresent"
    out = put(live, with_containers({"name": "a", "image": "1"}))
    assert [c["name"] for c in out["spec"]["template"]["spec"]["containers"]] == ["a"]


def test_what_others_own_stays() -> None:
    live = put(None, {**web(), "metadata": {"name": "web", "labels": {"a": "1", "b": "1"}}})
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"b": "1"}}}
    live = put(live, other, "gitops")
    out = put(live, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}})
    assert out["metadata"]["labels"] == {"b": "1"}
    assert owners(out) == {"gitops": {"f:metadata": {"f:labels": {"f:b": {}}}}}


def test_the_same_value_is_shared_without_conflict() -> None:
    live = put(None, web(replicas=1))
    out = put(live, web(replicas=1), "gitops")
    assert set(owners(out)) == {"portal", "gitops"}


def test_conflict_names_manager_and_field() -> None:
    live = put(None, web(replicas=1))
    with pytest.raises(ApiError) as refused:
        put(live, web(replicas=3), "gitops")
    assert refused.value.code == 409
    body = refused.value.body
    assert isinstance(body, dict)
    assert body["message"] == 'Apply failed with 1 conflict: conflict with "portal": .spec.replicas'
    out = put(live, web(replicas=3), "gitops", force=True)
    assert out["spec"]["replicas"] == 3
    assert owners(out) == {"gitops": {"f:spec": {"f:replicas": {}}}}


def test_an_update_is_a_conflict_with_its_version() -> None:
    live = put(None, web(replicas=1))
    new = {**live, "metadata": dict(live["metadata"]), "spec": {"replicas": 5}}
    track_update(live, new, "kubectl-edit", "", NOW)
    assert owners(new) == {"kubectl-edit": {"f:spec": {"f:replicas": {}}}}
    with pytest.raises(ApiError, match=r'conflict with "kubectl-edit" using apps/v1: \.spec\.replicas'):
        put(new, web(replicas=1))


def test_quota_field_in_a_message() -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    live = put(None, {**quota, "spec": {"hard": {"requests.nvidia.com/gpu": "4"}}})
    with pytest.raises(ApiError) as refused:
        put(live, {**quota, "spec": {"hard": {"requests.nvidia.com/gpu": "8"}}}, "other")
    assert isinstance(refused.value.body, dict)
    assert refused.value.body["details"]["causes"][0]["field"] == ".spec.hard.requests.nvidia.com/gpu"


def test_ports_by_number_and_protocol() -> None:
    base = {"name": "a", "image": "1"}
    live = put(None, with_containers({**base, "ports": [{"containerPort": 80}, {"containerPort": 90}]}))
    out = put(live, with_containers({**base, "ports": [{"containerPort": 90}]}))
    assert out["spec"]["template"]["spec"]["containers"][0]["ports"] == [{"containerPort": 90}]
    element = 'k:{"containerPort":90,"protocol":"TCP"}'
    containers = owners(out)["portal"]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert element in containers['k:{"name":"a"}']["f:ports"]


def test_tolerations_are_atomic() -> None:
    def tolerating(*keys: str) -> Any:
        rows = [{"key": key, "operator": "Exists"} for key in keys]
        return web(template={"spec": {"tolerations": rows}})

    live = put(None, tolerating("a", "b"))
    out = put(live, tolerating("c"))
    assert [t["key"] for t in out["spec"]["template"]["spec"]["tolerations"]] == ["c"]
    with pytest.raises(ApiError, match="tolerations"):
        put(out, tolerating("a"), "gitops")


def test_node_affinity_terms_are_atomic() -> None:
    def pinned(node: str) -> Any:
        terms = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return web(template={"spec": {"affinity": affinity}})

    out = put(put(None, pinned("n1")), pinned("n2"))
    terms = out["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == ["n2"]


def test_an_empty_map_that_is_applied_stays() -> None:
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"}}
    live = put(None, {**policy, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}})
    out = put(live, {**policy, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}})
    assert out["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_paths_as_messages_print_them() -> None:
    paths = {show(p) for p in fields_of({"spec": {"containers": [{"name": "a", "image": "1"}]}}).paths()}
    assert '.spec.containers[name="a"].image' in paths


LABELS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz"), max_size=4)
CONTAINERS = st.dictionaries(st.sampled_from(["m", "n", "o"]), st.sampled_from(["1", "2"]), min_size=1, max_size=3)


def desired(labels: dict[str, str], containers: dict[str, str], replicas: int | None) -> Any:
    obj = with_containers(*({"name": name, "image": image} for name, image in containers.items()))
    if labels:
        obj["metadata"]["labels"] = labels
    if replicas is not None:
        obj["spec"]["replicas"] = replicas
    return obj


DESIRED = st.builds(desired, LABELS, CONTAINERS, st.none() | st.integers(0, 3))


@given(DESIRED, DESIRED, DESIRED)
def test_one_manager_alone_gets_what_it_sends(first: Any, second: Any, third: Any) -> None:
    live = None
    for step in (first, second, third):
        live = put(live, step)
        again = put(live, step)
        assert again == live
        for key in ("spec", "kind"):
            assert live[key] == step[key]
        assert live["metadata"].get("labels", {}) == step["metadata"].get("labels", {})


@given(DESIRED, DESIRED)
def test_a_forced_apply_wins_and_the_other_loses_what_changed(first: Any, second: Any) -> None:
    live = put(put(None, first), second, "gitops", force=True)
    sets = Ownership(live).sets
    mine = sets[("gitops", "Apply", "apps/v1", "")]
    assert mine.equals(fields_of({"metadata": second["metadata"], "spec": second["spec"]}).difference(
        fields_of({"metadata": {"name": "web"}})
    ))  # fmt: skip
    for who, owned in sets.items():
        if who[0] == "portal":
            shared = owned.intersection(mine)
            touched = compare(put(None, first), live)
            assert shared.intersection(touched.modified).empty
