"""The rights that each mode needs, may use and does not need: one table, for preflight and ``deploy/clusterroles``.

A right is here because a line of code uses it. Server-side apply needs ``patch``, and ``create`` where the
object is new; ``delete`` is pruning; ``list`` is the slow comparison with what our last apply recorded.
"""

from dataclasses import dataclass
from typing import Any

_READ = ("get", "list", "watch")
_OWN = ("get", "list", "create", "patch", "delete")


@dataclass(frozen=True)
class Review:
    """One right, as a SelfSubjectAccessReview asks for it: in all namespaces, or in one (``name``: of one object)."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def attributes(self) -> dict[str, Any]:
        """``spec.resourceAttributes``"""
        values = {
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {key: value for key, value in values.items() if value or key == "group"}

    @property
    def kubectl_resource(self) -> str:
        """As ``kubectl create role --resource=`` takes it: ``leases.coordination.k8s.io``, ``pods/log``."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{resource}/{self.subresource}" if self.subresource else resource

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        resource = f"{resource}.{self.group}" if self.group else resource
        return f"{self.verb} {resource}" + (f" in {self.namespace}" if self.namespace else "")


@dataclass(frozen=True)
class Rule:
    """Verbs on resources of one API group; ``pods/log`` names a subresource. ``why``: what they are used for."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str = ""

    def reviews(self) -> list[Review]:
        """One for each verb and resource."""
        split = [resource.partition("/") for resource in self.resources]
        return [Review(verb, self.group, base, sub) for base, _, sub in split for verb in self.verbs]


OBSERVE: tuple[Rule, ...] = (
    Rule("", ("pods",), _READ, "metering: who holds which cards, from when until when"),
    Rule("", ("nodes",), _READ, "the hardware: cards, their kind, and when they are in service"),
    Rule("", ("namespaces",), _READ, "whose pods are whose: names and labels; and which cluster this is"),
    Rule("coordination.k8s.io", ("leases",), _READ, "heartbeats: when a node that is gone was last alive"),
)
"""What the watcher and the probe read. ``leases``: the node heartbeats in ``kube-node-lease``."""

OPTIONAL: tuple[Rule, ...] = (
    Rule("apps", ("replicasets", "statefulsets"), ("get",), "what stands above a pod's ReplicaSet or StatefulSet"),
    Rule("batch", ("jobs",), ("get",), "which CronJob made a Job"),
)
"""What is used where it is given. Without it all is metered just the same; the workload's name ends one link earlier
and says ``owner not readable``."""

HANDED_ON: tuple[Rule, ...] = (
    Rule(
        "", ("events", "limitranges", "pods", "pods/log", "resourcequotas", "services"), _READ,
        "given on to a tenant's people in its own namespace",
    ),
    Rule("", ("pods",), ("delete",), "given on to a tenant's people in its own namespace"),
    Rule("", ("pods/portforward",), ("create",), "given on to a tenant's people in its own namespace"),
    Rule("apps", ("deployments", "replicasets"), _READ, "given on to a tenant's people in its own namespace"),
)  # fmt: skip
"""What the roles in a tenant's namespace give its people. Kubernetes lets nobody give what they do not hold;
holding it is less than the verbs ``escalate`` and ``bind``, which would give everything."""

MANAGE: tuple[Rule, ...] = (
    *OBSERVE,
    Rule("", ("namespaces",), ("create", "patch", "delete"), "tenants' namespaces"),
    Rule("", ("limitranges", "resourcequotas", "services"), _OWN, "quota and services in tenants' namespaces"),
    Rule("apps", ("deployments",), _OWN, "model deployments"),
    Rule("leaderworkerset.x-k8s.io", ("leaderworkersets",), _OWN, "model deployments of more than one node"),
    Rule("networking.k8s.io", ("networkpolicies",), _OWN, "tenants kept apart"),
    Rule("rbac.authorization.k8s.io", ("roles", "rolebindings"), _OWN, "tenants' access to their own namespace"),
    Rule(
        "admissionregistration.k8s.io",
        ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        _OWN,
        "what a tenant's pod may not be",
    ),
    Rule("", ("pods",), ("create",), "dry runs that prove what a tenant's pod may not be; no pod is ever made so"),
    *HANDED_ON,
)
"""OBSERVE, and the objects of tenants' namespaces and deployments."""

KUEUE: tuple[Rule, ...] = (
    Rule(
        "kueue.x-k8s.io", ("resourceflavors", "cohorts", "clusterqueues", "localqueues"), _OWN,
        "queues made of the tenants' quotas",
    ),
    Rule("kueue.x-k8s.io", ("workloads",), ("get", "list"), "why a pod is not admitted yet, in Kueue's words"),
)  # fmt: skip
"""What is used where a cluster's Kueue was switched on, beside MANAGE: a role of its own (``kueue.yaml``)."""

TENANT_CLUSTERS: tuple[Rule, ...] = (
    Rule("rbac.authorization.k8s.io", ("clusterroles", "clusterrolebindings"), ("get",),
         "whether a deleted tenant cluster left its ClusterRole behind"),
    Rule("scheduling.k8s.io", ("priorityclasses",), ("list",), "whether it left objects of its own behind"),
    Rule("storage.k8s.io", ("storageclasses",), ("list",), "whether it left objects of its own behind"),
    Rule("", ("persistentvolumes",), ("list",), "whether it left objects of its own behind"),
)  # fmt: skip
"""On the whole host, beside MANAGE, where tenant clusters are made. It is optional: without it none can be."""

FLUX: tuple[Rule, ...] = (
    Rule("helm.toolkit.fluxcd.io", ("helmreleases",), ("get", "create", "patch", "delete"),
         "what has Flux install and remove a tenant cluster"),
    Rule("source.toolkit.fluxcd.io", ("helmrepositories", "ocirepositories"), ("get", "create", "patch", "delete"),
         "where its chart comes from"),
)  # fmt: skip
"""In the one namespace where Flux's objects are."""

IN_TENANT_NAMESPACE: tuple[Rule, ...] = (
    Rule("", ("secrets",), ("get",), "the way into a tenant cluster: one Secret, by its name, never listed"),
    Rule("", ("configmaps",), ("get", "create", "patch", "delete"), "whom its API server believes"),
    Rule("apps", ("statefulsets",), ("get", "patch"), "whether its control plane runs; pause and resume"),
    Rule("", ("persistentvolumeclaims",), ("get", "delete"), "its control plane's volume, when it is deleted"),
)
"""In the namespaces of tenant clusters alone: the portal binds this role to itself there and nowhere else. A Role of
its own for each would not be less: Kubernetes lets nobody write a Role with rights that they do not hold."""

NOT_NEEDED: tuple[Rule, ...] = (
    Rule("", ("pods",), ("create", "delete"), "start and end pods"),
    Rule("", ("namespaces",), ("create", "delete"), "make and remove namespaces"),
    Rule("apps", ("deployments",), ("create", "patch", "delete"), "change workloads"),
    Rule("", ("pods/exec",), ("create",), "run commands in pods"),
    Rule("rbac.authorization.k8s.io", ("clusterrolebindings",), ("create",), "give itself further rights"),
    Rule("", ("secrets",), ("get", "list"), "read secrets"),
)
"""What observing never uses. Asked for to be told: credentials that could do more than read should be changed."""


def reviews(mode: str) -> list[Review]:
    """All rights of a mode (``observe`` or ``manage``), each once, in the order in which they are checked."""
    return list(whys(rules_of(mode)))


def rules_of(mode: str) -> tuple[Rule, ...]:
    """The rules of a mode (``observe`` or ``manage``)."""
    return MANAGE if mode == "manage" else OBSERVE


def whys(rules: tuple[Rule, ...]) -> dict[Review, str]:
    """Each right of these rules once, in their order, with what it is used for."""
    found: dict[Review, str] = {}
    for rule in rules:
        for review in rule.reviews():
            found.setdefault(review, rule.why)
    return found
