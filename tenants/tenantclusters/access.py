"""Who may do what inside a tenant cluster, and the objects that say so there. Pure but for the names of roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.adapters.oidc import PREFIX
from infra.kube.reader import Obj
from infra.names import FIELD_MANAGER, MANAGED_BY
from tenants.models import Member

ROBOTS_NAMESPACE = "aifactory-robots"
RBAC = "rbac.authorization.k8s.io"
LABELS = {MANAGED_BY: FIELD_MANAGER}
"""By these the portal's objects inside are known."""

MEMBER_ROLES: Mapping[str, str] = {
    Member.Role.OWNER: "cluster-admin",
    Member.Role.DEVELOPER: "edit",
    Member.Role.VIEWER: "view",
}
"""The tenant's roles as ClusterRoles of its own cluster. Finance has no business there."""


@dataclass(frozen=True)
class Subjects:
    """Who has a role inside: subjects (``sub``) of people, and groups of their tokens."""

    people: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Access:
    """Who may do what inside: by role of the tenant, and the robots by name with their role."""

    members: Mapping[str, Subjects] = field(default_factory=dict)
    robots: Mapping[str, str] = field(default_factory=dict)


def access_manifests(access: Access) -> list[Obj]:
    """The objects inside, in the order in which they must be applied."""
    objects = [_binding(f"aifactory-{role}", MEMBER_ROLES[role], _subjects(who)) for role, who in _by_role(access)]
    if access.robots:
        objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": _metadata(ROBOTS_NAMESPACE)})
    for name, role in sorted(access.robots.items()):
        metadata = _metadata(name) | {"namespace": ROBOTS_NAMESPACE}
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": metadata,
                "automountServiceAccountToken": False,
            }
        )
        robot = {"kind": "ServiceAccount", "name": name, "namespace": ROBOTS_NAMESPACE}
        objects.append(_binding(f"aifactory-robot-{name}", role, [robot]))
    return objects


def _by_role(access: Access) -> list[tuple[str, Subjects]]:
    return [(role, access.members.get(role, Subjects())) for role in MEMBER_ROLES]


def _subjects(who: Subjects) -> list[Obj]:
    people = [{"kind": "User", "apiGroup": RBAC, "name": f"{PREFIX}{sub}"} for sub in sorted(who.people)]
    groups = [{"kind": "Group", "apiGroup": RBAC, "name": f"{PREFIX}{group}"} for group in sorted(who.groups)]
    return people + groups


def _binding(name: str, role: str, subjects: Sequence[Obj]) -> Obj:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(name),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": list(subjects),
    }


def _metadata(name: str) -> Obj:
    return {"name": name, "labels": dict(LABELS)}
