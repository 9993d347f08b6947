"""The demonstration's clusters: connected, and listed once, so that their nodes are known before the past is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from infra.kube.client import KubeClient
from infra.models import Cluster, Site
from infra.services.clusters import cluster_connect, cluster_rotate_kubeconfig
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
        fleet: name → ``{"kubeconfig": path, "observe_kubeconfig": path, "server": address}``.
    """

    def ensure(name: str) -> Cluster:
        facts, mode = fleet[name], MODES.get(name, Cluster.Mode.MANAGE)
        path = facts["observe_kubeconfig"] if mode == Cluster.Mode.OBSERVE else facts["kubeconfig"]
        kubeconfig = Path(path).read_text()
        cluster = Cluster.objects.filter(slug=name).first()
        if cluster is None:
            return cluster_connect(
                slug=name,
                site=Site.objects.get(slug=site_of(name)),
                mode=mode,
                kubeconfig=kubeconfig,
                labels={"site": site_of(name), "tier": "production"},
                system_namespaces=SYSTEM_NAMESPACES,
                actor=actor,
            )
        if urlsplit(cluster.api_server).netloc != urlsplit(facts["server"]).netloc:
            return cluster_rotate_kubeconfig(cluster=cluster, kubeconfig=kubeconfig, actor=actor)
        return cluster

    return dict(zip(fleet, side_by_side(ensure, fleet), strict=True))


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
