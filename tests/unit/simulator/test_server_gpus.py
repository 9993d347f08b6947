"""Cards: how nodes show them, HAMi and MIG, dcgm-exporter's text, OpenCost, broken nodes, cards that fall off."""

from __future__ import annotations

import json
import re
from typing import Any

from simulator.controllers.hami import ALLOCATED, parse_allocated
from tests.support.simulator import SimulatorProcess
from tests.unit.simulator.conftest import Client, pod, recorded, wait_for
from tests.unit.simulator.test_server_objects import ready

EXPORTER = "/api/v1/namespaces/gpu-operator/services/nvidia-dcgm-exporter:9400/proxy/metrics"
OPENCOST = "/api/v1/namespaces/opencost/services/opencost:9003/proxy"
_SAMPLE = re.compile(r"^(\w+)\{(.*)\} ([-0-9.e+]+)$")


def samples(client: Client, path: str = EXPORTER) -> list[tuple[str, dict[str, str], float]]:
    """(metric, labels, value) of each line of the exposition."""
    code, text = client.cluster.call("GET", path)
    assert code == 200, text
    rows = []
    for line in text.splitlines():
        if not line.startswith("#"):
            found = _SAMPLE.match(line)
            assert found, line
            labels = dict(re.findall(r'(\w+)="([^"]*)"', found.group(2)))
            rows.append((found.group(1), labels, float(found.group(3))))
    return rows


def nodes(client: Client, pool: str) -> list[Any]:
    path = f"/api/v1/nodes?labelSelector=aifactory.dev/pool={pool}"
    return list(client.cluster.call("GET", path)[1]["items"])


def test_nodes_show_their_cards(whole: Client, shared: Client, sliced: Client) -> None:
    (first, *others) = nodes(whole, "h100")
    assert len(others) == 5
    assert first["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    labels = first["metadata"]["labels"]
    real = next(n for n in recorded("nodes.json")["items"] if n["metadata"]["name"] == "whole-0000")
    for key in ("nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.memory", "nvidia.com/gpu.present"):
        assert labels[key] == real["metadata"]["labels"][key]
    assert labels["topology.kubernetes.io/region"] == "frankfurt"
    hami = nodes(shared, "a100-shared")[0]
    assert hami["status"]["allocatable"]["nvidia.com/gpu"] == "80"
    real = next(n for n in recorded("nodes.json")["items"] if n["metadata"]["name"] == "hami-0000")
    ours, theirs = (json.loads(n["metadata"]["annotations"]["hami.io/node-nvidia-register"]) for n in (hami, real))
    assert len(ours) == len(theirs) == 8
    for row, other in zip(ours, theirs, strict=True):
        # HAMi leaves zero values out, the recorded stand-in wrote them
        assert {**row, "id": ""} == {key: value for key, value in {**other, "id": ""}.items() if value or key == "id"}
    assert hami["metadata"]["annotations"]["hami.io/node-handshake"].startswith("Reported_")
    mig = nodes(sliced, "h100-mig")[0]
    allocatable = mig["status"]["allocatable"]
    assert (allocatable["nvidia.com/gpu"], allocatable["nvidia.com/mig-1g.10gb"]) == ("0", "56")
    assert mig["metadata"]["labels"]["nvidia.com/mig.strategy"] == "mixed"


def test_whole_cards_in_the_exporters_text(whole: Client) -> None:
    ns = whole.namespace()
    whole.pods.create(body=pod("train", 2, annotations={"sim.aifactory.dev/gpu-util": "80"}), namespace=ns)
    wait_for(lambda: ready(whole.pod(ns, "train")), "the pod")
    rows = samples(whole)
    mine = [(m, labels, v) for m, labels, v in rows if labels.get("namespace") == ns]
    utils = [v for m, _, v in mine if m == "DCGM_FI_DEV_GPU_UTIL"]
    assert utils == [80, 80]
    ratios = [v for m, _, v in mine if m == "DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
    assert ratios == [0.8, 0.8]
    assert {(labels["pod"], labels["container"]) for _, labels, _ in mine} == {("train", "main")}
    node = whole.pod(ns, "train")["spec"]["nodeName"]
    assert {labels["Hostname"] for _, labels, _ in mine} == {node}
    uuids = {labels["UUID"] for _, labels, _ in mine}
    assert len(uuids) == 2
    free = [labels for _, labels, _ in rows if labels["UUID"] not in uuids and "pod" not in labels]
    assert free  # a card that nobody holds carries no pod labels at all
    (used,), (left,) = (
        {v for m, labels, v in mine if m == name and labels["UUID"] == min(uuids)}
        for name in ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE")
    )
    assert used + left == 81559


def test_energy_only_grows(whole: Client) -> None:
    def energy() -> dict[str, float]:
        rows = samples(whole)
        return {labels["UUID"]: v for m, labels, v in rows if m == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}

    first = energy()
    second = wait_for(lambda: now if (now := energy()) != first else {}, "a later reading")
    assert set(first) == set(second)
    assert all(second[uuid] >= value for uuid, value in first.items())


def test_a_pod_of_the_exporter_answers_for_its_node(whole: Client) -> None:
    (exporter, *_) = wait_for(
        lambda: [p for p in whole.pods_in("gpu-operator") if p["status"]["phase"] == "Running"], "a pod of the exporter"
    )
    rows = samples(whole, f"/api/v1/namespaces/gpu-operator/pods/{exporter['metadata']['name']}:9400/proxy/metrics")
    assert {labels["Hostname"] for _, labels, _ in rows} == {exporter["spec"]["nodeName"]}


def test_shared_cards_carry_no_pod(shared: Client) -> None:
    def placed() -> list[Any]:
        rows = shared.pods_in("team-lab")
        return rows if len(rows) == 4 and all(ready(row) for row in rows) else []

    pods = wait_for(placed, "the notebooks")
    rows = samples(shared)
    by_card = {labels["UUID"]: v for m, labels, v in rows if m == "DCGM_FI_DEV_GPU_UTIL"}
    for found in pods:
        notes = found["metadata"]["annotations"]
        assert notes["hami.io/bind-phase"] == "success"
        assert notes["hami.io/vgpu-node"] == found["spec"]["nodeName"]
        for uuid, _, cores in parse_allocated(notes[ALLOCATED]):
            assert cores in (25, 30)
            assert by_card[uuid] > 0
    shared_nodes = {node["metadata"]["name"] for node in nodes(shared, "a100-shared")}
    assert not [labels for _, labels, _ in rows if labels["Hostname"] in shared_nodes and "pod" in labels]


def test_mig_instances_repeat_their_card(sliced: Client) -> None:
    ns = sliced.namespace()
    sliced.pods.create(body=pod("slice", limits={"nvidia.com/mig-1g.10gb": "2"}), namespace=ns)
    wait_for(lambda: ready(sliced.pod(ns, "slice")), "the pod")
    rows = samples(sliced)
    mine = [labels for m, labels, _ in rows if labels.get("namespace") == ns and m == "DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
    assert len(mine) == 2
    assert {labels["GPU_I_PROFILE"] for labels in mine} == {"1g.10gb"}
    assert len({(labels["UUID"], labels["GPU_I_ID"]) for labels in mine}) == 2
    assert not [1 for m, labels, _ in rows if "GPU_I_ID" in labels and m == "DCGM_FI_DEV_GPU_UTIL"]
    card = mine[0]["UUID"]
    watts = [v for m, labels, v in rows if m == "DCGM_FI_DEV_POWER_USAGE" and labels["UUID"] == card]
    assert len(watts) == 7
    assert len(set(watts)) == 1


def test_opencost_behind_the_proxy(whole: Client) -> None:
    code, body = whole.cluster.call("GET", f"{OPENCOST}/allocation/compute?window=1h&aggregate=namespace&resolution=1s")
    assert code == 200
    assert body["code"] == 200
    assert body["data"][0]["team-vision"]["gpuCount"] >= 1
    code, body = whole.cluster.call("GET", f"{OPENCOST}/assets?window=1h")
    assert code == 200
    assert {row["gpuCount"] for row in body["data"].values()} == {8.0, 1.0, 0.0}
    code, text = whole.cluster.call("GET", f"{OPENCOST}/allocation/compute?window=nonsense")
    assert code == 400
    first, _, rest = text.partition("\n")
    assert first == "Invalid 'window' parameter: illegal window: nonsense"
    assert json.loads(rest)["code"] == 500
    code, body = whole.cluster.call("GET", "/api/v1/namespaces/opencost/services/nothing:80/proxy/")
    assert code == 404


def test_a_lost_node(fresh_simulator: SimulatorProcess, tmp_path: Any) -> None:
    client = Client(fresh_simulator["gpu-fra-1"], tmp_path)
    ns = client.namespace()
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": ns},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod("x", 1)["spec"]},
        },
    }
    client.apply(body)
    (found,) = wait_for(lambda: [p for p in client.pods_in(ns) if ready(p)], "the pod")
    node, uid = found["spec"]["nodeName"], found["metadata"]["uid"]
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
    client.cluster.sim("POST", f"nodes/{node}/break", {"how": "lost"})

    def condition() -> Any:
        rows = client.cluster.call("GET", f"/api/v1/nodes/{node}")[1]["status"]["conditions"]
        return next(row for row in rows if row["type"] == "Ready")

    row = wait_for(lambda: (now := condition())["status"] == "Unknown" and now, "Ready to be Unknown")
    assert row["reason"] == "NodeStatusUnknown"
    renewed = client.cluster.call("GET", lease)[1]["spec"]["renewTime"]
    other = wait_for(lambda: [p for p in client.pods_in(ns) if ready(p)], "a pod in its place")
    assert other[0]["spec"]["nodeName"] != node
    old = next(p for p in client.pods_in(ns) if p["metadata"]["uid"] == uid)
    assert old["metadata"]["deletionTimestamp"]  # asked to go, but its kubelet does not answer
    assert "running" in old["status"]["containerStatuses"][0]["state"]
    assert client.cluster.call("GET", lease)[1]["spec"]["renewTime"] == renewed
    client.cluster.sim("POST", f"nodes/{node}/mend")
    wait_for(lambda: condition()["status"] == "True", "Ready to be True")
    wait_for(lambda: all(p["metadata"]["uid"] != uid for p in client.pods_in(ns)), "the old pod to go")


def test_a_card_that_falls_off(fresh_simulator: SimulatorProcess, tmp_path: Any) -> None:
    client = Client(fresh_simulator["gpu-fra-1"], tmp_path)
    node = nodes(client, "h100")[5]["metadata"]["name"]
    lost = client.cluster.sim("POST", f"nodes/{node}/drop-card", {"count": 2})["lost"]
    assert len(lost) == 2

    def allocatable() -> tuple[str, str]:
        status = client.cluster.call("GET", f"/api/v1/nodes/{node}")[1]["status"]
        return status["allocatable"]["nvidia.com/gpu"], status["capacity"]["nvidia.com/gpu"]

    wait_for(lambda: allocatable() == ("6", "8"), "allocatable to fall")
    assert not [labels for _, labels, _ in samples(client) if labels["UUID"] in lost]
    client.cluster.sim("POST", f"nodes/{node}/restore-cards")
    wait_for(lambda: allocatable() == ("8", "8"), "allocatable to rise")
    client.cluster.sim("POST", f"nodes/{node}/break", {"how": "notready"})

    def taints() -> list[str]:
        spec = client.cluster.call("GET", f"/api/v1/nodes/{node}")[1]["spec"]
        return [taint["key"] for taint in spec.get("taints") or []]

    wait_for(lambda: "node.kubernetes.io/not-ready" in taints(), "the taint")
    client.cluster.sim("POST", f"nodes/{node}/mend")
    wait_for(lambda: not taints(), "the taint to go")
