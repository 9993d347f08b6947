"""The part of a storage provisioner: the control plane's claim is there and bound, and its volume goes after it."""

from __future__ import annotations

from controlplane.api import Api, Obj

LABEL = "standin.aifactory.dev/volume"
VOLUMES = "/api/v1/persistentvolumes"


def provide(host: Api, found: Obj) -> None:
    """Bind the claim of a StatefulSet, which its controller makes."""
    name, namespace = found["metadata"]["name"], found["metadata"]["namespace"]
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    claim = host.find(f"{claims}/data-{name}-0")
    if claim is None or (claim.get("status") or {}).get("phase") == "Bound":
        return
    if not claim["metadata"].get("deletionTimestamp"):
        _bind(host, claims, claim)


def _bind(host: Api, claims: str, claim: Obj) -> None:
    metadata = claim["metadata"]
    volume = f"pvc-{metadata['uid']}"
    size = claim["spec"]["resources"]["requests"]["storage"]
    reference = {key: metadata[key] for key in ("name", "namespace", "uid")}
    host.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume, "labels": {LABEL: "true"}},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": claim["spec"]["accessModes"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference},
                "hostPath": {"path": f"/var/lib/standin/{volume}"},
            },
        }
    )
    path = f"{claims}/{metadata['name']}"
    if not claim["spec"].get("volumeName"):
        bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        host.merge(path, {"metadata": bound, "spec": {"volumeName": volume}})
    state = {"phase": "Bound", "capacity": {"storage": size}, "accessModes": claim["spec"]["accessModes"]}
    host.merge(f"{path}/status", {"status": state})


def clear(host: Api) -> None:
    """Delete volumes whose claim is gone."""
    for volume in host.items(f"{VOLUMES}?labelSelector={LABEL}"):
        claim = volume["spec"]["claimRef"]
        path = f"/api/v1/namespaces/{claim['namespace']}/persistentvolumeclaims/{claim['name']}"
        found = host.find(path)
        gone = found is None or found["metadata"]["uid"] != claim["uid"]
        if gone and not volume["metadata"].get("deletionTimestamp"):
            host.delete(f"{VOLUMES}/{volume['metadata']['name']}")
