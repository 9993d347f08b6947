"""vCluster: the values of its Helm chart for a tenant on shared nodes. Pure.

Keys are those of chart/values.yaml of loft-sh/vcluster (0.33 and later). What the platform may add is judged by
:mod:`infra.adapters.vcluster_rules`; what runs is read by :mod:`infra.adapters.vcluster_state`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any
from urllib.parse import urlsplit

from infra.adapters.vcluster_rules import check_extra, merged
from infra.quantity import parse_quantity

STORE = "embedded-database"
"""kine on SQLite in the control plane's volume: the store of the open-source image with one replica."""

AUTHENTICATION_CONFIG_MAP = "aifactory-authentication"
AUTHENTICATION_KEY = "authentication.yaml"
_AUTHENTICATION_DIR = "/etc/aifactory"

CHART_QUOTA: Mapping[str, str] = {
    "count/configmaps": "500",
    "count/endpoints": "500",
    "count/persistentvolumeclaims": "50",
    "count/pods": "500",
    "count/secrets": "500",
    "count/services": "200",
    "limits.cpu": "512",
    "limits.ephemeral-storage": "2Ti",
    "limits.memory": "4Ti",
    "requests.cpu": "256",
    "requests.ephemeral-storage": "1Ti",
    "requests.memory": "2Ti",
    "requests.storage": "2Ti",
    "services.loadbalancers": "0",
    "services.nodeports": "0",
}
"""Every key that the chart has a default for. A key left out keeps the chart's (20 pods, 100Gi of storage), and a
tenant is stuck for a reason that nobody set: so all of them are written always."""

HEADROOM: Mapping[str, str] = {
    "count/configmaps": "20",
    "count/persistentvolumeclaims": "1",
    "count/pods": "3",
    "count/secrets": "20",
    "count/services": "10",
    "limits.cpu": "4",
    "limits.ephemeral-storage": "10Gi",
    "limits.memory": "5Gi",
    "requests.cpu": "2",
    "requests.ephemeral-storage": "2Gi",
    "requests.memory": "4608Mi",
    "requests.storage": "10Gi",
}
"""What the control plane and CoreDNS take of the same quota; it comes on top of what the tenant is given."""

_CONTROL_PLANE = {
    "limits": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi"},
    "requests": {"cpu": "200m", "memory": "512Mi", "ephemeral-storage": "1Gi"},
}


@dataclass(frozen=True)
class Image:
    """A container image: ``registry/repository:tag``."""

    registry: str
    repository: str
    tag: str

    def as_values(self) -> dict[str, str]:
        """As the chart wants it."""
        return {"registry": self.registry, "repository": self.repository, "tag": self.tag}


@dataclass(frozen=True)
class ClusterFacts:
    """What the values of one tenant cluster are made of.

    Attributes:
        name: of the virtual cluster, its StatefulSet and its Services.
        endpoint: ``https://host[:port]`` by which people and the portal reach its API server.
        kubernetes_version: of the tenant's API server, without a ``v``: ``1.35.0``.
        quota: the whole ``hard`` of the chart's ResourceQuota (:func:`full_quota`).
        authentication: whether the ConfigMap with the API server's AuthenticationConfiguration is there.
        node_labels: which of the host's nodes the tenant sees; none: those on which its pods run.
        tolerations: put on each of its pods: ``key=value:Effect``.
        ingress_class: publish the endpoint by an Ingress of this class; empty: the platform does it otherwise.
        extra: the platform's own values; see :func:`~infra.adapters.vcluster_rules.check_extra`.
    """

    name: str
    namespace: str
    endpoint: str
    kubernetes_version: str
    image: Image
    quota: Mapping[str, str]
    authentication: bool = False
    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[str] = ()
    ingress_class: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


def full_quota(limits: Mapping[str, str], gpus: Mapping[str, str]) -> dict[str, str]:
    """The ResourceQuota of the chart: what the tenant is given and the control plane's head-room, and the GPUs.

    Args:
        limits: changes to :data:`CHART_QUOTA`: ``{"requests.cpu": "64"}``; other keys of Kubernetes may be added.
        gpus: as they stand in our own ResourceQuota: ``{"requests.nvidia.com/gpu": "4"}``.
    """
    given = dict(CHART_QUOTA) | dict(limits)
    result = {key: _plus(key, value, HEADROOM.get(key, "0")) for key, value in given.items()}
    return dict(sorted((result | dict(gpus)).items()))


def cluster_values(facts: ClusterFacts) -> dict[str, Any]:
    """The values of the chart: the platform's own under ours.

    Raises:
        ValuesRefused: the platform's values hold a key that can't be taken.
    """
    check_extra(facts.extra)
    return merged(facts.extra, _own(facts))


def version_pair(text: str) -> tuple[int, int]:
    """Major and minor of ``1.35.0``, ``v1.35.4+x`` or ``0.36.1``.

    Raises:
        ValueError: it does not begin with two numbers.
    """
    major, _, rest = text.removeprefix("v").partition(".")
    return int(major), int(rest.partition(".")[0])


def _own(facts: ClusterFacts) -> dict[str, Any]:
    host = urlsplit(facts.endpoint).hostname or ""
    stateful_set: dict[str, Any] = {
        "image": facts.image.as_values(),
        "resources": merged(_CONTROL_PLANE, _given(facts.extra, "controlPlane", "statefulSet", "resources")),
        "highAvailability": {"replicas": 1},
        # "Retain" would leave data-NAME-0 behind for the next tenant cluster of that name.
        "persistence": {"volumeClaim": {"retentionPolicy": "Delete"}},
    }
    k8s: dict[str, Any] = {"image": {"tag": f"v{facts.kubernetes_version.removeprefix('v')}"}}
    if facts.authentication:
        stateful_set["persistence"] |= {
            "addVolumes": [{"name": "authentication", "configMap": {"name": AUTHENTICATION_CONFIG_MAP}}],
            "addVolumeMounts": [{"name": "authentication", "mountPath": _AUTHENTICATION_DIR, "readOnly": True}],
        }
        k8s["apiServer"] = {
            "extraArgs": [f"--authentication-config={_AUTHENTICATION_DIR}/{AUTHENTICATION_KEY}"],
        }
    control_plane: dict[str, Any] = {
        "statefulSet": stateful_set,
        "backingStore": {"database": {"embedded": {"enabled": True}}},
        "distro": {"k8s": k8s},
        "proxy": {"extraSANs": [host, f"{facts.name}.{facts.namespace}.svc"]},
    }
    if facts.ingress_class:
        spec = {"ingressClassName": facts.ingress_class, "tls": []}
        control_plane["ingress"] = {"enabled": True, "host": host, "spec": spec}
    return {
        "controlPlane": control_plane,
        "sync": {
            "toHost": {
                "pods": {"useSecretsForSATokens": True, "enforceTolerations": list(facts.tolerations)},
            },
            "fromHost": {
                "nodes": {
                    "enabled": True,
                    "clearImageStatus": True,
                    "selector": {"all": False, "labels": dict(facts.node_labels)},
                },
            },
        },
        "policies": {
            "podSecurityStandard": "baseline",
            "resourceQuota": {"enabled": True, "quota": dict(facts.quota)},
            "limitRange": {"enabled": True},
            "networkPolicy": {"enabled": True, "workload": {"publicEgress": {"enabled": False}}},
        },
        "exportKubeConfig": {"context": facts.name, "server": facts.endpoint},
        "networking": {"advanced": {"proxyKubelets": {"byHostname": False, "byIP": False}}},
        "telemetry": {"enabled": False},
    }


def _given(values: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """What the platform says at a place where ours are only defaults."""
    found: Any = values
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _plus(key: str, value: str, more: str) -> str:
    """The sum of two quantities; a zero stays zero (it forbids, and head-room must not allow it)."""
    first = parse_quantity(value)
    return _text(key, first + parse_quantity(more)) if first else "0"


def _text(key: str, amount: Fraction) -> str:
    """A quantity as Kubernetes writes it: bytes in the largest binary unit, cores with millis, counts plain."""
    if "memory" in key or "storage" in key:
        for unit, bits in (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
            if amount.denominator == 1 and amount >= 1 << bits and not amount.numerator % (1 << bits):
                return f"{amount.numerator >> bits}{unit}"
    return str(amount.numerator) if amount.denominator == 1 else f"{amount.numerator * 1000 // amount.denominator}m"
