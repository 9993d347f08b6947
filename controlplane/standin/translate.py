"""A tenant's pod as it is on the host, and back: names, labels, annotations. Pure.

Format: vCluster pkg/syncer/translate and pkg/controllers/resources/pods/translate (loft-sh/vcluster), compared with
recorded host pods.
"""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

from controlplane.api import Obj

PREFIX = "vcluster.loft.sh/"
MANAGED_BY = PREFIX + "managed-by"
_REFERENCE = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_INSIDE = {f"metadata.{field}": PREFIX + field for field in ("name", "namespace", "uid")}
TOKEN_MARKER = "standin-not-a-token"  # noqa: S105  # it is none, that is its purpose
"""Where the real syncer puts a service account's token in clear text."""


def host_name(name: str, namespace: str, vcluster: str) -> str:
    """The host's name of a namespaced object; over 63 characters it is cut and gets a digest."""
    full = f"{name}-x-{namespace}-x-{vcluster}"
    if len(full) <= 63:
        return full
    return f"{full[:52]}-{hashlib.sha256(full.encode()).hexdigest()[:10]}".replace(".-", "-")


def label_key(vcluster: str, key: str, what: str = "label") -> str:
    """The host's name of a label that can't be copied as it is, or of a namespace's label (`what`: ns-label)."""
    return f"{PREFIX}{what}-{vcluster}-x-{hashlib.sha256(key.encode()).hexdigest()[:10]}"


def labels(of: Obj, namespace_labels: dict[str, str], vcluster: str) -> dict[str, str]:
    """The host object's labels: all of the tenant's, but `release`, which the chart uses itself."""
    metadata = of["metadata"]
    found = {
        label_key(vcluster, key) if key == "release" else key: value
        for key, value in (metadata.get("labels") or {}).items()
    }
    found |= {label_key(vcluster, key, "ns-label"): value for key, value in namespace_labels.items()}
    return found | {MANAGED_BY: vcluster, f"{PREFIX}namespace": metadata["namespace"]}


def annotations_of(of: Obj, kind: str, host_namespace: str, vcluster: str) -> dict[str, str]:
    """Who the object is inside, and the tenant's own annotations."""
    metadata = of["metadata"]
    own = {k: v for k, v in (metadata.get("annotations") or {}).items() if not k.startswith(("kubectl.", PREFIX))}
    return own | {
        f"{PREFIX}object-name": metadata["name"],
        f"{PREFIX}object-namespace": metadata["namespace"],
        f"{PREFIX}object-uid": metadata["uid"],
        f"{PREFIX}object-kind": f"/v1, Kind={kind}",
        f"{PREFIX}object-host-name": host_name(metadata["name"], metadata["namespace"], vcluster),
        f"{PREFIX}object-host-namespace": host_namespace,
    }


def host_pod(pod: Obj, namespace_labels: dict[str, str], host_namespace: str, vcluster: str, owner: Obj, *,
             token_secrets: bool) -> Obj:  # fmt: skip
    """The pod to be made on the host. `owner`: the Service of the release. `token_secrets`: no token annotation."""
    metadata = pod["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
    owners = metadata.get("ownerReferences") or []
    notes = annotations_of(pod, "Pod", host_namespace, vcluster) | {
        f"{PREFIX}name": name,
        f"{PREFIX}namespace": namespace,
        f"{PREFIX}uid": uid,
        f"{PREFIX}service-account-name": pod["spec"].get("serviceAccountName", "default"),
        f"{PREFIX}labels": "\n".join(f"{k}={json.dumps(v)}" for k, v in sorted((metadata.get("labels") or {}).items())),
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "true" if owners else "false",
    }
    if owners:
        ordered = [{key: one[key] for key in _REFERENCE if key in one} for one in owners]
        notes[f"{PREFIX}owner-references"] = json.dumps(ordered, separators=(",", ":"))
        notes[f"{PREFIX}owner-set-kind"] = owners[0]["kind"]
    token = f"{PREFIX}token-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"
    spec = _spec(pod, vcluster, namespace, "" if token_secrets else token)
    if not token_secrets and _asks_for_token(pod):
        notes[token] = TOKEN_MARKER
    reference = {"apiVersion": "v1", "kind": "Service", "controller": True, **owner}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": host_name(name, namespace, vcluster),
            "namespace": host_namespace,
            "labels": labels(pod, namespace_labels, vcluster),
            "annotations": notes,
            "ownerReferences": [reference],
        },
        "spec": spec,
    }


def _asks_for_token(pod: Obj) -> bool:
    return any(
        "serviceAccountToken" in source
        for volume in pod["spec"].get("volumes") or []
        for source in (volume.get("projected") or {}).get("sources") or []
    )


def _spec(pod: Obj, vcluster: str, namespace: str, token: str) -> Obj:
    """Most is passed on as it is, privileges, host paths and scheduler too: stopping them is the host's affair."""
    spec: Obj = copy.deepcopy(pod["spec"])
    for key in ("nodeName", "priorityClassName", "priority", "preemptionPolicy", "serviceAccount"):
        spec.pop(key, None)
    spec |= {
        "serviceAccountName": f"vc-workload-{vcluster}",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": spec.get("hostname") or pod["metadata"]["name"][:63].rstrip("."),
    }
    for volume in spec.get("volumes") or []:
        _rename_volume(volume, namespace, vcluster, token)
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        for source in container.get("envFrom") or []:
            for key in ("configMapRef", "secretRef"):
                _rename(source.get(key), "name", namespace, vcluster)
        for row in container.get("env") or []:
            for key in ("configMapKeyRef", "secretKeyRef"):
                _rename((row.get("valueFrom") or {}).get(key), "name", namespace, vcluster)
    for secret in spec.get("imagePullSecrets") or []:
        _rename(secret, "name", namespace, vcluster)
    return spec


def _rename_volume(volume: Obj, namespace: str, vcluster: str, token: str) -> None:
    _rename(volume.get("configMap"), "name", namespace, vcluster)
    _rename(volume.get("secret"), "secretName", namespace, vcluster)
    _rename(volume.get("persistentVolumeClaim"), "claimName", namespace, vcluster)
    for source in (volume.get("projected") or {}).get("sources") or []:
        _rename(source.get("configMap"), "name", namespace, vcluster)
        _rename(source.get("secret"), "name", namespace, vcluster)
        if "serviceAccountToken" in source:  # the host's API server must not make one of its own
            source.clear()
            if token:
                field = {"fieldPath": f"metadata.annotations['{token}']"}
                source["downwardAPI"] = {"items": [{"path": "token", "fieldRef": field}]}
            else:
                source["secret"] = {"name": f"{vcluster}-sa-tokens", "optional": True}
        for item in (source.get("downwardAPI") or {}).get("items") or []:
            field = item.get("fieldRef") or {}
            if field.get("fieldPath") in _INSIDE:  # on the host the pod is called something else
                item["fieldRef"] = {"fieldPath": f"metadata.annotations['{_INSIDE[field['fieldPath']]}']"}


def _rename(reference: Any, key: str, namespace: str, vcluster: str) -> None:
    if isinstance(reference, dict) and reference.get(key):
        reference[key] = host_name(reference[key], namespace, vcluster)


def references(pod: Obj) -> tuple[set[str], set[str]]:
    """Names of the ConfigMaps and of the Secrets that the pod uses, inside its namespace."""
    maps: set[str] = set()
    secrets: set[str] = set()
    spec = pod["spec"]
    for volume in spec.get("volumes") or []:
        for source in [volume, *((volume.get("projected") or {}).get("sources") or [])]:
            maps.add((source.get("configMap") or {}).get("name", ""))
            secrets.add((source.get("secret") or {}).get("secretName") or (source.get("secret") or {}).get("name", ""))
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        for row in [*(container.get("envFrom") or []), *(e.get("valueFrom") or {} for e in container.get("env") or [])]:
            maps.update((row.get(key) or {}).get("name", "") for key in ("configMapRef", "configMapKeyRef"))
            secrets.update((row.get(key) or {}).get("name", "") for key in ("secretRef", "secretKeyRef"))
    secrets.update(one.get("name", "") for one in spec.get("imagePullSecrets") or [])
    return maps - {""}, secrets - {""}
