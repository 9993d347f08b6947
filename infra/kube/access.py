"""The rights that each mode needs: one table, for the preflight and for ``deploy/clusterroles``.

A right is here because a line of code uses it. Server-side apply needs ``patch``, and ``create`` where the
object is new; ``delete`` is pruning; ``list`` is the slow comparison with what our last apply recorded.
"""

from dataclasses import dataclass
from typing import Any

_READ = ("get", "list", "watch")
_OWN = ("get", "list", "create", "patch", "delete")


@dataclass(frozen=True)
class Review:
    """One right, as a SelfSubjectAccessReview asks for it (in all namespaces)."""

    verb: str
    group: str
    resource: str
    subresource: str = ""

    def attributes(self) -> dict[str, Any]:
        """``spec.resourceAttributes``"""
        values = {
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
        }
        return {key: value for key, value in values.items() if value or key == "group"}

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        resource = f"{resource}.{self.group}" if self.group else resource
        return f"{self.verb} {resource}"


@dataclass(frozen=True)
class Rule:
    """Verbs on resources of one API group; ``pods/log`` names a subresource."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]

    def reviews(self) -> list[Review]:
        """One for each verb and resource."""
        split = [resource.partition("/") for resource in self.resources]
        return [Review(verb, self.group, base, sub) for base, _, sub in split for verb in self.verbs]


OBSERVE: tuple[Rule, ...] = (
    Rule("", ("namespaces", "nodes", "pods"), _READ),
    Rule("coordination.k8s.io", ("leases",), _READ),
)
"""What the watcher and the probe read. ``leases``: the node heartbeats in ``kube-node-lease``."""

HANDED_ON: tuple[Rule, ...] = (
    Rule("", ("events", "limitranges", "pods", "pods/log", "resourcequotas", "services"), _READ),
    Rule("", ("pods",), ("delete",)),
    Rule("", ("pods/portforward",), ("create",)),
    Rule("apps", ("deployments", "replicasets"), _READ),
)
"""What the roles in a tenant's namespace give its people. Kubernetes lets nobody give what they do not hold;
holding it is less than the verbs ``escalate`` and ``bind``, which would give everything."""

MANAGE: tuple[Rule, ...] = (
    *OBSERVE,
    Rule("", ("namespaces",), ("create", "patch", "delete")),
    Rule("", ("limitranges", "resourcequotas", "services"), _OWN),
    Rule("apps", ("deployments",), _OWN),
    Rule("leaderworkerset.x-k8s.io", ("leaderworkersets",), _OWN),
    Rule("networking.k8s.io", ("networkpolicies",), _OWN),
    Rule("rbac.authorization.k8s.io", ("roles", "rolebindings"), _OWN),
    *HANDED_ON,
)
"""OBSERVE, and the objects of tenants' namespaces and deployments."""


def reviews(mode: str) -> list[Review]:
    """All rights of a mode (``observe`` or ``manage``), each once, in the order in which they are checked."""
    rules = MANAGE if mode == "manage" else OBSERVE
    return list(dict.fromkeys(review for rule in rules for review in rule.reviews()))
