"""A tenant on clusters that are connected and watched as in production, and the means to let the work be done."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import connection
from django.db.models.functions import Now

from infra.kube.client import KubeClient
from infra.kube.errors import NotFound
from infra.models import Cluster, GPUType, Node, Site
from infra.selectors.isolation import cluster_lacks
from infra.services.clusters import cluster_connect
from infra.services.isolation import isolation_say
from infra.watcher.process import Watcher
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import run_item
from tenants.models import ModelDeployment, ModelReplica, Tenant
from tests.support.served import ServedCluster
from tests.support.tenants import give_quota, make_tenant

ADMIN = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)
KINDS = ("deployment", "replica", "namespace", "isolation")
PATIENCE = 120.0
_numbers = itertools.count(1)
Fleet = Mapping[str, ServedCluster]
"""Running clusters by name: a simulator's, or real control planes."""


@dataclass
class Estate:
    """Connected clusters by name, and one tenant that may use all their sites."""

    fleet: Fleet
    tenant: Tenant
    clusters: dict[str, Cluster] = field(default_factory=dict)

    def client(self, name: str) -> KubeClient:
        """The portal's own client of a cluster."""
        return KubeClient.for_cluster(self.clusters[name])

    def quota(self, product: str, cards: int) -> GPUType:
        """Give the tenant a quota on the type whose slug holds ``product``."""
        gpu_type = GPUType.objects.get(slug__contains=product)
        give_quota(self.tenant, gpu_type, cards)
        return gpu_type

    def deployment(self, name: str = "qwen3-8b") -> ModelDeployment:
        """The newest row of that name, also where it is deleted."""
        with system_scope("test"):
            rows = ModelDeployment.objects.filter(tenant=self.tenant, name=name).order_by("-created_at")
            return rows.select_related("tenant").first()  # type: ignore[return-value]

    def replicas(self, name: str = "qwen3-8b") -> list[ModelReplica]:
        """The live replicas of a deployment, by index."""
        with system_scope("test"):
            rows = ModelReplica.objects.filter(
                tenant=self.tenant, deployment__name=name, deleted_at__isnull=True
            ).select_related("cluster")
            return list(rows.order_by("index"))

    def objects(self, cluster: str, kind: str = "Deployment") -> list[dict[str, Any]]:
        """Objects of a kind in the tenant's namespace."""
        api = "v1" if kind in ("Pod", "Service", "ResourceQuota") else "apps/v1"
        return self.client(cluster).list_all(api, kind, namespace=self.tenant.namespace).items

    def until(self, done: Callable[[], Any], what: str = "", *, patience: float = PATIENCE) -> Any:
        """Let the reconcilers work until ``done`` is true; its value. Fails with what they last said."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            work()
            if answer := done():
                return answer
            time.sleep(0.05)
        rows = WorkItem.objects.filter(kind__in=KINDS).values_list("kind", "last_error")
        said = [f"{kind}: {error}" for kind, error in rows if error]
        with system_scope("test"):
            state = [f"{one.name} {one.phase}: {one.waiting}" for one in ModelDeployment.objects.all()]
        raise AssertionError(f"{what or done} did not come about; {state}; {said}")

    def ready(self, name: str = "qwen3-8b") -> Any:
        """Whether the deployment is Ready at its newest generation."""
        row = self.deployment(name)
        return row.phase == "Ready" and row.observed_generation == row.generation


def work(*kinds: str) -> None:
    """Run what is due, and what only waits for its next look (tests don't wait for a back-off)."""
    items = WorkItem.objects.filter(kind__in=kinds or KINDS, next_attempt_at__isnull=False).exclude(
        lease_until__gt=Now()
    )
    for pk, kind in items.order_by("next_attempt_at", "id").values_list("pk", "kind"):
        if kind != "deployment":
            WorkItem.objects.filter(pk=pk).update(next_attempt_at=WorkItem.objects.get(pk=pk).marked_at)
        run_item(pk)


@contextmanager
def estate(fleet: Fleet, *names: str, slug: str = "", clear: bool = True, tick: float = 0.2) -> Iterator[Estate]:
    """Connect these clusters in manage mode, watch them, and wait until their nodes are known.

    ``slug``: the tenant's; one of its own for this estate where it is empty, so that nobody waits for the end of a
    namespace whose name is wanted again (a real server takes five seconds for it at the least).
    ``clear``: delete the tenant's namespaces at the end. ``tick``: seconds between the watcher's looks at its leases.
    """
    made = Estate(fleet, make_tenant(slug or f"ml-team-{os.getpid()}-{next(_numbers)}", sites=()))
    for name in names:
        site, _ = Site.objects.get_or_create(slug=f"site-{name}", defaults={"name": name})
        made.clusters[name] = cluster_connect(
            slug=name, site=site, mode="manage", kubeconfig=fleet[name].kubeconfig.read_text(), actor=ADMIN
        )
        made.tenant.site_rows.create(site=site)
    stop = threading.Event()
    watcher = Watcher(name="test", committers=1, tick=tick)

    def watch() -> None:
        try:
            watcher.run(stop)
        finally:
            connection.close()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        end = time.monotonic() + PATIENCE
        while any(
            not Node.objects.filter(cluster=cluster, pool__isnull=False, gone_at__isnull=True).exists()
            for cluster in made.clusters.values()
        ):
            assert time.monotonic() < end, "the nodes were not seen"
            time.sleep(0.1)
        _isolated(made)
        yield made
    finally:
        try:
            for name in names if clear else ():
                clear_namespace(made, name, made.tenant.namespace)
            for name in names if clear and slug else ():
                wait_gone(made.client(name), "v1", "Namespace", made.tenant.namespace)
        finally:
            stop.set()
            thread.join(20)


def _isolated(made: Estate) -> None:
    """Wait until each cluster has shown that it keeps tenants apart; of its network somebody must say so."""
    for cluster in made.clusters.values():
        isolation_say(
            cluster=cluster, piece="network-policies", how="declared", text="pods of tests have no network", actor=ADMIN
        )
    end = time.monotonic() + PATIENCE
    while lacking := {name: why for name, one in made.clusters.items() if (why := cluster_lacks(one))}:
        assert time.monotonic() < end, f"not isolated: {lacking}"
        work("isolation")
        time.sleep(0.2)
        for cluster in made.clusters.values():
            cluster.refresh_from_db()


def clear_namespace(made: Estate, cluster: str, namespace: str) -> None:
    """Delete a namespace with what holds cards in it; return when that is gone (the namespace itself takes longer).

    Its workloads first: a real server comes back to a namespace that holds pods only after their grace period, however
    soon they are gone. Then the pods that somebody made by hand, which go with nothing else.
    """
    client, call = made.client(cluster), made.fleet[cluster].call
    for one in client.list_all("apps/v1", "Deployment", namespace=namespace).items:
        metadata = one["metadata"]
        client.delete("apps/v1", "Deployment", metadata["name"], namespace, uid=metadata["uid"])
    end = time.monotonic() + PATIENCE
    while pods := client.list_all("v1", "Pod", namespace=namespace).items:
        assert time.monotonic() < end, f"pods in {namespace} do not go"
        for one in pods:
            if not one["metadata"].get("ownerReferences"):
                call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{one['metadata']['name']}?gracePeriodSeconds=0")
        time.sleep(0.1)
    with contextlib.suppress(NotFound):
        uid = client.get("v1", "Namespace", namespace)["metadata"]["uid"]
        client.delete("v1", "Namespace", namespace, uid=uid)


def wait_gone(client: KubeClient, *key: str) -> None:
    """Wait until the object is not there any more."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            client.get(*key)
        except NotFound:
            return
        assert time.monotonic() < end, f"{key} does not go"
        time.sleep(0.1)
