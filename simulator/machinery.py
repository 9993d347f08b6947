"""Puts one cluster together: nodes from the fleet, what runs on them, controllers, saved state."""

from __future__ import annotations

from simulator.cluster import Cluster
from simulator.controllers.base import Manager
from simulator.controllers.collector import Collector
from simulator.controllers.daemonsets import DaemonSets
from simulator.controllers.definitions import Definitions
from simulator.controllers.deployments import Deployments
from simulator.controllers.hami import HamiScheduler
from simulator.controllers.jobs import Jobs
from simulator.controllers.kubelet import Kubelets
from simulator.controllers.namespaces import Namespaces
from simulator.controllers.nodes import LEASES, Nodes
from simulator.controllers.quotas import Quotas
from simulator.controllers.replicasets import ReplicaSets
from simulator.controllers.scheduler import Scheduler
from simulator.controllers.statefulsets import StatefulSets
from simulator.devices import NodeDevices
from simulator.errors import ApiError
from simulator.fleet import FleetError
from simulator.kinds import NAMESPACE, NODE
from simulator.nodes import cards, node_names, node_object
from simulator.objects import name_of, namespace_of
from simulator.options import Options

_SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", LEASES)


def controllers(cluster: Cluster, ca_file: str) -> Manager:
    """All controllers of a cluster."""
    kubelets = Kubelets(cluster)
    manager = Manager(
        cluster,
        [
            Namespaces(cluster, ca_file),
            Collector(cluster),
            Deployments(cluster),
            ReplicaSets(cluster),
            StatefulSets(cluster),
            DaemonSets(cluster),
            Jobs(cluster),
            Quotas(cluster),
            Definitions(cluster),
            *([] if cluster.spec.virtual else [Scheduler(cluster), HamiScheduler(cluster), kubelets, Nodes(cluster)]),
        ],
    )
    if cluster.spec.virtual:
        return manager

    def look(node: str) -> None:
        manager.look(Nodes.name, (node,))
        for key in kubelets.wake_node(node):
            manager.look(Kubelets.name, key)

    cluster.look_at_node = look
    return manager


def furnish_devices(cluster: Cluster, seed: str) -> None:
    """The cards of the fleet's nodes."""
    for pool in cluster.spec.pools:
        for name in node_names(cluster.spec, pool):
            cluster.devices[name] = NodeDevices(pool, cards(seed, cluster.spec, pool, name))


def furnish(cluster: Cluster) -> None:
    """Make the system namespaces and the nodes of the fleet file that are not there yet."""
    for name in _SYSTEM_NAMESPACES:
        if not cluster.store.get(NAMESPACE, "", name):
            cluster.registry.create(NAMESPACE, "", {"metadata": {"name": name}}, Options(manager="simulator"))
    for number, (name, devices) in enumerate(cluster.devices.items()):
        if not cluster.store.get(NODE, "", name):
            node = node_object(cluster.spec, devices.pool, name, number, devices.cards, cluster.clock())
            cluster.registry.create(NODE, "", node, Options(manager="kubelet"))


def deploy(cluster: Cluster) -> None:
    """Create the workloads of the fleet file that are not there yet, in order."""
    for index, body in enumerate(cluster.spec.workloads):
        kind = cluster.registry.kinds.by_kind(str(body.get("apiVersion")), str(body.get("kind")))
        where = f"cluster {cluster.spec.name}: workloads[{index}] ({body.get('kind')} {name_of(body)})"
        if kind is None:
            raise FleetError(f"{where}: the simulator does not know this kind")
        try:
            if not cluster.store.get(kind, namespace_of(body), name_of(body)):
                cluster.registry.create(kind, namespace_of(body), body, Options(manager="simulator"))
        except ApiError as error:
            raise FleetError(f"{where}: {error}") from error
