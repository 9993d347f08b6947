"""The demonstration's clusters: connected, and listed once, so that their nodes are known before the past is told."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
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
    found: dict[str, Cluster] = {}
    for name, facts in fleet.items():
        mode = MODES.get(name, Cluster.Mode.MANAGE)
        path = facts["observe_kubeconfig"] if mode == Cluster.Mode.OBSERVE else facts["kubeconfig"]
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
        found[name] = cluster
    return found


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
        for each in sorted(held, key=lambda one: one.resource):  # nodes before pods
            if each.cluster_id in by_id:
                sink = _Sink()
                client = partial(KubeClient.for_cluster, by_id[each.cluster_id])
                source = KubeSource(client, each.resource)
                Follower(each, source, sink, list).list_all()
                commit(each, sink.items)
    finally:
        with system_scope("demonstration"):
            targets.release(held)
