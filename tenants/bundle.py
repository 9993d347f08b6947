"""The objects that make a tenant's namespace safe to use. Pure: facts in, manifests out.

One bundle a tenant and managed cluster: the namespace with its Pod Security labels, a ResourceQuota that is the
allotment, a LimitRange (a quota on a resource refuses pods without a figure), network policies that start from
"nothing", and roles for the tenant's people. Shapes are those of Kubernetes 1.30 and later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from infra.names import owner_labels
from infra.pod_devices import GPU, GPU_SHARED, MIG_PREFIX

Manifest = dict[str, Any]

OWNER_KIND = "namespace"
QUOTA_NAME = "aifactory-quota"

# Link-local (cloud metadata lives at 169.254.169.254), loopback and the private ranges of RFC 1918 and RFC 6598.
PRIVATE_RANGES = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
)


@dataclass(frozen=True)
class BundleFacts:
    """What a bundle is made of.

    ``gpu_resources`` maps each extended resource that the cluster's nodes offer (``nvidia.com/gpu``,
    ``nvidia.com/mig-1g.10gb``) to what the tenant may request of it there. A resource that is offered and not
    allotted is written as 0: a key left out would mean unlimited.
    """

    tenant_slug: str
    tenant_id: UUID
    namespace_id: UUID
    namespace: str
    gpu_resources: Mapping[str, int] = field(default_factory=dict)


def is_gpu_resource(name: str) -> bool:
    """Whether a resource name of a node is a way to get a GPU: whole cards, shared ones, or MIG slices."""
    return name in (GPU, GPU_SHARED) or name.startswith(MIG_PREFIX)


def namespace_bundle(facts: BundleFacts) -> list[Manifest]:
    """The manifests of a tenant's namespace, in the order in which they must be applied."""
    return [
        _namespace(facts),
        _resource_quota(facts),
        _limit_range(facts),
        *_network_policies(facts),
        *_rbac(facts),
    ]


def _meta(facts: BundleFacts, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": facts.namespace, "labels": _labels(facts)}


def _labels(facts: BundleFacts) -> dict[str, str]:
    return owner_labels(OWNER_KIND, facts.namespace_id, facts.tenant_id)


def _namespace(facts: BundleFacts) -> Manifest:
    labels = _labels(facts) | {
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/enforce-version": "latest",
        "pod-security.kubernetes.io/audit": "restricted",
        "pod-security.kubernetes.io/audit-version": "latest",
        "pod-security.kubernetes.io/warn": "restricted",
        "pod-security.kubernetes.io/warn-version": "latest",
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": facts.namespace, "labels": labels}}


def _resource_quota(facts: BundleFacts) -> Manifest:
    resources = {GPU: 0} | dict(facts.gpu_resources)
    hard = {f"requests.{name}": str(amount) for name, amount in sorted(resources.items())}
    hard["services.loadbalancers"] = "0"
    hard["services.nodeports"] = "0"
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": _meta(facts, QUOTA_NAME),
        "spec": {"hard": hard},
    }


def _limit_range(facts: BundleFacts) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": _meta(facts, "aifactory-defaults"),
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "250m", "memory": "512Mi"}}]},
    }


def _network_policies(facts: BundleFacts) -> list[Manifest]:
    dns = {
        "to": [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            }
        ],
        "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
    }
    # Weights come over HTTPS from a hub or mirror on a public address; nothing private, and never the metadata
    # service of a cloud, which would hand out the node's credentials.
    public_https = {
        "to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(PRIVATE_RANGES)}}],
        "ports": [{"protocol": "TCP", "port": 443}],
    }
    specs: dict[str, dict[str, Any]] = {
        "aifactory-default-deny": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        "aifactory-allow-own-namespace": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": {}}]}],
            "egress": [{"to": [{"podSelector": {}}]}],
        },
        "aifactory-allow-dns": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [dns]},
        "aifactory-allow-public-https": {
            "podSelector": {},
            "policyTypes": ["Egress"],
            "egress": [public_https],
        },
    }
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": _meta(facts, name),
            "spec": spec,
        }
        for name, spec in specs.items()
    ]


READ_VERBS = ["get", "list", "watch"]
VIEWER_RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["pods", "pods/log", "services", "events"], "verbs": READ_VERBS},
    {"apiGroups": [""], "resources": ["resourcequotas", "limitranges"], "verbs": READ_VERBS},
    {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": READ_VERBS},
]
DEVELOPER_RULES: list[dict[str, Any]] = [
    *VIEWER_RULES,
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
    {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["create"]},
]
ROLE_RULES = {"owner": DEVELOPER_RULES, "developer": DEVELOPER_RULES, "viewer": VIEWER_RULES}


def group_name(tenant_slug: str, role: str) -> str:
    """The Kubernetes group of a tenant's members in a role, as the API server sees it in their token."""
    return f"aifactory:{tenant_slug}:{role}"


def _rbac(facts: BundleFacts) -> list[Manifest]:
    """A Role and a RoleBinding for each tenant role. Secrets and writes stay with the portal."""
    objects: list[Manifest] = []
    for role, rules in ROLE_RULES.items():
        name = f"aifactory-{role}"
        objects.append(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": _meta(facts, name),
                "rules": rules,
            }
        )
        objects.append(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": _meta(facts, name),
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                "subjects": [
                    {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "Group",
                        "name": group_name(facts.tenant_slug, role),
                    }
                ],
            }
        )
    return objects
