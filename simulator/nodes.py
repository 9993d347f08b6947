"""Node objects of a fleet, as kubelet, GPU feature discovery and HAMi's device plugin would write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from simulator.fleet import ClusterSpec, Pool, uuid_from
from simulator.kinds import Obj
from simulator.objects import rfc3339


@dataclass(frozen=True)
class Card:
    """One physical card in a node. `instances` are the MIG instance ids, if it is cut."""

    node: str
    index: int
    uuid: str
    bus: str
    pool: Pool
    instances: tuple[int, ...] = ()


def node_names(spec: ClusterSpec, pool: Pool) -> Iterator[str]:
    """The names of a pool's nodes."""
    for index in range(pool.nodes):
        yield f"{spec.name}-{pool.name}-{index:04d}"


def cards(seed: str, spec: ClusterSpec, pool: Pool, node: str) -> list[Card]:
    """The cards of a node; the same UUIDs at each start."""
    if pool.gpu is None:
        return []
    out = []
    for index in range(pool.gpu.count):
        uuid = "GPU-" + uuid_from(seed, spec.name, node, str(index))
        instances = tuple(range(7, 7 + pool.mig.per_card)) if pool.mode == "mig" else ()
        out.append(Card(node, index, uuid, f"00000000:{0x10 + index * 0x11:02X}:00.0", pool, instances))
    return out


def hami_register(node_cards: list[Card], healthy: set[str]) -> str:
    """The value of `hami.io/node-nvidia-register` (HAMi pkg/device/nvidia: JSON, zero values left out)."""
    rows = []
    for card in node_cards:
        gpu = card.pool.gpu
        assert gpu
        row: Obj = {
            "id": card.uuid,
            "index": card.index,
            "count": card.pool.split,
            "devmem": gpu.memory,
            "devcore": 100,
            "type": f"NVIDIA-{gpu.model}",
            "numa": card.index * 2 // gpu.count,
            "mode": "hami-core",
            "health": card.uuid in healthy,
        }
        rows.append({key: value for key, value in row.items() if value})
    return json.dumps(rows, separators=(",", ":"))


def resources(pool: Pool, lost: int = 0) -> dict[str, str]:
    """Allocatable (or with lost=0 capacity) of a node of the pool, with so many cards fallen off."""
    out = {"cpu": pool.cpu, "ephemeral-storage": "3840Gi", "memory": pool.memory, "pods": str(pool.pods)}
    if pool.gpu is not None:
        count = pool.gpu.count - lost
        if pool.mode == "mig":
            out["nvidia.com/gpu"] = "0"
            out[f"nvidia.com/mig-{pool.mig.profile}"] = str(count * pool.mig.per_card)
        else:
            out["nvidia.com/gpu"] = str(count * (pool.split if pool.mode == "hami" else 1))
    return out


def _labels(spec: ClusterSpec, pool: Pool, name: str) -> dict[str, str]:
    out = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": pool.instance_type or pool.name,
        "topology.kubernetes.io/region": spec.site or spec.name,
        "topology.kubernetes.io/zone": f"{spec.site or spec.name}-1",
        "aifactory.dev/pool": pool.name,
    }
    gpu = pool.gpu
    if gpu is None:
        return {**out, **pool.labels}
    major, minor = gpu.compute.split(".")
    out |= {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": gpu.product,
        "nvidia.com/gpu.count": str(gpu.count),
        "nvidia.com/gpu.memory": str(gpu.memory),
        "nvidia.com/gpu.family": gpu.family,
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.machine": pool.instance_type or pool.name,
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/cuda.driver-version.full": "570.148.08",
        "nvidia.com/cuda.driver-version.major": "570",
        "nvidia.com/cuda.driver-version.minor": "148",
        "nvidia.com/cuda.runtime-version.full": "12.8",
        "nvidia.com/mig.capable": "true" if gpu.family in ("ampere", "hopper", "blackwell") else "false",
        "nvidia.com/mig.strategy": "mixed" if pool.mode == "mig" else "single",
    }
    if pool.mode == "mig":
        resource = f"nvidia.com/mig-{pool.mig.profile}"
        out |= {
            f"{resource}.count": str(gpu.count * pool.mig.per_card),
            f"{resource}.memory": str(pool.mig.memory),
            f"{resource}.product": f"{gpu.product}-MIG-{pool.mig.profile}",
            "nvidia.com/mig.config": f"all-{pool.mig.profile}",
            "nvidia.com/mig.config.state": "success",
        }
    if pool.mode == "hami":
        out["gpu"] = "on"
    return {**out, **pool.labels}


def node_object(spec: ClusterSpec, pool: Pool, name: str, number: int, node_cards: list[Card], now: float) -> Obj:
    """The Node as it registers itself; the cluster number makes its address."""
    annotations = {"node.alpha.kubernetes.io/ttl": "0"}
    if pool.mode == "hami":
        annotations["hami.io/node-nvidia-register"] = hami_register(node_cards, {c.uuid for c in node_cards})
        annotations["hami.io/node-handshake"] = handshake(now)
    address = f"10.1.{number // 250}.{number % 250 + 1}"
    node: Obj = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": _labels(spec, pool, name), "annotations": annotations},
        "spec": {"podCIDR": f"10.244.{number % 250}.0/24", "providerID": f"sim://{spec.name}/{name}"},
        "status": {
            "capacity": resources(pool),
            "allocatable": resources(pool),
            "conditions": conditions(now, "True", "KubeletReady", "kubelet is posting ready status"),
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": uuid_from("machine", spec.name, name).replace("-", ""),
                "systemUUID": uuid_from("system", spec.name, name),
                "bootID": uuid_from("boot", spec.name, name),
                "kernelVersion": "6.8.0-60-generic",
                "osImage": "Ubuntu 24.04.3 LTS",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": spec.version,
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }
    if pool.taints:
        node["spec"]["taints"] = [dict(taint) for taint in pool.taints]
    return node


def handshake(now: float) -> str:
    """The value of `hami.io/node-handshake`."""
    return "Reported_" + rfc3339(now).replace("T", " ").rstrip("Z")


def conditions(now: float, ready: str, reason: str, message: str) -> list[Obj]:
    """The node's conditions with the given Ready."""
    unknown = ready == "Unknown"
    rows = []
    for kind, good, fine in (
        ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ):
        rows.append(
            _condition(kind, "Unknown", reason, message, now) if unknown else _condition(kind, "False", good, fine, now)
        )
    return [*rows, _condition("Ready", ready, reason, message, now)]


def _condition(kind: str, value: str, reason: str, message: str, now: float) -> Obj:
    return {
        "type": kind,
        "status": value,
        "lastHeartbeatTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
        "reason": reason,
        "message": message,
    }
