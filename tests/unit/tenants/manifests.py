"""Manifests used by several tests."""

from __future__ import annotations

from typing import Any

FLAT = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: qwen3-8b, namespace: ml-team}
spec:
  replicas: 2
  engines:
  - name: qwen-engine
    members: [{role: Standalone}]
    nodeSelector:
      devices:
      - name: gpu
        count: 1
        selectors: [{cel: 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0'}]
    template:
      spec:
        containers:
        - {name: engine, image: "vllm/vllm-openai:v0.23.0", args: ["--model=Qwen/Qwen3-8B", "--served-model-name=qwen"]}
"""

NESTED = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata:
  name: qwen3-8b
  namespace: ml-team
spec:
  replicas: 2
  template:
    spec:
      engines:
      - name: qwen-engine
        members:
        - role: Standalone
          nodeSelector:
            devices:
            - name: gpu
              count: 1
              selectors:
              - cel: |
                  device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0
          template:
            spec:
              containers:
              - name: engine
                image: vllm/vllm-openai:v0.23.0
                args: ["--model=Qwen/Qwen3-8B", "--served-model-name=qwen"]
"""

ANY_GPU = 'device.driver == "gpu.nvidia.com"'


def manifest_data(
    name: str = "qwen3-8b",
    *,
    tenant: str = "",
    replicas: int = 1,
    count: int = 1,
    cel: str = ANY_GPU,
    share: dict[str, Any] | None = None,
    image: str = "vllm/vllm-openai:v0.23.0",
    **spec: Any,
) -> dict[str, Any]:
    """A flat manifest as data; ``spec`` adds or replaces fields of the spec. It names no tenant unless one is given."""
    device: dict[str, Any] = {"name": "gpu", "count": count, "selectors": [{"cel": cel}]}
    if share is not None:
        device["share"] = share
    engine = {
        "name": "engine",
        "nodeSelector": {"devices": [device]},
        "template": {"spec": {"containers": [{"name": "engine", "image": image, "args": ["--model=Qwen/Qwen3-8B"]}]}},
    }
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name} | ({"namespace": tenant} if tenant else {}),
        "spec": {"replicas": replicas, "engines": [engine], **spec},
    }
