"""From an object's ``apiVersion`` and ``kind`` to its path in the API.

The kinds that are part of every Kubernetes are a table, so that they cost no request; all others are looked
up once per cluster in the API server's own discovery (``/apis/GROUP/VERSION``) and kept in that client's
memory. The official client's discovery cache is one file per host, shared by everybody on the machine: not
used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True)
class Resource:
    """A kind as the API serves it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """``/apis/apps/v1/namespaces/NS/deployments/NAME``; without a namespace: all of them."""
        parts = ["apis" if "/" in self.api_version else "api", *self.api_version.split("/")]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)


def _table(api_version: str, *rows: tuple[str, str], namespaced: bool = True) -> dict[tuple[str, str], Resource]:
    return {(api_version, kind): Resource(api_version, kind, plural, namespaced) for kind, plural in rows}


BUILT_IN: Mapping[tuple[str, str], Resource] = {
    **_table(
        "v1",
        ("ConfigMap", "configmaps"),
        ("Event", "events"),
        ("LimitRange", "limitranges"),
        ("PersistentVolumeClaim", "persistentvolumeclaims"),
        ("Pod", "pods"),
        ("ResourceQuota", "resourcequotas"),
        ("Secret", "secrets"),
        ("Service", "services"),
        ("ServiceAccount", "serviceaccounts"),
    ),
    **_table("v1", ("Namespace", "namespaces"), ("Node", "nodes"), namespaced=False),
    **_table(
        "apps/v1",
        ("DaemonSet", "daemonsets"),
        ("Deployment", "deployments"),
        ("ReplicaSet", "replicasets"),
        ("StatefulSet", "statefulsets"),
    ),
    **_table("batch/v1", ("Job", "jobs")),
    **_table("coordination.k8s.io/v1", ("Lease", "leases")),
    **_table("networking.k8s.io/v1", ("NetworkPolicy", "networkpolicies")),
    **_table("rbac.authorization.k8s.io/v1", ("Role", "roles"), ("RoleBinding", "rolebindings")),
    **_table(
        "rbac.authorization.k8s.io/v1",
        ("ClusterRole", "clusterroles"),
        ("ClusterRoleBinding", "clusterrolebindings"),
        namespaced=False,
    ),
}


def discovery_path(api_version: str) -> str:
    """Where the API server lists the kinds of a version."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def from_discovery(api_version: str, answer: Mapping[str, Any]) -> dict[str, Resource]:
    """Kind → resource, of an ``APIResourceList``; subresources (``deployments/status``) are left out."""
    return {
        str(row["kind"]): Resource(api_version, str(row["kind"]), str(row["name"]), bool(row.get("namespaced")))
        for row in answer.get("resources") or []
        if "/" not in str(row.get("name", "/"))
    }
