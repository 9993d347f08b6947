"""What the exporters tell of pods on fake nodes."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.exporter import state
from controlplane.exporter.mirror import FOLLOWED, Mirror
from controlplane.exporter.server import cards_held, serve
from controlplane.fleets import DEFAULT_FLEET, chosen
from simulator import metrics
from simulator.fleet import FleetError, load
from simulator.nodes import cards, node_names, node_object

CREATED = "2026-11-01T10:00:00Z"
STARTED = "2026-11-01T10:00:05Z"
STARTED_AT = 1793527205


def mirror_of(cluster: str) -> Mirror:
    """A cluster of the demonstration with its nodes and nothing on them."""
    fleet = chosen(load(DEFAULT_FLEET), (cluster,))
    spec = fleet.clusters[0]
    mirror = Mirror(spec, fleet.seed, clock=lambda: float(STARTED_AT + 60))
    for what in FOLLOWED:
        mirror.replace(what, [])
    for pool in spec.pools:
        for name in node_names(spec, pool):
            node = node_object(spec, pool, name, 0, cards(fleet.seed, spec, pool, name), STARTED_AT)
            node["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": CREATED}
            mirror.put("nodes", node)
    return mirror


def pod(name: str, node: str, phase: str = "Running", **limits: str) -> dict[str, Any]:
    asked = dict(limits)
    return {
        "metadata": {
            "name": name, "namespace": "team-a", "uid": f"uid-{name}", "creationTimestamp": CREATED,
            "labels": {"app.kubernetes.io/name": 'a "b"'},
            "ownerReferences": [{"kind": "Job", "name": "train", "uid": "j", "controller": True}],
            "annotations": {"sim.aifactory.dev/gpu-util": "50"},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "x:1", "resources": {"limits": asked, "requests": asked}}],
        },
        "status": {
            "phase": phase, "startTime": CREATED,
            "containerStatuses": [
                {"name": "main", "image": "x:1", "restartCount": 0, "ready": True, "lastState": {},
                 "state": {"running": {"startedAt": STARTED}}}
            ],
        },
    }  # fmt: skip


NODE = "gpu-fra-1-h100-0000"


def lines(text: str, name: str, **labels: str) -> list[str]:
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return [one for one in text.splitlines() if one.startswith(f"{name}{{") and all(each in one for each in wanted)]


def dcgm(mirror: Mirror) -> str:
    return metrics.text(mirror, mirror.meter, metrics.exporting(mirror))


def test_each_pod_holds_cards_of_its_own_until_it_ends() -> None:
    mirror = mirror_of("gpu-fra-1")
    mirror.put("pods", pod("a", NODE, **{"nvidia.com/gpu": "2"}))
    mirror.put("pods", pod("b", NODE, **{"nvidia.com/gpu": "1"}))
    held = {row["uuid"]: row["pod"] for row in cards_held(mirror)}
    assert sorted(held.values()) == ["a", "a", "b"]
    of_a = [uuid for uuid, name in held.items() if name == "a"]
    text = dcgm(mirror)
    for uuid in of_a:
        (line,) = lines(text, "DCGM_FI_DEV_GPU_UTIL", UUID=uuid, Hostname=NODE, namespace="team-a", container="main")
        assert line.endswith(" 50")
    mirror.put("pods", pod("a", NODE, "Succeeded", **{"nvidia.com/gpu": "2"}))
    assert {row["pod"] for row in cards_held(mirror)} == {"b"}
    mirror.put("pods", pod("c", NODE, **{"nvidia.com/gpu": "2"}))
    assert {row["uuid"] for row in cards_held(mirror) if row["pod"] == "c"} == set(of_a)
    mirror.drop("pods", pod("c", NODE))
    assert {row["pod"] for row in cards_held(mirror)} == {"b"}
    assert len(lines(dcgm(mirror), "DCGM_FI_DEV_GPU_UTIL", Hostname=NODE)) == 8, "free cards are told of, without a pod"


def test_pods_that_are_listed_before_their_node_hold_cards_once_it_is_known() -> None:
    full = mirror_of("gpu-fra-1")
    nodes = list(full.objects["nodes"].values())
    mirror = Mirror(full.spec, full.seed)
    mirror.replace("pods", [pod("a", NODE, **{"nvidia.com/gpu": "1"})])
    assert cards_held(mirror) == []
    mirror.replace("nodes", nodes)
    assert [row["pod"] for row in cards_held(mirror)] == ["a"]
    mirror.replace("pods", [])
    assert cards_held(mirror) == []


def test_mig_instances_are_held_one_by_one() -> None:
    mirror = mirror_of("gpu-hel-1")
    node = "gpu-hel-1-h100-mig-0000"
    mirror.put("pods", pod("a", node, **{"nvidia.com/mig-1g.10gb": "2"}))
    first, second = cards_held(mirror)
    assert first["uuid"] == second["uuid"]
    assert first["instance"] != second["instance"]
    text = dcgm(mirror)
    assert len(lines(text, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", pod="a", GPU_I_PROFILE="1g.10gb")) == 2
    assert not lines(text, "DCGM_FI_DEV_GPU_UTIL", Hostname=node), "there is no such figure for an instance"


def test_a_node_that_somebody_made_has_the_cards_of_its_labels() -> None:
    mirror = mirror_of("gpu-fra-1")
    labels = {"nvidia.com/gpu.product": "NVIDIA-T4", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "15360"}
    node = {"metadata": {"name": "own", "uid": "u", "creationTimestamp": CREATED, "labels": labels}}
    mirror.put("nodes", node)
    mirror.put("pods", pod("a", "own", **{"nvidia.com/gpu": "1"}))
    assert [row["node"] for row in cards_held(mirror)] == ["own"]
    assert len(lines(dcgm(mirror), "DCGM_FI_DEV_FB_USED", Hostname="own", modelName="NVIDIA T4")) == 2


def test_kube_state_tells_who_asked_for_what_and_since_when() -> None:
    mirror = mirror_of("gpu-fra-1")
    mirror.put("pods", pod("a", NODE, **{"nvidia.com/gpu": "2", "memory": "1Gi"}))
    text = state.text(mirror)
    who = {"namespace": "team-a", "pod": "a", "uid": "uid-a"}
    (line,) = lines(text, "kube_pod_container_resource_requests", **who, resource="nvidia_com_gpu", unit="integer")
    assert line.endswith(" 2")
    (line,) = lines(text, "kube_pod_container_resource_limits", **who, resource="memory", unit="byte")
    assert line.endswith(" 1073741824")
    (line,) = lines(text, "kube_pod_container_state_started", **who, container="main")
    assert line.endswith(f" {STARTED_AT}")
    assert lines(text, "kube_pod_info", **who, node=NODE, created_by_kind="Job", created_by_name="train")
    assert lines(text, "kube_pod_owner", **who, owner_kind="Job", owner_is_controller="true")
    assert [one[-1] for one in lines(text, "kube_pod_status_phase", **who, phase="Running")] == ["1"]
    assert sum(int(one[-1]) for one in lines(text, "kube_pod_status_phase", **who)) == 1
    assert lines(text, "kube_pod_labels", label_app_kubernetes_io_name='a \\"b\\"')
    (line,) = lines(text, "kube_node_status_allocatable", node=NODE, resource="nvidia_com_gpu")
    assert line.endswith(" 8")
    assert lines(text, "kube_node_labels", node=NODE, label_nvidia_com_gpu_product="NVIDIA-H100-80GB-HBM3")


@pytest.fixture
def served() -> Iterator[tuple[Mirror, str]]:
    """The exporters' pages over HTTP."""
    mirror = mirror_of("gpu-fra-1")
    mirror.put("pods", pod("a", NODE, **{"nvidia.com/gpu": "1"}))
    server = serve(mirror, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield mirror, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def ask(url: str, body: Any = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=10) as answer:  # noqa: S310  # our own
        return str(answer.read().decode())


def test_faults_are_ordered_over_http(served: tuple[Mirror, str]) -> None:
    _, url = served
    (row,) = json.loads(ask(f"{url}/cards"))
    assert lines(ask(f"{url}/metrics/dcgm?node={NODE}"), "DCGM_FI_DEV_XID_ERRORS", UUID=row["uuid"], pod="a")
    ask(f"{url}/cards/{row['uuid']}/xid", {"xid": 79})
    (line,) = lines(ask(f"{url}/metrics/dcgm"), "DCGM_FI_DEV_XID_ERRORS", UUID=row["uuid"])
    assert line.endswith(" 79")
    ask(f"{url}/nodes/{NODE}/unmapped", {})
    assert not lines(ask(f"{url}/metrics/dcgm"), "DCGM_FI_DEV_GPU_UTIL", pod="a")
    ask(f"{url}/nodes/{NODE}/mapped", {})
    assert lines(ask(f"{url}/metrics/dcgm"), "DCGM_FI_DEV_GPU_UTIL", pod="a")
    ask(f"{url}/nodes/{NODE}/silent", {})
    assert not lines(ask(f"{url}/metrics/dcgm"), "DCGM_FI_DEV_GPU_UTIL", Hostname=NODE)
    ask(f"{url}/nodes/{NODE}/heard", {})
    assert lines(ask(f"{url}/metrics/dcgm"), "DCGM_FI_DEV_GPU_UTIL", Hostname=NODE)
    assert "kube_pod_info" in ask(f"{url}/metrics/kube-state")
    assert json.loads(ask(f"{url}/healthz")) == {"not read yet": []}
    for path, body in (("nodes/none/silent", {}), ("cards/x/xid", {"xid": "79"}), ("nothing", {})):
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(f"{url}/{path}", body)
        assert caught.value.code == 400
        assert json.loads(caught.value.read())["error"]


def test_before_all_is_read_it_is_not_healthy() -> None:
    full = mirror_of("gpu-fra-1")
    mirror = Mirror(full.spec, full.seed)
    mirror.replace("pods", [])
    server = serve(mirror, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(f"http://127.0.0.1:{server.server_address[1]}/healthz")
        assert caught.value.code == 503
        assert "nodes" in json.loads(caught.value.read())["not read yet"]
    finally:
        server.shutdown()
        server.server_close()


def test_a_cluster_that_the_fleet_lacks_is_named() -> None:
    with pytest.raises(FleetError, match="no cluster nowhere; it has gpu-fra-1"):
        chosen(load(DEFAULT_FLEET), ("nowhere",))
