"""Reading the manifest: both shapes, every fault at once with its place, and texts that mean harm."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenants.manifest import (
    ManifestInvalid,
    ManifestRules,
    broken_rules,
    from_spec,
    load_documents,
    parse_manifest,
    to_data,
    to_spec,
    to_yaml,
)
from tenants.manifest.rules import image_registry
from tenants.manifest.tree import Manifest, Role
from tests.unit.tenants.manifests import FLAT, NESTED, manifest_data

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "manifests"
PUBLIC = sorted(SHARED.rglob("*.yaml")) if SHARED.is_dir() else []


def faults(source: str | dict[str, Any]) -> dict[str, str]:
    """Pointer → detail of everything that is wrong."""
    with pytest.raises(ManifestInvalid) as caught:
        parse_manifest(source)
    return {error.pointer: error.detail for error in caught.value.errors}


def test_both_shapes_are_the_same_manifest() -> None:
    flat, nested = parse_manifest(FLAT), parse_manifest(NESTED)
    assert flat == nested
    assert flat.namespace == "ml-team"
    assert flat.replicas == 2
    (engine,) = flat.engines
    (member,) = engine.members
    assert member.role is Role.STANDALONE
    assert member.template.engine.image == "vllm/vllm-openai:v0.23.0"
    assert member.devices[0].selectors[0].startswith("device.capacity")


@pytest.mark.parametrize("text", [FLAT, NESTED])
def test_dumped_and_read_again_it_is_the_same(text: str) -> None:
    manifest = parse_manifest(text)
    assert parse_manifest(to_yaml(manifest)) == manifest
    assert parse_manifest(json.dumps(to_data(manifest))) == manifest
    assert from_spec(manifest.name, manifest.namespace, to_spec(manifest)) == manifest
    assert to_yaml(parse_manifest(to_yaml(manifest))) == to_yaml(manifest)


@pytest.mark.skipif(not PUBLIC, reason="the public manifests are not beside the project")
@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: "/".join(path.parts[-2:]))
def test_public_manifests_parse(path: Path) -> None:
    for document in load_documents(path.read_text()):
        if document.data.get("kind") != "ModelDeployment":
            continue
        manifest = parse_manifest(document)
        assert parse_manifest(to_data(manifest)) == manifest


def test_gang() -> None:
    data = manifest_data()
    template = data["spec"]["engines"][0]["template"]
    data["spec"]["engines"][0]["members"] = [
        {"role": "Worker", "worker": {"nodes": 3}, "template": template},
        {"role": "Leader"},
    ]
    leader, worker = parse_manifest(data).engines[0].members
    assert (leader.role, worker.role, worker.nodes) == (Role.LEADER, Role.WORKER, 3)
    assert leader.devices == worker.devices


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([{"role": "Leader"}], "one Leader and one Worker"),
        ([{"role": "Standalone"}, {"role": "Worker"}], "one Standalone"),
        ([{"role": "Standalone", "worker": {"nodes": 2}}], "for role Worker only"),
        ([{"role": "worker"}], "did you mean Worker"),
    ],
)
def test_wrong_members(members: list[dict[str, Any]], said: str) -> None:
    data = manifest_data()
    data["spec"]["engines"][0]["members"] = members
    assert any(said in detail for detail in faults(data).values())


def test_every_fault_is_named_at_once_with_its_line() -> None:
    text = FLAT.replace("replicas: 2", "replicas: 200\n  replcas: 1").replace("count: 1", "count: 0")
    text = text.replace("name: qwen3-8b", "name: Qwen_3")
    with pytest.raises(ManifestInvalid) as caught:
        parse_manifest(text)
    errors = {error.pointer: error for error in caught.value.errors}
    assert set(errors) == {
        "/metadata/name",
        "/spec/replicas",
        "/spec/replcas",
        "/spec/engines/0/nodeSelector/devices/0/count",
    }
    assert "did you mean replicas" in errors["/spec/replcas"].detail
    assert errors["/spec/replicas"].line == 5
    assert errors["/spec/replcas"].line == 6
    assert [error.line for error in caught.value.errors] == sorted(error.line or 0 for error in caught.value.errors)


def test_selector_faults_carry_the_place_in_the_expression() -> None:
    with pytest.raises(ManifestInvalid) as caught:
        parse_manifest(FLAT, check=lambda expression: (1, 7, f"unknown field of {expression[:6]}"))
    (error,) = caught.value.errors
    assert error.pointer == "/spec/engines/0/nodeSelector/devices/0/selectors/0/cel"
    assert "line 1, column 7" in error.detail
    assert error.line == 13


@pytest.mark.parametrize(
    ("share", "said"),
    [
        ({}, "neither is given"),
        ({"memory": "20Gi", "profile": "quarter"}, "both are given"),
        ({"profile": "third"}, "is not known"),
        ({"profile": "10g.10gb"}, "is not known"),
        ({"profile": "1g.1\u0660gb"}, "is not known"),
        ({"memory": "20 cards"}, "is not a quantity"),
        ({"memory": "1Ki"}, "less than 1 MiB"),
        ({"memory": "120%"}, "is not a quantity"),
        ({"memory": "20Gi", "cores": 120}, "choose 1 to 100"),
        ({"profile": "1g.10gb", "cores": 10}, "fixes the cores"),
        ({"memry": "20Gi"}, "did you mean memory"),
    ],
)
def test_wrong_shares(share: dict[str, Any], said: str) -> None:
    assert any(said in detail for detail in faults(manifest_data(share=share)).values())


@pytest.mark.parametrize(
    "share", [{"memory": "20Gi", "cores": 25}, {"memory": "25%"}, {"profile": "quarter"}, {"profile": "1g.10gb"}]
)
def test_right_shares_survive(share: dict[str, Any]) -> None:
    manifest = parse_manifest(manifest_data(share=share))
    assert parse_manifest(to_yaml(manifest)) == manifest
    assert (
        to_spec(manifest)["template"]["spec"]["engines"][0]["members"][0]["nodeSelector"]["devices"][0]["share"]
        == share
    )


@pytest.mark.parametrize(
    ("change", "pointer", "said"),
    [
        ({"apiVersion": "apps/v1"}, "/apiVersion", "only modelplane.ai/v1alpha1"),
        ({"kind": "Deployment"}, "/kind", "only ModelDeployment"),
        ({"spec": None}, "", "spec is missing"),
        ({"extra": 1}, "/extra", "is not a field"),
        ({"spec": {"engines": []}}, "/spec/engines", "0 entries"),
        ({"spec": "two"}, "/spec", "must be a mapping"),
    ],
)
def test_wrong_tops(change: dict[str, Any], pointer: str, said: str) -> None:
    data = manifest_data() | change
    assert said in faults(data)[pointer]


def test_limits_and_reserved_names() -> None:
    data = manifest_data()
    engine = data["spec"]["engines"][0]
    engine["copies"] = 65
    engine["template"]["metadata"] = {
        "labels": {"modelplane.ai/pool": "x", "stage": "a" * 64, "ok": "yes"},
        "annotations": {"hami.io/vgpu-mode": "mig"},
    }
    container = engine["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "A"}, {"name": "A"}]
    container["resources"] = {"limits": {"nvidia.com/gpu": 1, "cpu": 2}, "requests": {"cpu": 3}}
    found = faults(data)
    base = "/spec/engines/0"
    assert "choose 1 to 64" in found[f"{base}/copies"]
    assert "reserved" in found[f"{base}/template/metadata/labels/modelplane.ai~1pool"]
    assert f"{base}/template/metadata/labels/stage" in found
    assert "set by the platform" in found[f"{base}/template/metadata/annotations/hami.io~1vgpu-mode"]
    where = f"{base}/template/spec/containers/0"
    assert "set by the platform" in found[f"{where}/env/0/name"]
    assert "set twice" in found[f"{where}/env"]
    assert "nodeSelector.devices" in found[f"{where}/resources/limits/nvidia.com~1gpu"]
    assert "above the limit" in found[f"{where}/resources"]


def test_phases_need_their_mode() -> None:
    data = manifest_data()
    data["spec"]["engines"][0]["phase"] = "Prefill"
    assert "needs serving.mode" in faults(data)["/spec/engines"]
    data["spec"]["serving"] = {"mode": "PrefillDecode"}
    assert "exactly two engines" in faults(data)["/spec/engines"]
    second = copy.deepcopy(data["spec"]["engines"][0]) | {"name": "decode", "phase": "Decode"}
    data["spec"]["engines"].append(second)
    manifest = parse_manifest(data)
    assert [error.pointer for error in broken_rules(manifest, ManifestRules())] == ["/spec/template/spec/serving/mode"]


def test_cost_code_from_either_place() -> None:
    data = manifest_data(costCode="R-1")
    assert parse_manifest(data).cost_code == "R-1"
    data["metadata"]["annotations"] = {"aifactory.dev/cost-code": "R-2", "somebody.example.com/note": "kept out"}
    assert "give one of them" in faults(data)["/spec/costCode"]
    del data["spec"]["costCode"]
    assert parse_manifest(data).cost_code == "R-2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x [1]\nb: *x\n", "anchors and aliases"),
        ("a: 1\na: 2\n", "given twice"),
        ("a: !!python/object:os.system x\n", "the tag"),
        ("[" * 40 + "]" * 40, "levels deep"),
        ("- x\n" * 20_001, "values"),
        ("a: " + "x" * 300_000, "at most"),
        ("a: b: c\n", "not YAML"),
        ("\x00", "not YAML"),
        ("", "nothing in it"),
        ("a: 1\n---\nb: 2\n", "2 documents"),
        ("? [1, 2]\n: x\n", "plain text"),
    ],
)
def test_harmful_texts(text: str, said: str) -> None:
    with pytest.raises(ManifestInvalid) as caught:
        parse_manifest(text)
    assert said in str(caught.value)


def test_scalars_are_read_as_kubernetes_does() -> None:
    (document,) = load_documents("a: yes\nb: 010\nc: 2026-01-01\nd: true\ne: 1.5\nf: '1'\ng: ~\n")
    assert document.data == {"a": "yes", "b": 10, "c": "2026-01-01", "d": True, "e": 1.5, "f": "1", "g": None}


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("python", "docker.io/library/python"),
        ("vllm/vllm-openai:v0.23.0", "docker.io/vllm/vllm-openai"),
        ("ghcr.io/team/x@sha256:" + "0" * 64, "ghcr.io/team/x"),
        ("registry:5000/x/y:1", "registry:5000/x/y"),
        ("localhost/x", "localhost/x"),
    ],
)
def test_image_registry(image: str, registry: str) -> None:
    assert image_registry(image) == registry


def test_registry_allow_list_matches_whole_parts() -> None:
    manifest = parse_manifest(manifest_data(image="docker.io.evil.example/vllm/x:1"))
    assert broken_rules(manifest, ManifestRules(registries=("docker.io",)))
    assert not broken_rules(parse_manifest(manifest_data()), ManifestRules(registries=("docker.io/vllm",)))
    assert broken_rules(parse_manifest(manifest_data()), ManifestRules(registries=("docker.io/vll",)))
    assert broken_rules(parse_manifest(manifest_data()), ManifestRules(registries=()))


@pytest.mark.parametrize(
    "args",
    [
        ["--trust-remote-code"],
        ["--trust_remote_code=true"],
        ["--trust-rem"],
        ["serve x --trust-remote-code --port=1"],
    ],
)
def test_remote_code_is_refused_unless_allowed(args: list[str]) -> None:
    data = manifest_data()
    data["spec"]["engines"][0]["template"]["spec"]["containers"][0]["args"] = args
    manifest = parse_manifest(data)
    (error,) = broken_rules(manifest, ManifestRules())
    assert error.pointer.endswith("/containers/0/args/0")
    assert "ask a platform-admin" in error.detail
    assert not broken_rules(manifest, ManifestRules(allow_remote_code=True))


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 100) | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "role", "count", "cel", "memory", "spec", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_stands_anywhere_is_a_manifest_or_a_list_of_faults(data: st.DataObject) -> None:
    manifest = parse_manifest(NESTED)
    document = to_data(manifest)
    spot = data.draw(st.sampled_from(sorted(_paths(document), key=str)))
    node: Any = document
    for key in spot[:-1]:
        node = node[key]
    node[spot[-1]] = data.draw(_json)
    result: Manifest | ManifestInvalid
    try:
        result = parse_manifest(document)
    except ManifestInvalid as error:
        result = error
    if isinstance(result, ManifestInvalid):
        assert result.errors
        assert all(fault.detail.endswith(".") for fault in result.errors)
    else:
        assert parse_manifest(to_yaml(result)) == result


def _paths(node: Any, path: tuple[Any, ...] = ()) -> set[tuple[Any, ...]]:
    out = {path} if path else set()
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        out |= _paths(value, (*path, key))
    return out
