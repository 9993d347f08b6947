"""A HAMi node on a real control plane, and what HAMi's scheduler does with the pods that name it.

HAMi itself is not there: the node carries its register, and :func:`bind` writes the annotations and the binding that
its scheduler would (formats: HAMi docs/develop/protocol.md).
"""

from __future__ import annotations

import json
import time
from typing import Any

from tests.support.served import ServedCluster

PRODUCT = "NVIDIA-A100-SXM4-80GB"
MEMORY_MIB = 81920
REGISTER = "hami.io/node-nvidia-register"


def node_object(name: str, *, cards: int = 1, scale: int = 100) -> dict[str, Any]:
    """A ready node with A100 cards, ten pods to a card; ``scale``: percent of their memory that HAMi hands out."""
    register = [
        {
            "id": f"GPU-{name}-{number}", "index": number, "count": 10, "devmem": MEMORY_MIB * scale // 100,
            "devcore": 100, "type": PRODUCT, "mode": "hami-core", "health": True, "devicevendor": "NVIDIA",
        }
        for number in range(cards)
    ]  # fmt: skip
    resources = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": str(cards * 10)}
    resources |= {"ephemeral-storage": "1Ti"}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = {
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": PRODUCT, "gpu": "on",
                "nvidia.com/gpu.count": str(cards), "nvidia.com/gpu.memory": str(MEMORY_MIB),
                "nvidia.com/gpu.family": "ampere", "nvidia.com/gpu.replicas": "1",
                "nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "single",
            },
            "annotations": {"kwok.x-k8s.io/node": "fake", REGISTER: json.dumps(register)},
        },
        "status": {"capacity": resources, "allocatable": resources, "conditions": [ready]},
    }  # fmt: skip


def bind(cluster: ServedCluster, namespace: str) -> int:
    """Bind the namespace's pods that wait for HAMi's scheduler to the cards that they name; how many those were."""
    done = 0
    for pod in cluster.call("GET", f"/api/v1/namespaces/{namespace}/pods")[1].get("items", []):
        spec, metadata = pod["spec"], pod["metadata"]
        if spec.get("schedulerName") != "hami-scheduler" or spec.get("nodeName") or metadata.get("deletionTimestamp"):
            continue
        limits = next(one["resources"]["limits"] for one in spec["containers"] if "limits" in one["resources"])
        cards = metadata["annotations"]["nvidia.com/use-gpuuuid"].split(",")[: int(limits["nvidia.com/gpu"])]
        memory, cores = _whole(limits["nvidia.com/gpumem"]), limits.get("nvidia.com/gpucores", "0")
        record = "".join(f"{card},NVIDIA,{memory},{cores}:" for card in cards) + ";"
        node = cards[0].removeprefix("GPU-").rpartition("-")[0]
        path = f"/api/v1/namespaces/{namespace}/pods/{metadata['name']}"
        said = {"hami.io/vgpu-node": node, "hami.io/vgpu-devices-allocated": record, "hami.io/bind-phase": "success"}
        patched, _ = cluster.call(
            "PATCH", path, {"metadata": {"annotations": said}}, media="application/merge-patch+json"
        )
        binding = {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": metadata["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }  # fmt: skip
        bound, _ = cluster.call("POST", f"{path}/binding", binding)
        done += patched == 200 and bound == 201
    return done


def _whole(quantity: str) -> str:
    """The API server writes 20000 as 20k."""
    return quantity.removesuffix("k") + "000" if quantity.endswith("k") else quantity
