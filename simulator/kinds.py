"""The table of kinds that the simulator knows. A kind that is not here is answered with 501 and its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Obj = dict[str, Any]

READ_VERBS = ("get", "list", "watch")
WRITE_VERBS = ("create", "delete", "deletecollection", "patch", "update")


@dataclass(frozen=True, eq=False)
class Kind:
    """One row of the table.

    `generation`: the server counts changes of the spec. `orphans`: a DELETE without a policy leaves the
    dependents (Job, batch/v1). `returns_object`: DELETE answers with the object instead of a Status.
    `empty`: the object's empty form in JSON, as bookmarks and the first field ownership see it.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = False
    scale: bool = False
    generation: bool = False
    orphans: bool = False
    returns_object: bool = False
    short: tuple[str, ...] = ()
    empty: Obj = field(default_factory=dict)
    schema: Obj | None = field(default=None)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Kind)
            and (self.group, self.version, self.plural) == (other.group, other.version, other.plural)
        )

    def __hash__(self) -> int:
        return hash(self.plural)

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`pods`, or `deployments.apps`: the form used in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """`Pod`, or `Deployment.apps`: the form used in messages about invalid objects."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def blank(self) -> Obj:
        """The empty object with its kind, apiVersion and metadata (fresh copy of the outer levels)."""
        return {"kind": self.kind, "apiVersion": self.api_version, "metadata": {}, **self.empty}


_POD_SPEC: Obj = {"containers": None}
_TEMPLATE: Obj = {"metadata": {}, "spec": _POD_SPEC}
_SS: Obj = {"spec": {}, "status": {}}

POD = Kind(
    "",
    "v1",
    "Pod",
    "pods",
    status=True,
    generation=True,
    returns_object=True,
    short=("po",),
    empty={"spec": _POD_SPEC, "status": {}},
)
NAMESPACE = Kind(
    "", "v1", "Namespace", "namespaces", namespaced=False, status=True, returns_object=True, short=("ns",), empty=_SS
)
NODE = Kind("", "v1", "Node", "nodes", namespaced=False, status=True, short=("no",), empty=_SS)
SERVICE = Kind(
    "",
    "v1",
    "Service",
    "services",
    status=True,
    returns_object=True,
    short=("svc",),
    empty={"spec": {}, "status": {"loadBalancer": {}}},
)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", short=("cm",))
SECRET = Kind("", "v1", "Secret", "secrets")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", returns_object=True, short=("sa",))
RESOURCE_QUOTA = Kind(
    "", "v1", "ResourceQuota", "resourcequotas", status=True, returns_object=True, short=("quota",), empty=_SS
)
LIMIT_RANGE = Kind("", "v1", "LimitRange", "limitranges", short=("limits",), empty={"spec": {"limits": None}})
CLAIM = Kind(
    "",
    "v1",
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    status=True,
    returns_object=True,
    short=("pvc",),
    empty={"spec": {"resources": {}}, "status": {}},
)
VOLUME = Kind(
    "",
    "v1",
    "PersistentVolume",
    "persistentvolumes",
    namespaced=False,
    status=True,
    returns_object=True,
    short=("pv",),
    empty=_SS,
)
EVENT = Kind("", "v1", "Event", "events", short=("ev",))
DEPLOYMENT = Kind(
    "apps",
    "v1",
    "Deployment",
    "deployments",
    status=True,
    scale=True,
    generation=True,
    short=("deploy",),
    empty={"spec": {"selector": None, "template": _TEMPLATE, "strategy": {}}, "status": {}},
)
REPLICA_SET = Kind(
    "apps",
    "v1",
    "ReplicaSet",
    "replicasets",
    status=True,
    scale=True,
    generation=True,
    short=("rs",),
    empty={"spec": {"selector": None, "template": _TEMPLATE}, "status": {"replicas": 0}},
)
STATEFUL_SET = Kind(
    "apps",
    "v1",
    "StatefulSet",
    "statefulsets",
    status=True,
    scale=True,
    generation=True,
    short=("sts",),
    empty={"spec": {"selector": None, "template": _TEMPLATE, "updateStrategy": {}}, "status": {"replicas": 0}},
)
DAEMON_SET = Kind(
    "apps",
    "v1",
    "DaemonSet",
    "daemonsets",
    status=True,
    generation=True,
    short=("ds",),
    empty={"spec": {"selector": None, "template": _TEMPLATE, "updateStrategy": {}}, "status": {}},
)
JOB = Kind(
    "batch",
    "v1",
    "Job",
    "jobs",
    status=True,
    generation=True,
    orphans=True,
    empty={"spec": {"template": _TEMPLATE}, "status": {}},
)
NETWORK_POLICY = Kind(
    "networking.k8s.io",
    "v1",
    "NetworkPolicy",
    "networkpolicies",
    generation=True,
    short=("netpol",),
    empty={"spec": {}},
)
_RBAC = "rbac.authorization.k8s.io"
ROLE = Kind(_RBAC, "v1", "Role", "roles", empty={"rules": None})
ROLE_BINDING = Kind(_RBAC, "v1", "RoleBinding", "rolebindings", empty={"roleRef": {}})
CLUSTER_ROLE = Kind(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False, empty={"rules": None})
CLUSTER_ROLE_BINDING = Kind(
    _RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False, empty={"roleRef": {}}
)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", empty={"spec": {}})
_ADMISSION = "admissionregistration.k8s.io"
POLICY = Kind(
    _ADMISSION,
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    namespaced=False,
    status=True,
    generation=True,
    empty=_SS,
)
POLICY_BINDING = Kind(
    _ADMISSION,
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
    empty={"spec": {}},
)
CRD = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    status=True,
    generation=True,
    short=("crd",),
    empty=_SS,
)

BUILT_IN: tuple[Kind, ...] = (
    POD, NAMESPACE, NODE, SERVICE, CONFIG_MAP, SECRET, SERVICE_ACCOUNT, RESOURCE_QUOTA, LIMIT_RANGE, EVENT,
    DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET, JOB, NETWORK_POLICY, ROLE, ROLE_BINDING, CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING, LEASE, POLICY, POLICY_BINDING, CRD, CLAIM, VOLUME,
)  # fmt: skip


class KindTable:
    """The kinds of one cluster: the built-in ones and those that its CustomResourceDefinitions add."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], Kind] = {}
        for kind in BUILT_IN:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        """Add a kind, or replace the one of the same group, version and plural."""
        self._rows[(kind.group, kind.version, kind.plural)] = kind

    def remove(self, kind: Kind) -> None:
        """Forget a kind."""
        self._rows.pop((kind.group, kind.version, kind.plural), None)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind behind a URL, or None."""
        return self._rows.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """The kind named by an object's apiVersion and kind, or None."""
        for row in self._rows.values():
            if row.kind == kind and row.api_version == api_version:
                return row
        return None

    def groups(self) -> dict[str, list[str]]:
        """Group → versions, in the order of the table; the core group is ''."""
        found: dict[str, list[str]] = {}
        for row in self._rows.values():
            versions = found.setdefault(row.group, [])
            if row.version not in versions:
                versions.append(row.version)
        return found

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._rows.values()))
