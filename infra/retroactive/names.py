"""Names as kube-state-metrics writes them, and back: it replaces everything but letters, digits and ``_`` by ``_``
(internal/store/utils.go, SanitizeLabelName)."""

from __future__ import annotations

import re

from infra.pod_devices import GPU, GPU_CORES, GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_SHARED, MIG_PREFIX

GPU_RESOURCES = "nvidia_com_.+"
"""Regular expression of the resources that are looked for: those of other vendors are not metered."""
_PLAIN = {
    re.sub(r"[^A-Za-z0-9_]", "_", name): name
    for name in (GPU, GPU_SHARED, GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_CORES, "cpu", "memory")
}
_MIG = re.compile(r"nvidia_com_mig_(?P<compute>\d+[cg](?:_\d+g)?)_(?P<memory>\d+gb)(?P<more>(?:_[a-z]+)*)")

_NODE_LABELS = {
    "label_" + re.sub(r"[^A-Za-z0-9_]", "_", name): name
    for name in (
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.memory",
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.replicas",
        "nvidia.com/gpu.family",
        "nvidia.com/gpu.compute.major",
        "nvidia.com/gpu.compute.minor",
        "nvidia.com/mig.strategy",
    )
}


def resource_of(text: str) -> str:
    """``nvidia.com/mig-1g.10gb`` of ``nvidia_com_mig_1g_10gb``; "" for a resource that is not read."""
    if text in _PLAIN:
        return _PLAIN[text]
    match = _MIG.fullmatch(text)
    if match is None:
        return ""
    parts = [match["compute"].replace("_", "."), match["memory"], *match["more"].split("_")]
    return MIG_PREFIX + ".".join(part for part in parts if part)


def node_labels_of(labels: dict[str, str]) -> dict[str, str]:
    """The node labels of GPU feature discovery among the labels of ``kube_node_labels``, under their own names."""
    return {name: labels[key] for key, name in _NODE_LABELS.items() if labels.get(key)}
