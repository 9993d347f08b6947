"""The demonstration's clusters: connected, and listed once, so that their nodes are known before the past is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from infra.isolation import Piece
from infra.kube.client import KubeClient
from infra.models import Cluster, ClusterEndpoint, Site
from infra.services.clusters import cluster_connect, cluster_rotate_kubeconfig
from infra.services.endpoints import endpoint_set
from infra.services.isolation import isolation_say
from infra.watcher import targets
from infra.watcher.commit import commit
from infra.watcher.follower import Follower
from infra.watcher.items import Item
from infra.watcher.source import KubeSource
from portal.demo.parallel import side_by_side
from portal.kernel.actors import Actor
from portal.kernel.scoping import system_scope

MODES = {"gpu-fra-2": Cluster.Mode.OBSERVE}
SYSTEM_NAMESPACES = ("kube-system", "gpu-operator", "opencost")


def site_of(cluster: str) -> str:
    """The site of a cluster of the simulated fleet."""
    return "helsinki" if "-hel-" in cluster else "frankfurt"


def clusters_ensure(fleet: Mapping[str, Mapping[str, Any]], actor: Actor) -> dict[str, Cluster]:
    """Connect what is new; where a cluster moved to another port, give it its new kubeconfig.

    Args:
        fleet: name → ``{"kubeconfig": path, "observe_kubeconfig": path, "server": address}``, and where there
            are any ``"manage_kubeconfig"`` and ``"prometheus"`` (an address).
    """

    def ensure(name: str) -> Cluster:
        facts, mode = fleet[name], MODES.get(name, Cluster.Mode.MANAGE)
        role = "observe" if mode == Cluster.Mode.OBSERVE else "manage"
        # A real control plane has service accounts with our two roles; the simulator's other user may do everything.
        path = facts.get(f"{role}_kubeconfig") or facts["kubeconfig"]
        kubeconfig = Path(path).read_text()
        cluster = Cluster.objects.filter(slug=name).first()
        if cluster is None:
            cluster = cluster_connect(
                slug=name,
                site=Site.objects.get(slug=site_of(name)),
                mode=mode,
                kubeconfig=kubeconfig,
                labels={"site": site_of(name), "tier": "production"},
                system_namespaces=SYSTEM_NAMESPACES,
                actor=actor,
            )
        elif urlsplit(cluster.api_server).netloc != urlsplit(facts["server"]).netloc:
            cluster = cluster_rotate_kubeconfig(cluster=cluster, kubeconfig=kubeconfig, actor=actor)
        _prometheus_ensure(cluster, facts.get("prometheus") or "", actor)
        _network_ensure(cluster, actor)
        return cluster

    return dict(zip(fleet, side_by_side(ensure, fleet), strict=True))


def _prometheus_ensure(cluster: Cluster, url: str, actor: Actor) -> None:
    """One Prometheus tells of all clusters, by their label ``cluster``; none where the fleet has none."""
    role = ClusterEndpoint.Role.METRICS
    if not url or ClusterEndpoint.objects.filter(cluster=cluster, role=role, url=url).exists():
        return
    endpoint_set(cluster=cluster, role=role, url=url, matchers={"cluster": cluster.slug}, actor=actor)


def _network_ensure(cluster: Cluster, actor: Actor) -> None:
    """Say of the pods' network what is true of it: there is none. All else the clusters prove by themselves."""
    if cluster.mode != Cluster.Mode.MANAGE or (cluster.isolation_said.get("declared") or {}).get(Piece.NETWORK.value):
        return
    text = "Pods of the demonstration only stand in for real ones: they have no network, so none reaches another."
    isolation_say(cluster=cluster, piece=Piece.NETWORK, how="declared", text=text, actor=actor)


class _Sink:
    """Keeps what a follower read."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def put(self, item: Item) -> None:
        self.items.append(item)


def list_once(clusters: Mapping[str, Cluster]) -> None:
    """Read each cluster's nodes and pods once, as the watcher would, and let the targets go again."""
    by_id = {cluster.pk: cluster for cluster in clusters.values()}
    with system_scope("demonstration"):
        targets.ensure_targets()
        held = targets.claim("demonstration", limit=4 * len(by_id))
    try:
        side_by_side(
            lambda cluster: _list(cluster, [one for one in held if one.cluster_id == cluster.pk]), by_id.values()
        )
    finally:
        with system_scope("demonstration"):
            targets.release(held)


def _list(cluster: Cluster, held: Iterable[targets.Held]) -> None:
    client = KubeClient.for_cluster(cluster)
    for each in sorted(held, key=lambda one: one.resource):  # nodes before pods
        sink = _Sink()
        Follower(each, KubeSource(lambda: client, each.resource), sink, list).list_all()
        commit(each, sink.items)
