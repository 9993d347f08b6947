"""How the tenant's API server knows people: from the values of the release to its authentication configuration."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import yaml

from controlplane.api import Api, Obj

ANONYMOUS: Obj = {"enabled": True, "conditions": [{"path": path} for path in ("/livez", "/readyz", "/healthz")]}
"""As the server was started; it does not take another one without a new start."""


def configuration(values: Obj, namespace: str, host: Api) -> str | None:
    """The text for the API server's file; None where the values ask for none, or for what a server would refuse.

    `--authentication-config=PATH`: the ConfigMap that is mounted at PATH's folder. `--oidc-…`: the same, written out.
    """
    arguments = dict(
        str(one).removeprefix("--").split("=", 1)
        for one in values["controlPlane"]["distro"]["k8s"]["apiServer"].get("extraArgs") or []
        if "=" in str(one)
    )
    found: Any = None
    if "authentication-config" in arguments:
        text = _mounted(PurePosixPath(arguments["authentication-config"]), values, namespace, host)
        found = yaml.safe_load(text) if text else None
    elif "oidc-issuer-url" in arguments:
        found = _from_flags(arguments)
    if not isinstance(found, dict):
        return None
    if not all(str(row.get("issuer", {}).get("url", "")).startswith("https://") for row in found.get("jwt") or []):
        return None
    return yaml.safe_dump(found | {"anonymous": ANONYMOUS}, sort_keys=False)


def _from_flags(arguments: dict[str, str]) -> Obj:
    username = {
        "claim": arguments.get("oidc-username-claim", "sub"),
        "prefix": arguments.get("oidc-username-prefix", f"{arguments['oidc-issuer-url']}#"),
    }
    mappings: Obj = {"username": username}
    if "oidc-groups-claim" in arguments:
        mappings["groups"] = {
            "claim": arguments["oidc-groups-claim"],
            "prefix": arguments.get("oidc-groups-prefix", ""),
        }
    issuer = {"url": arguments["oidc-issuer-url"], "audiences": [arguments.get("oidc-client-id", "")]}
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{"issuer": issuer, "claimMappings": mappings}],
    }


def _mounted(path: PurePosixPath, values: Obj, namespace: str, host: Api) -> str:
    """The text of a file that a ConfigMap of the host's namespace gives; empty where there is none."""
    storage = values["controlPlane"]["statefulSet"]["persistence"]
    for mount in storage["addVolumeMounts"]:
        below = PurePosixPath(mount["mountPath"])
        if below != path and below not in path.parents:
            continue
        for volume in storage["addVolumes"]:
            name = (volume.get("configMap") or {}).get("name")
            if volume["name"] == mount["name"] and name:
                found = host.find(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
                data = (found or {}).get("data") or {}
                return str(data.get(mount.get("subPath") or path.name, ""))
    return ""
