"""The first provisioner: Flux installs the vCluster chart from a HelmRelease.

The portal applies the HelmRelease, its repository and the API server's authentication, and leaves the chart's own
objects to Flux. Two things go past it on purpose: a pause (replicas, under a field manager of its own, which Flux is
told to leave alone), and what an uninstall leaves behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from django.conf import settings

from infra.adapters.flux import HELM, Release, helm_release, read_release, repository
from infra.adapters.oidc import authentication_configuration
from infra.adapters.vcluster import AUTHENTICATION_CONFIG_MAP, AUTHENTICATION_KEY, cluster_values
from infra.adapters.vcluster_state import (
    MANAGED_BY,
    PAUSED,
    PAUSED_DATE,
    PAUSED_REPLICAS,
    ControlPlane,
    cluster_role,
    cluster_scoped_owner,
    control_plane_trouble,
    read_control_plane,
    release_labels,
    volume_claim,
)
from infra.kube.apply import Owner, force_fields
from infra.kube.client import WRITE_TIMEOUT, KubeClient, Obj
from infra.kube.errors import ApiMissing, KubeError, NotFound
from infra.names import selector
from infra.selectors.inventory import applied_by
from infra.services.inventory import ApplyReport, inventory_apply, inventory_delete
from portal.kernel.clock import format_rfc3339, utcnow
from portal.kernel.workqueue import Claimed
from tenants.tenantclusters.provisioner import HostView, Left, Moved, Wish

PAUSE_MANAGER = "aifactory-pause"
ACCESS_ROLE = "aifactory-tenant-cluster"
"""The ClusterRole with the portal's rights in ``vc-`` namespaces; the portal may bind it, and gives itself nothing
else (deploy/clusterroles/tenant-clusters.yaml)."""
INSTALLER_ROLE = "aifactory-tenant-installer"
"""The ClusterRole with what the account that Flux acts as may do in ``vc-`` namespaces, and nowhere else."""
_FORCE = force_fields(".spec", ".data", ".subjects", ".roleRef")
_RBAC = "rbac.authorization.k8s.io"
# Kinds without a namespace that a syncer makes on the host, where the platform's values switch them on.
_CLUSTER_SCOPED = (
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("v1", "PersistentVolume"),
)


_NOT_SERVED = (404, 501)
"""Answers to a list of a kind that a server does not have."""


class FluxProvisioner:
    """Tenant clusters by Flux HelmReleases."""

    def apply(self, item: Claimed, wish: Wish, *, suspect_drift: bool) -> ApplyReport:
        """See :class:`~tenants.tenantclusters.provisioner.Provisioner`.

        Raises:
            ValuesRefused: the platform's own values hold a key that can't be taken; nothing was written.
        """
        client = KubeClient.for_cluster(wish.cluster)
        access = [_access(wish, client.subject()), _installer(wish)]
        inventory_apply(
            item=item,
            cluster=wish.cluster,
            owner=_access_owner(wish),
            manifests=access,
            force=_FORCE,
            suspect_drift=suspect_drift,
        )
        return inventory_apply(
            item=item,
            cluster=wish.cluster,
            owner=wish.owner,
            manifests=manifests(wish),
            force=_FORCE,
            suspect_drift=suspect_drift,
        )

    def observe(self, client: KubeClient, wish: Wish) -> HostView:
        """See the protocol. Of the tenant's Secrets exactly one is read, by its name."""
        wanted = _release(wish)
        source = repository(wanted)
        key = (source["apiVersion"], source["kind"], wanted.name, wanted.namespace)
        release = client.get(HELM, "HelmRelease", wanted.name, wanted.namespace)
        state = read_release(release, _get(client, *key))
        found = _control_plane(client, wish)
        trouble = ""
        if found is None or not found.is_ready:
            trouble = self._trouble(client, wish)
        pods = client.list_all(
            "v1", "Pod", namespace=wish.namespace, label_selector=f"{MANAGED_BY}={wish.name}", metadata_only=True
        )
        secret = _get(client, "v1", "Secret", f"vc-{wish.name}", wish.namespace)
        return HostView(state, found, secret, trouble, len(pods.items))

    def pause(self, item: Claimed, client: KubeClient, wish: Wish) -> Moved:
        """See the protocol: what ``vcluster pause`` does."""
        found = _control_plane(client, wish)
        if found is None:
            return "going"
        if found.wanted or not found.paused:
            item.require(WRITE_TIMEOUT)
            now = format_rfc3339(utcnow())
            _scale(client, wish, 0, {PAUSED: "true", PAUSED_REPLICAS: str(found.wanted or 1), PAUSED_DATE: now})
        left = 0
        for pod in _tenant_pods(client, wish):
            left += 1
            if pod["metadata"].get("deletionTimestamp"):
                continue
            item.require(WRITE_TIMEOUT)
            with contextlib.suppress(NotFound):
                client.delete("v1", "Pod", pod["metadata"]["name"], wish.namespace, uid=pod["metadata"]["uid"])
        return "done" if not left and not found.wanted and not found.ready else "going"

    def resume(self, item: Claimed, client: KubeClient, wish: Wish) -> Moved:
        """See the protocol. A StatefulSet at zero that nobody paused is started too: the wish says running."""
        found = _control_plane(client, wish)
        if found is None or (found.wanted and not found.paused):
            return "done"
        item.require(WRITE_TIMEOUT)
        _scale(client, wish, 1, {})
        return "going"

    def remove(self, item: Claimed, client: KubeClient, wish: Wish) -> list[Left]:
        """See the protocol. First Flux's objects, which takes the workloads along; then what an uninstall leaves."""
        report = inventory_delete(item=item, cluster=wish.cluster, owner=wish.owner)
        if not report.done:
            return [Left(str(one.key), one.why) for one in report.remaining]
        left = [*self._workloads(client, wish)]
        access = _access_owner(wish)
        # With the rights in the namespace goes the right to ask for the volume; it was gone before they went.
        if not left and applied_by(access.kind, access.id, wish.cluster.pk).exists():
            left = [*self._volume(item, client, wish)]
        if left:
            return left
        report = inventory_delete(item=item, cluster=wish.cluster, owner=_access_owner(wish))
        return [*(Left(str(one.key), one.why) for one in report.remaining), *self._cluster_wide(client, wish)]

    def _workloads(self, client: KubeClient, wish: Wish) -> Iterator[Left]:
        """The chart's workload and the tenant's pods: Flux and the garbage collector remove them."""
        keys = (("apps/v1", "StatefulSet", wish.name), ("v1", "Service", wish.name))
        for api_version, kind, name in keys:
            if _get(client, api_version, kind, name, wish.namespace) is not None:
                yield Left(f"{kind} {name}", "Flux has not removed it yet")
        if pods := _tenant_pods(client, wish):
            yield Left(f"{len(pods)} pods of the tenant", "they have not ended yet")

    def _volume(self, item: Claimed, client: KubeClient, wish: Wish) -> Iterator[Left]:
        """The control plane's volume has no owner where the chart's policy is Retain: it is deleted by its name."""
        name = volume_claim(wish.name)
        claim = _get(client, "v1", "PersistentVolumeClaim", name, wish.namespace)
        if claim is None:
            return
        if not claim["metadata"].get("deletionTimestamp"):
            item.require(WRITE_TIMEOUT)
            with contextlib.suppress(NotFound):
                client.delete("v1", "PersistentVolumeClaim", name, wish.namespace, uid=claim["metadata"]["uid"])
        yield Left(f"PersistentVolumeClaim {name}", "the cluster is still deleting it")

    def _cluster_wide(self, client: KubeClient, wish: Wish) -> Iterator[Left]:
        """What outlives a namespace. The portal has no right to delete such objects, so it names them."""
        role = cluster_role(wish.name, wish.namespace)
        for kind in ("ClusterRole", "ClusterRoleBinding"):
            if _get(client, f"{_RBAC}/v1", kind, role) is not None:
                yield Left(f"{kind} {role}", f"delete it: kubectl delete {kind.lower()} {role}", ours=False)
        owned = f"{MANAGED_BY}={cluster_scoped_owner(wish.name, wish.namespace)}"
        for api_version, kind in _CLUSTER_SCOPED:
            for one in _list(client, api_version, kind, owned):
                name = one["metadata"]["name"]
                yield Left(f"{kind} {name}", f"delete it: kubectl delete {kind.lower()} {name}", ours=False)

    def _trouble(self, client: KubeClient, wish: Wish) -> str:
        labels = selector(release_labels(wish.name))
        pods = client.list_all("v1", "Pod", namespace=wish.namespace, label_selector=labels)
        events: list[Obj] = []
        for about in (wish.name, f"{wish.name}-0"):
            chosen = f"type=Warning,involvedObject.name={about}"
            events += client.list_all("v1", "Event", namespace=wish.namespace, field_selector=chosen).items
        return control_plane_trouble(pods.items, events)


def manifests(wish: Wish) -> list[Obj]:
    """What the portal applies to the host for a tenant cluster, beside its own rights there."""
    release = _release(wish)
    objects = [repository(release), helm_release(release)]
    if wish.sign_in is not None:
        metadata = {"name": AUTHENTICATION_CONFIG_MAP, "namespace": wish.namespace}
        data = {AUTHENTICATION_KEY: authentication_configuration(wish.sign_in)}
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    return objects


def _release(wish: Wish) -> Release:
    return Release(
        name=wish.name,
        namespace=settings.AIF_TENANT_CLUSTER_NAMESPACE,
        target_namespace=wish.namespace,
        service_account=settings.AIF_TENANT_CLUSTER_INSTALLER,
        repository_url=settings.AIF_VCLUSTER_REPOSITORY,
        chart=settings.AIF_VCLUSTER_CHART,
        version=wish.chart,
        values=cluster_values(wish.facts),
        retry_at=wish.retry_at,
    )


def _access_owner(wish: Wish) -> Owner:
    """An owner of its own: the rights must outlive everything that is removed with them."""
    return replace(wish.owner, kind="tenantclusteraccess")


def _access(wish: Wish, subject: str) -> Obj:
    """The portal's own rights in this one namespace; ``subject``: who the host says it is."""
    kind, namespace, name = "User", "", subject
    if subject.startswith("system:serviceaccount:"):
        kind = "ServiceAccount"
        namespace, _, name = subject.removeprefix("system:serviceaccount:").partition(":")
    who = {"kind": kind, "name": name}
    who |= {"namespace": namespace} if namespace else {"apiGroup": _RBAC}
    return _bound("aifactory-portal", ACCESS_ROLE, wish, who)


def _installer(wish: Wish) -> Obj:
    """The rights of the account that Flux acts as, in this one namespace."""
    namespace, name = settings.AIF_TENANT_CLUSTER_NAMESPACE, settings.AIF_TENANT_CLUSTER_INSTALLER
    who = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    return _bound("aifactory-installer", INSTALLER_ROLE, wish, who)


def _bound(name: str, role: str, wish: Wish, who: Obj) -> Obj:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": wish.namespace},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [who],
    }


def _scale(client: KubeClient, wish: Wish, replicas: int, annotations: dict[str, str]) -> None:
    """Replicas and the pause's annotations, under a manager of their own; annotations left out are taken away."""
    metadata: Obj = {"name": wish.name, "namespace": wish.namespace}
    if annotations:
        metadata["annotations"] = annotations
    manifest = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {"replicas": replicas}}
    client.apply(manifest, field_manager=PAUSE_MANAGER, force=True)


def _control_plane(client: KubeClient, wish: Wish) -> ControlPlane | None:
    found = _get(client, "apps/v1", "StatefulSet", wish.name, wish.namespace)
    return None if found is None else read_control_plane(found)


def _tenant_pods(client: KubeClient, wish: Wish) -> list[Obj]:
    chosen = f"{MANAGED_BY}={wish.name}"
    return client.list_all("v1", "Pod", namespace=wish.namespace, label_selector=chosen, metadata_only=True).items


def _get(client: KubeClient, api_version: str, kind: str, name: str, namespace: str = "") -> Obj | None:
    try:
        return client.get(api_version, kind, name, namespace)
    except NotFound:
        return None


def _list(client: KubeClient, api_version: str, kind: str, chosen: str) -> list[Obj]:
    """Objects of a kind; none where the cluster does not serve it. A missing right is an error: unknown is not none."""
    try:
        return client.list_all(api_version, kind, label_selector=chosen, metadata_only=True).items
    except KubeError as error:
        if error.status in _NOT_SERVED or isinstance(error, ApiMissing):
            return []
        raise
