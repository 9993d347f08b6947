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

from infra.adapters.vcluster_state import MANAGED_BY
from infra.names import owner_labels
from infra.pod_devices import GPU, GPU_SHARED, MIG_PREFIX
from tenants.quota_keys import HAMI_CORES, HAMI_MEMORY, MEMORY_FENCE, REQUESTS, checked

Manifest = dict[str, Any]

OWNER_KIND = "namespace"
QUOTA_NAME = "aifactory-quota"
CLOSED_KEYS = ("services.loadbalancers", "services.nodeports")
"""Ways out of a namespace that are always shut."""

# Link-local (cloud metadata lives at 169.254.169.254), loopback and the private ranges of RFC 1918 and RFC 6598; and
# what some clouds answer under public addresses (168.63.129.16, 192.0.0.192). Of IPv6 nothing is opened at all, so
# fd00:ec2::254 is as closed as the rest.
PRIVATE_RANGES = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
)


@dataclass(frozen=True)
class HamiLimits:
    """What the HAMi shares of a namespace may add up to.

    ``memory_mib`` and ``cores`` (percent) are summed over cards, as HAMi does; ``fence_mib`` is what the API server
    counts of the same memory: each container's figure once, however many cards it has.
    """

    memory_mib: int = 0
    cores: int = 0
    fence_mib: int = 0

    def __add__(self, other: HamiLimits) -> HamiLimits:
        return HamiLimits(
            self.memory_mib + other.memory_mib, self.cores + other.cores, self.fence_mib + other.fence_mib
        )


@dataclass(frozen=True)
class GpuLimits:
    """What a namespace may request of cards: by extended resource, and of shared cards (None: none on the cluster)."""

    resources: Mapping[str, int] = field(default_factory=dict)
    hami: HamiLimits | None = None


@dataclass(frozen=True)
class BundleFacts:
    """What a bundle is made of.

    ``gpu_resources`` maps each extended resource that the cluster's nodes offer (``nvidia.com/gpu``,
    ``nvidia.com/mig-1g.10gb``) to what the tenant may request of it there. A resource that is offered and not
    allotted is written as 0: a key left out would mean unlimited. ``hami`` is set where the cluster shares cards.
    ``limits``: more keys of the ResourceQuota, as a platform-admin gave them. ``annotations`` of the namespace:
    what the tenant may run, for the cluster's admission policies
    (:func:`infra.adapters.admission.namespace_annotations`).
    ``people``: whether the tenant's people get roles in it, and its pods a way out to public addresses; around a
    tenant cluster they don't: people work inside, and only the control plane has that way.
    """

    tenant_slug: str
    tenant_id: UUID
    namespace_id: UUID
    namespace: str
    gpu_resources: Mapping[str, int] = field(default_factory=dict)
    hami: HamiLimits | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    people: bool = True


def is_gpu_resource(name: str) -> bool:
    """Whether a resource name of a node is a way to get a GPU: whole cards, shared ones, or MIG slices."""
    return name in (GPU, GPU_SHARED) or name.startswith(MIG_PREFIX)


def namespace_bundle(facts: BundleFacts) -> list[Manifest]:
    """The manifests of a tenant's namespace, in the order in which they must be applied."""
    return [
        _namespace(facts),
        resource_quota(facts),
        _limit_range(facts),
        *_network_policies(facts),
        *(_rbac(facts) if facts.people else ()),
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
    metadata: dict[str, Any] = {"name": facts.namespace, "labels": labels}
    if facts.annotations:
        metadata["annotations"] = dict(facts.annotations)
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def resource_quota(facts: BundleFacts) -> Manifest:
    """The ResourceQuota alone. Raises WrongQuotaKeys where the API server would take a key for something else."""
    resources = {GPU: 0} | dict(facts.gpu_resources)
    hard = {key: str(value) for key, value in facts.limits.items()}
    hard |= {f"{REQUESTS}{name}": str(amount) for name, amount in resources.items()}
    if facts.hami is not None:
        hard[HAMI_MEMORY] = str(facts.hami.memory_mib)
        hard[HAMI_CORES] = str(facts.hami.cores)
        hard[MEMORY_FENCE] = str(facts.hami.fence_mib)
    hard |= dict.fromkeys(CLOSED_KEYS, "0")
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": _meta(facts, QUOTA_NAME),
        "spec": {"hard": checked(hard)},
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
    # Around a tenant cluster it is for the control plane alone (the identity provider's keys): what the syncer brings
    # from inside carries its label always, whatever other labels the tenant gives it.
    not_synced = {"matchExpressions": [{"key": MANAGED_BY, "operator": "DoesNotExist"}]}
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
            "podSelector": {} if facts.people else not_synced,
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
