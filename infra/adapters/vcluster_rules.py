"""Which values of the vCluster chart a platform may add, and which never: each refusal names the key and says why.

Sources: loft-sh/vcluster chart/values.yaml, chart/templates/_validate.tpl and its page on editions. The OSS image
ignores some Pro keys in silence and fails on others only once it runs, so they are refused before anything is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Path = tuple[str, ...]

TOP_LEVEL = frozenset(
    {"controlPlane", "deploy", "experimental", "exportKubeConfig", "integrations", "logging", "networking", "policies"}
    | {"rbac", "serviceCIDR", "sync", "telemetry"}
)

_PRO = "needs vCluster's Pro image and a license; the portal runs the open-source image"
PRO_KEYS: tuple[str, ...] = (
    "controlPlane.advanced.cloudControllerManager.kubeOvn",
    "controlPlane.advanced.kubeVip",
    "controlPlane.advanced.konnectivity",
    "controlPlane.advanced.registry",
    "controlPlane.backingStore.database.external",
    "controlPlane.backingStore.etcd.embedded",
    "controlPlane.coredns.embedded",
    "controlPlane.hostPathMapper",
    "controlPlane.standalone",
    "deletion",
    "external",
    "experimental.denyProxyRequests",
    "experimental.docker",
    "integrations.argoCD",
    "integrations.certManager",
    "integrations.externalSecrets",
    "integrations.istio",
    "integrations.kubeVirt",
    "integrations.netris",
    "networking.podCIDR",
    "networking.resolveDNS",
    "platform",
    "policies.centralAdmission",
    "privateNodes",
    "pro",
    "sleep",
    "sleepMode",
    "snapshots",
    "sync.fromHost.customResources",
    "sync.fromHost.deviceClasses",
    "sync.toHost.customResources",
    "sync.toHost.namespaces",
    "sync.toHost.pods.hybridScheduling",
    "sync.toHost.resourceClaimTemplates",
    "sync.toHost.resourceClaims",
)
REMOVED_KEYS: tuple[str, ...] = (
    "controlPlane.distro.eks",
    "controlPlane.distro.k0s",
    "controlPlane.distro.k3s",
    "deploy.volumeSnapshotController",
    "experimental.multiNamespaceMode",
    "rbac.enableVolumeSnapshotRules",
    "sync.fromHost.volumeSnapshotClasses",
    "sync.toHost.volumeSnapshotContents",
    "sync.toHost.volumeSnapshots",
)
OWNED_KEYS: tuple[str, ...] = (
    "controlPlane.backingStore",
    "controlPlane.distro.k8s.apiServer.extraArgs",
    "controlPlane.distro.k8s.enabled",
    "controlPlane.distro.k8s.image.tag",
    "controlPlane.distro.k8s.version",
    "controlPlane.ingress.enabled",
    "controlPlane.ingress.host",
    "controlPlane.proxy.extraSANs",
    "controlPlane.statefulSet.highAvailability.replicas",
    "controlPlane.statefulSet.image",
    "controlPlane.statefulSet.persistence.addVolumeMounts",
    "controlPlane.statefulSet.persistence.addVolumes",
    "controlPlane.statefulSet.persistence.volumeClaim.retentionPolicy",
    "exportKubeConfig",
    "policies.limitRange.enabled",
    "policies.networkPolicy.enabled",
    "policies.networkPolicy.workload.publicEgress",
    "policies.podSecurityStandard",
    "policies.resourceQuota",
    "sync.fromHost.nodes",
    "sync.toHost.pods.enforceTolerations",
    "sync.toHost.pods.useSecretsForSATokens",
    "telemetry",
)
"""What the portal writes itself. The backing store is among it: it can't be changed once a tenant cluster is there."""
UNSAFE_KEYS: Mapping[str, str] = {
    "controlPlane.distro.k8s.apiServer.command": "it would replace the API server that the portal configures",
    "controlPlane.distro.k8s.controllerManager.command": "it would replace the program that the portal configures",
    "controlPlane.distro.k8s.scheduler.command": "it would replace the program that the portal configures",
    "controlPlane.statefulSet.args": "it would replace what the program is told by the portal",
    "controlPlane.statefulSet.command": "it would replace the program that the portal configures",
    "experimental.deploy.host": "it applies any object to the host cluster, past the portal's own rules",
    "experimental.syncSettings": "it moves the tenant's pods out of the namespace that is metered and bounded",
    "networking.replicateServices": "it gives a tenant services of other namespaces of the host",
    "policies.networkPolicy.workload.egress": "it would reopen the host's default deny for all tenants",
    "policies.networkPolicy.workload.ingress": "it would reopen the host's default deny for all tenants",
    "plugins": "a plugin runs with the control plane's rights on the host",
    "plugin": "a plugin runs with the control plane's rights on the host",
    "rbac.clusterRole.extraRules": "it gives the control plane further rights on the whole host cluster",
    "rbac.clusterRole.overwriteRules": "it gives the control plane further rights on the whole host cluster",
    "rbac.role.extraRules": "it gives the control plane further rights in its namespace, where the walls are",
    "rbac.role.overwriteRules": "it gives the control plane other rights in its namespace than the portal reckons with",
    "sync.fromHost.configMaps": "it gives every tenant objects of other namespaces of the host",
    "sync.fromHost.nodes.syncBackChanges": "a tenant could change the labels and taints of the host's nodes",
    "sync.toHost.networkPolicies": "an egress rule of the tenant would reopen the host's default deny",
    "sync.fromHost.secrets": "it gives every tenant secrets of other namespaces of the host",
    "sync.toHost.persistentVolumes": "a tenant could mount any folder of a node through a PersistentVolume",
    "sync.toHost.priorityClasses": "a tenant could make priority classes of the whole host cluster",
    "sync.toHost.serviceAccounts": "a tenant could make accounts on the host that a cloud hands credentials to",
    "sync.toHost.storageClasses": "a tenant could have a provisioner of the host make volumes of any of its paths",
}


class ValuesRefused(ValueError):
    """Values that are not taken. ``errors``: a key and a sentence for each."""

    def __init__(self, errors: list[tuple[str, str]]) -> None:
        self.errors = errors
        super().__init__(" ".join(f"{key}: {why}" for key, why in errors))


def check_extra(extra: Mapping[str, Any]) -> None:
    """Let the platform's own values pass, or name every key that can't be taken.

    Raises:
        ValuesRefused: a key is Pro-only, was removed, is the portal's, opens a wall, or is not known at the top.
    """
    errors = [(".".join(path), why) for path in _paths(extra) if (why := _refusal(path))]
    errors += _images(extra)
    if errors:
        raise ValuesRefused(errors)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``over`` laid on top: mappings are merged, anything else is replaced (as Helm does)."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]  # both are mappings
    return result


def _paths(values: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    """Every key with those above it, outer ones first."""
    for key, value in values.items():
        path = (*above, str(key))
        yield path
        if isinstance(value, Mapping):
            yield from _paths(value, path)


def _lowered(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(key.lower() for key in keys)


_PRO_KEYS, _REMOVED_KEYS, _OWNED_KEYS = _lowered(PRO_KEYS), _lowered(REMOVED_KEYS), _lowered(OWNED_KEYS)
_UNSAFE_KEYS = {key.lower(): why for key, why in UNSAFE_KEYS.items()}


def _refusal(path: Path) -> str:
    # The program reads its configuration without regard to case, whatever the chart makes of it.
    key = ".".join(path).lower()
    if len(path) == 1 and path[0] not in TOP_LEVEL and key not in (*_PRO_KEYS, *_UNSAFE_KEYS):
        return f"the chart has no such key; it has {', '.join(sorted(TOP_LEVEL))}."
    if key in _PRO_KEYS or (path[0] == "sync" and path[-1].lower() == "patches"):
        return f"{_PRO}. Take it out."
    if key in _REMOVED_KEYS:
        return "the chart has removed it and fails on it. Take it out."
    if key in _OWNED_KEYS:
        return "the portal writes this itself, so that quota, walls and access are what its pages say. Take it out."
    if why := _UNSAFE_KEYS.get(key):
        return f"{why}. Take it out."
    return ""


def _images(extra: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a path alone does not tell: the Pro image, wherever it is named."""
    return [
        (".".join(path), f"{_PRO}. Use vcluster-oss.")
        for path in _paths(extra)
        if not isinstance(value := _at(extra, path), Mapping) and "vcluster-pro" in str(value)
    ]


def _at(values: Mapping[str, Any], path: Path) -> Any:
    for key in path:
        values = values[key]
    return values
