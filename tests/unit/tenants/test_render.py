"""Rendering: the objects of a replica, compared with golden files (``AIF_GOLDEN=write`` writes them anew)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml

from infra.placement.model import ClaimKind, DeviceGrant, EnginePlacement, Placement, PodPlacement, Role, Sharing
from tenants.manifest import parse_manifest
from tenants.placements import placement_from_json, placement_to_json
from tenants.render import ReplicaFacts, engine_url, render_replica
from tests.unit.tenants.manifests import FLAT, manifest_data

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "golden"
H100 = "nvidia-h100-80gb-hbm3"


def grant(count: int = 1, **rest: Any) -> DeviceGrant:
    return DeviceGrant("gpu", "gpu", H100, count, rest.pop("millionths", count * 1_000_000), **rest)


def place(engine: str, sharing: Sharing, *pods: PodPlacement) -> Placement:
    return Placement(0, "north", (EnginePlacement(engine, "pool-a", sharing, pods),))


def facts(manifest: str | dict[str, Any], placement: Placement) -> ReplicaFacts:
    return ReplicaFacts(
        tenant_id=UUID(int=1),
        namespace="t-ml-team",
        deployment_id=UUID(int=2),
        deployment_name="qwen3-8b",
        replica_id=UUID(int=3),
        index=0,
        manifest=parse_manifest(manifest),
        placement=placement,
    )


def pod(node: str, *grants: DeviceGrant, copy: int = 0, role: Role = Role.STANDALONE, ordinal: int = 0) -> PodPlacement:
    return PodPlacement(role, copy, ordinal, node, grants)


def gang() -> dict[str, Any]:
    data = manifest_data("coder", count=8)
    engine = data["spec"]["engines"][0]
    template = engine.pop("template")
    engine["members"] = [
        {"role": "Leader", "template": template},
        {"role": "Worker", "worker": {"nodes": 2}, "template": template},
    ]
    return data


def everything() -> dict[str, Any]:
    data = manifest_data(share={"profile": "1g.10gb"})
    data["spec"]["template"] = {
        "metadata": {"labels": {"stage": "prod"}},
        "spec": {"engines": data["spec"].pop("engines")},
    }
    template = data["spec"]["template"]["spec"]["engines"][0]["template"]
    template["metadata"] = {"labels": {"line": "a"}, "annotations": {"note.example.com/x": "y"}}
    template["spec"]["imagePullSecrets"] = [{"name": "registry-login"}]
    template["spec"]["containers"][0] |= {
        "command": ["vllm", "serve"],
        "env": [
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token", "optional": True}}},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "PLAIN", "value": "1"},
        ],
        "resources": {"requests": {"cpu": "1500m"}, "limits": {"memory": "12Gi"}},
    }
    template["spec"]["containers"].append({"name": "exporter", "image": "ghcr.io/example/exporter:1"})
    return data


CASES: dict[str, ReplicaFacts] = {
    "whole": facts(FLAT, place("qwen-engine", Sharing.WHOLE, pod("node-1", grant()))),
    "hami": facts(
        manifest_data(share={"memory": "20Gi", "cores": 25}),
        place(
            "engine",
            Sharing.HAMI,
            pod("node-2", grant(cards=("GPU-aa",), memory_mib=20480, cores=25, millionths=251_106)),
        ),
    ),
    "mig": facts(
        everything(),
        place("engine", Sharing.MIG, pod("node-3", grant(profile="1g.10gb", millionths=142_857))),
    ),
    "claimed": facts(
        manifest_data(count=2),
        place("engine", Sharing.WHOLE, pod("node-4", grant(2, claim=ClaimKind.DRA, device_class="gpu.nvidia.com"))),
    ),
    "gang": facts(
        gang(),
        place(
            "engine",
            Sharing.WHOLE,
            pod("node-1", grant(8), role=Role.LEADER),
            pod("node-2", grant(8), role=Role.WORKER),
            pod("node-3", grant(8), role=Role.WORKER, ordinal=1),
        ),
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_golden(name: str) -> None:
    text = yaml.safe_dump_all(render_replica(CASES[name]), sort_keys=True, width=110)
    path = GOLDEN / f"replica-{name}.yaml"
    if os.environ.get("AIF_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", sorted(CASES))
def test_pods_keep_to_the_baseline_and_to_their_nodes(name: str) -> None:
    case = CASES[name]
    for template in templates(render_replica(case)):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert all("hostPath" not in volume for volume in spec["volumes"])
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        nodes = [term["matchFields"][0]["values"] for term in terms]
        assert all(len(values) == 1 and values[0] in case.placement.nodes for values in nodes)


def templates(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for one in objects:
        if one["kind"] == "Deployment":
            out.append(one["spec"]["template"])
        elif one["kind"] == "LeaderWorkerSet":
            inner = one["spec"]["leaderWorkerTemplate"]
            out += [inner["leaderTemplate"], inner["workerTemplate"]]
    return out


def test_copies_with_different_pins_do_not_share_a_deployment() -> None:
    data = manifest_data()
    data["spec"]["engines"][0]["copies"] = 4
    pods = [pod("a", grant(), copy=0), pod("b", grant(), copy=1), pod("a", grant(), copy=2), pod("a", grant(), copy=3)]
    deployments = [
        one for one in render_replica(facts(data, place("engine", Sharing.WHOLE, *pods))) if one["kind"] == "Deployment"
    ]
    assert [one["spec"]["replicas"] for one in deployments] == [3, 1]
    assert len({one["metadata"]["name"] for one in deployments}) == 2
    for one in deployments:
        selector = one["spec"]["selector"]["matchLabels"]
        assert selector.items() <= one["spec"]["template"]["metadata"]["labels"].items()


def test_rolling_update_needs_no_further_card() -> None:
    deployment = render_replica(CASES["whole"])[1]
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_slices_are_called_as_their_node_calls_them() -> None:
    case = replace(CASES["mig"], plain_slices=frozenset({"node-3"}))
    limits = templates(render_replica(case))[0]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"memory": "12Gi", "nvidia.com/gpu": "1"}


def test_users_labels_never_replace_ours() -> None:
    case = CASES["mig"]
    labels = templates(render_replica(case))[0]["metadata"]["labels"]
    assert labels["stage"] == "prod"
    assert labels["line"] == "a"
    assert labels.items() >= case.labels.items()


def test_longest_names_stay_under_the_limits() -> None:
    data = manifest_data("q" * 63)
    data["spec"]["engines"][0]["name"] = "e" * 63
    case = facts(data, place("e" * 63, Sharing.WHOLE, pod("node-1", grant())))
    for one in render_replica(case):
        assert len(one["metadata"]["name"]) <= 40
        assert all(len(value) <= 63 for value in one["metadata"]["labels"].values())
    assert engine_url(case, "e" * 63).endswith(".t-ml-team.svc:8000")


def test_an_engine_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no placement"):
        render_replica(facts(FLAT, place("another", Sharing.WHOLE, pod("node-1", grant()))))


@pytest.mark.parametrize("name", sorted(CASES))
def test_placements_survive_storing(name: str) -> None:
    placement = CASES[name].placement
    assert placement_from_json(yaml.safe_load(yaml.safe_dump(_plain(placement_to_json(placement))))) == placement


def _plain(value: Any) -> Any:
    """As a JSON column gives it back: no tuples, no enums."""
    import json

    return json.loads(json.dumps(value))
