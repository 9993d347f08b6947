"""The chart's values: its defaults as far as the stand-in obeys them, merging, and what its schema refuses. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from controlplane.api import Obj

KNOWN = frozenset(
    {
        "controlPlane", "deletion", "deploy", "exportKubeConfig", "experimental", "external", "global", "integrations",
        "license", "logging", "networking", "platform", "plugins", "policies", "privateNodes", "pro", "rbac", "sleep",
        "snapshots", "standalone", "sync", "telemetry",
    }
)  # fmt: skip
"""The top-level keys of vCluster's values.schema.json; it takes no others."""
QUOTA: Obj = {
    "requests.cpu": 10,
    "requests.memory": "20Gi",
    "requests.storage": "100Gi",
    "requests.ephemeral-storage": "60Gi",
    "limits.cpu": 20,
    "limits.memory": "40Gi",
    "limits.ephemeral-storage": "160Gi",
    "services.nodeports": 0,
    "services.loadbalancers": 1,
    "count/endpoints": 40,
    "count/pods": 20,
    "count/services": 20,
    "count/secrets": 100,
    "count/configmaps": 100,
    "count/persistentvolumeclaims": 20,
}
LIMITS: Obj = {
    "default": {"ephemeral-storage": "8Gi", "memory": "512Mi", "cpu": "1"},
    "defaultRequest": {"ephemeral-storage": "3Gi", "memory": "128Mi", "cpu": "100m"},
}
DEFAULTS: Obj = {
    "controlPlane": {
        "distro": {"k8s": {"image": {"tag": "v1.36.0"}, "apiServer": {"extraArgs": []}}},
        "statefulSet": {
            "image": {"registry": "ghcr.io", "repository": "loft-sh/vcluster-pro", "tag": ""},
            "resources": {
                "limits": {"memory": "2Gi", "ephemeral-storage": "8Gi"},
                "requests": {"cpu": "200m", "memory": "256Mi", "ephemeral-storage": "400Mi"},
            },
            "highAvailability": {"replicas": 1},
            "persistence": {
                "volumeClaim": {"enabled": "auto", "size": "5Gi", "retentionPolicy": "Retain"},
                "addVolumes": [],
                "addVolumeMounts": [],
            },
        },
    },
    "sync": {
        "toHost": {"pods": {"useSecretsForSATokens": False}},
        "fromHost": {"nodes": {"enabled": False, "selector": {"labels": {}}}},
    },
    "policies": {
        "resourceQuota": {"enabled": "auto", "quota": QUOTA},
        "limitRange": {"enabled": "auto", **LIMITS},
        "networkPolicy": {"enabled": False},
    },
    "networking": {"advanced": {"proxyKubelets": {"byHostname": True, "byIP": True}}},
    "exportKubeConfig": {"server": "", "additionalSecrets": []},
}


class ValuesRefused(ValueError):
    """The chart's schema does not take the values; the text is as Helm words it."""


def merged(given: Obj) -> Obj:
    """The values over the defaults, as Helm merges them: maps by key, null takes a key away. Raises ValuesRefused."""
    unknown = sorted(set(given) - KNOWN)
    if unknown:
        lines = "".join(f"\n- (root): Additional property {name} is not allowed" for name in unknown)
        raise ValuesRefused(f"values don't meet the specifications of the schema(s) in the following chart(s):{lines}")
    found: Obj = _merge(DEFAULTS, given)
    return found


def _merge(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    both = {**below, **{key: _merge(below.get(key), value) for key, value in above.items()}}
    return {key: value for key, value in both.items() if value is not None}


def switched(first: Any, second: Any) -> bool:
    """Whether a policy that may be true, false or "auto" is on: "auto" follows the other one."""
    return first is True or (first == "auto" and second is True)


def digest(value: Any) -> str:
    """The same for the same content."""
    return "sha256:" + hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
