"""From a :class:`~tenants.manifest.tree.Manifest` back to plain data and text, in Modelplane's own shape.

The order of keys is fixed and defaults are left out, so equal manifests give equal bytes; parsing the result gives
the same manifest again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from tenants.manifest.parsing import API_VERSION, KIND, parse_manifest
from tenants.manifest.tree import Container, DeviceAsk, Engine, EnvVar, Manifest, Member, ServingMode, Template


def to_data(manifest: Manifest) -> dict[str, Any]:
    """The whole manifest as plain data (JSON-compatible)."""
    metadata: dict[str, Any] = {"name": manifest.name}
    if manifest.namespace:
        metadata["namespace"] = manifest.namespace
    if manifest.labels:
        metadata["labels"] = dict(manifest.labels)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": to_spec(manifest)}


def to_yaml(manifest: Manifest) -> str:
    """The manifest as YAML; long texts as blocks."""
    return yaml.dump(to_data(manifest), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def to_spec(manifest: Manifest) -> dict[str, Any]:
    """``spec`` alone: what is stored."""
    body: dict[str, Any] = {}
    if manifest.cluster_selector:
        body["clusterSelector"] = {"matchLabels": dict(manifest.cluster_selector)}
    if manifest.tolerations:
        body["tolerations"] = [
            _without_empty({"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect})
            for t in manifest.tolerations
        ]
    if manifest.model_cache:
        body["modelCacheRef"] = {"name": manifest.model_cache}
    if manifest.serving_mode is not ServingMode.UNIFIED:
        body["serving"] = {"mode": str(manifest.serving_mode)}
    body["engines"] = [_engine(engine) for engine in manifest.engines]
    template: dict[str, Any] = {"spec": body}
    if manifest.replica_labels:
        template = {"metadata": {"labels": dict(manifest.replica_labels)}, **template}
    spec: dict[str, Any] = {"replicas": manifest.replicas, "template": template}
    if manifest.cost_code:
        spec["costCode"] = manifest.cost_code
    return spec


def from_spec(name: str, namespace: str, spec: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> Manifest:
    """The manifest of a stored spec. Selectors are not typed again: they were when the spec was saved."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
    return parse_manifest({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})


def _engine(engine: Engine) -> dict[str, Any]:
    out: dict[str, Any] = {"name": engine.name}
    if engine.copies != 1:
        out["copies"] = engine.copies
    if engine.phase:
        out["phase"] = str(engine.phase)
    out["members"] = [_member(member) for member in engine.members]
    return out


def _member(member: Member) -> dict[str, Any]:
    out: dict[str, Any] = {"role": str(member.role)}
    if member.nodes != 1:
        out["worker"] = {"nodes": member.nodes}
    if member.devices:
        out["nodeSelector"] = {"devices": [_device(ask) for ask in member.devices]}
    out["template"] = _template(member.template)
    return out


def _device(ask: DeviceAsk) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": ask.name,
        "count": ask.count,
        "selectors": [{"cel": expression} for expression in ask.selectors],
    }
    if ask.share is not None:
        share = _without_empty({"profile": ask.share.profile, "memory": ask.share.memory})
        out["share"] = share if ask.share.cores is None else {**share, "cores": ask.share.cores}
    return out


def _template(template: Template) -> dict[str, Any]:
    out: dict[str, Any] = {}
    metadata = _without_empty({"labels": dict(template.labels), "annotations": dict(template.annotations)})
    if metadata:
        out["metadata"] = metadata
    spec: dict[str, Any] = {"containers": [_container(container) for container in template.containers]}
    if template.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in template.image_pull_secrets]
    return {**out, "spec": spec}


def _container(container: Container) -> dict[str, Any]:
    resources = _without_empty({"requests": dict(container.requests), "limits": dict(container.limits)})
    return {
        "name": container.name,
        "image": container.image,
        **_without_empty(
            {
                "command": list(container.command),
                "args": list(container.args),
                "env": [env_data(variable) for variable in container.env],
                "resources": resources,
            }
        ),
    }


def env_data(variable: EnvVar) -> dict[str, Any]:
    """A variable as Kubernetes writes it."""
    for key, reference in (("secretKeyRef", variable.secret_key), ("configMapKeyRef", variable.config_map_key)):
        if reference is not None:
            data: dict[str, Any] = {"name": reference.name, "key": reference.key}
            return {
                "name": variable.name,
                "valueFrom": {key: data | ({"optional": True} if reference.optional else {})},
            }
    if variable.field_path is not None:
        return {"name": variable.name, "valueFrom": {"fieldRef": {"fieldPath": variable.field_path}}}
    return {"name": variable.name} | ({} if variable.value is None else {"value": variable.value})


def _without_empty(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value not in ("", [], {}, None)}


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
