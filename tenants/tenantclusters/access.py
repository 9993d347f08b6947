"""Who may do what inside a tenant cluster, and the objects that say so there. Pure but for the names of roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.adapters.oidc import PREFIX
from infra.kube.reader import Obj
from infra.names import FIELD_MANAGER, MANAGED_BY
from tenants.models import Member, Robot

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

EDIT, VIEW = "edit", "view"
EDITORS = "aifactory-editors"
"""The RoleBinding to ``edit`` in each of the team's namespaces. Who may edit in a namespace may act as any service
account there (``impersonate``, tokens, pods): given everywhere, ``edit`` would be all that the robots and the
controllers in kube-system may."""
KEEP_OUT = ("aifactory.dev/developers", "none")
"""The label by which an administrator keeps editors out of a namespace, where service accounts may do much."""
_NOT_THE_TEAMS = ("kube-", "aifactory-")


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
    objects = [
        _binding(f"aifactory-{role}", _everywhere(MEMBER_ROLES[role]), _subjects(who)) for role, who in _by_role(access)
    ]
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
        objects.append(_binding(f"aifactory-robot-{name}", _everywhere(role), [_robot(name)]))
    return objects


def is_the_teams(namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether who edits for the team does so in this namespace."""
    return not namespace.startswith(_NOT_THE_TEAMS) and labels.get(KEEP_OUT[0]) != KEEP_OUT[1]


def editors_manifest(access: Access, namespace: str) -> Obj | None:
    """Who may edit in one of the team's namespaces; None where nobody is."""
    subjects = _subjects(access.members.get(Member.Role.DEVELOPER, Subjects()))
    subjects += [_robot(name) for name, role in sorted(access.robots.items()) if role == Robot.Role.EDIT]
    if not subjects:
        return None
    binding = _binding(EDITORS, EDIT, subjects) | {"kind": "RoleBinding"}
    binding["metadata"]["namespace"] = namespace
    return binding


def _everywhere(role: str) -> str:
    """What a role may in all namespaces: who edits reads there, and edits in the team's own."""
    return VIEW if role == EDIT else role


def _robot(name: str) -> Obj:
    return {"kind": "ServiceAccount", "name": name, "namespace": ROBOTS_NAMESPACE}


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
