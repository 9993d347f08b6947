"""What a cluster holds from the start: roles and tokens for the portal, the fleet's nodes, and what runs on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from controlplane.api import ApiError, Obj
from controlplane.plane import Plane
from simulator.fleet import ClusterSpec
from simulator.nodes import cards, node_names, node_object

ROLES = Path(__file__).resolve().parents[1] / "deploy" / "clusterroles"
NAMESPACE = "aifactory"
TOKEN_SECONDS = 365 * 86400
LATE_SECONDS = 60.0


def furnish(plane: Plane, spec: ClusterSpec, seed: str) -> dict[str, Path]:
    """Make what is missing; the kubeconfigs of the service accounts by role (`observe`, `manage`).

    Raises ApiError where the server refuses something.
    """
    api = plane.api
    kubeconfigs = {role: _account(plane, role) for role in ("observe", "manage")}
    number = 0
    for pool in spec.pools:
        for name in node_names(spec, pool):
            node = node_object(spec, pool, name, number, cards(seed, spec, pool, name), time.time())
            node["metadata"]["annotations"]["kwok.x-k8s.io/node"] = "fake"
            number += 1
            api.create(node)
    for workload in spec.workloads:
        # Nothing listens in a fake pod, so a Service would promise what is not there.
        if workload["kind"] != "Service":
            _patiently(partial(api.create, _as_hami_would(workload)))
    return kubeconfigs


def _account(plane: Plane, role: str) -> Path:
    """A service account that holds `deploy/clusterroles/ROLE.yaml`, and a kubeconfig with a token of it."""
    api, account = plane.api, f"portal-{role}"
    cluster_role = yaml.safe_load((ROLES / f"{role}.yaml").read_text())
    metadata = {"name": account, "namespace": NAMESPACE}
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    api.apply(cluster_role)
    api.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"aifactory-{role}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": cluster_role["metadata"]["name"],
            },
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        }
    )
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    token = api.call("POST", path, asked)["status"]["token"]
    return plane.pki.write_kubeconfig(role, plane.url, account, token)


def _patiently(create: Callable[[], Any]) -> None:
    """Try again while the namespace's service account is not there yet (a controller makes it)."""
    until = time.monotonic() + LATE_SECONDS
    while True:
        try:
            create()
            return
        except ApiError as error:
            if error.status not in (403, 404, 500) or time.monotonic() > until:
                raise
        time.sleep(0.2)


def _as_hami_would(obj: Obj) -> Obj:
    """What HAMi's webhook does to pods that ask for a share of a card: its own scheduler places them."""
    spec = obj.get("spec", {}).get("template", {}).get("spec")
    if spec is None:
        return obj
    asked = {name for one in spec["containers"] for name in (one.get("resources", {}).get("limits") or {})}
    if not any(name.startswith(("nvidia.com/gpumem", "nvidia.com/gpucores")) for name in asked):
        return obj
    template = {**obj["spec"]["template"], "spec": {**spec, "schedulerName": "hami-scheduler"}}
    return {**obj, "spec": {**obj["spec"], "template": template}}
