"""The definitions of Flux's kinds, as small as the stand-in needs them, and the rights of who installs tenant clusters.

Formats: fluxcd/helm-controller api/v2 and fluxcd/source-controller api/v1. Fields that the schemas don't name are
kept.
"""

from __future__ import annotations

import time
from pathlib import Path

import yaml

from controlplane.api import Api, Obj

INSTALLER = Path(__file__).resolve().parents[2] / "deploy" / "clusterroles" / "tenant-clusters.yaml"
"""What a platform's administrator applies before tenant clusters are made: namespace, account and its rights."""
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SERVED_SECONDS = 30.0
"""For which a new definition's kind may not be answered for."""
_FREE: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(group: str, version: str, kind: str, plural: str, required: tuple[str, ...]) -> Obj:
    """A namespaced definition with a status subresource; `required`: fields of its spec."""
    spec: Obj = {**_FREE, "required": list(required)} if required else dict(_FREE)
    schema = {"type": "object", "properties": {"spec": spec, "status": dict(_FREE)}}
    row = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [row],
        },
    }


DEFINITIONS = (
    definition("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases", ("interval",)),
    definition("source.toolkit.fluxcd.io", "v1", "HelmRepository", "helmrepositories", ("url",)),
    definition("source.toolkit.fluxcd.io", "v1", "OCIRepository", "ocirepositories", ("url", "interval")),
)


def _served(host: Api, wanted: Obj) -> bool:
    spec = wanted["spec"]
    return host.answers(f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}")


def furnish(host: Api) -> None:
    """Make what is missing; definitions that are there stay as they are. Raises ApiError where one is refused."""
    for wanted in DEFINITIONS:
        if host.find(f"{CRDS}/{wanted['metadata']['name']}") is None:
            host.create(wanted)
    until = time.monotonic() + SERVED_SECONDS
    while not all(_served(host, wanted) for wanted in DEFINITIONS) and time.monotonic() < until:
        time.sleep(0.1)
    if INSTALLER.exists():
        for obj in yaml.safe_load_all(INSTALLER.read_text()):
            if obj:
                host.create(obj)
