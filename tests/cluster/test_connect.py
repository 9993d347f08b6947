"""Connecting a control plane through the service, with nothing in its place."""

from __future__ import annotations

import pytest

from infra.models import Cluster
from infra.services.clusters import cluster_connect, cluster_rotate_kubeconfig, cluster_set_mode, site_create
from portal.kernel import workqueue
from portal.kernel.actors import Actor
from portal.kernel.conditions import get_condition
from portal.kernel.ids import uuid7
from portal.kernel.problems import Conflict, Invalid
from tests.cluster.backends import Backend

pytestmark = pytest.mark.django_db

ADMIN = Actor(kind="user", name="mia", user_id=uuid7(), platform_role="platform-admin")


def connect(backend: Backend, slug: str, *, mode: str, observe: bool = False) -> Cluster:
    site = site_create(slug=f"site-of-{slug}", actor=ADMIN)
    path = backend.observe_kubeconfig if observe else backend.kubeconfig
    return cluster_connect(slug=slug, site=site, mode=mode, kubeconfig=path.read_text(), actor=ADMIN)


def test_an_observer_s_kubeconfig_is_enough_to_observe_and_too_little_to_manage(backend: Backend) -> None:
    with pytest.raises(Invalid) as caught:
        connect(backend, "too-little", mode="manage", observe=True)
    assert "create namespaces" in caught.value.detail
    assert "patch deployments.apps" in caught.value.detail
    assert "get pods," not in caught.value.detail
    backend.count_anew()
    cluster = connect(backend, "seen", mode="observe", observe=True)
    assert cluster.kubernetes_version.startswith("v1.")
    workqueue.run_due()
    cluster.refresh_from_db()
    for each in ("Reachable", "CredentialsValid"):
        condition = get_condition(cluster.conditions, each)
        assert condition is not None
        assert condition.status == "True"
    with pytest.raises(Invalid, match="lack these rights"):
        cluster_set_mode(cluster=cluster, mode="manage", actor=ADMIN)
    assert backend.writes() == 0, "to connect, to probe and to try to switch changed nothing in the cluster"
    rotated = cluster_rotate_kubeconfig(cluster=cluster, kubeconfig=backend.kubeconfig.read_text(), actor=ADMIN)
    assert cluster_set_mode(cluster=rotated, mode="manage", actor=ADMIN).writable


def test_one_cluster_is_connected_once(backend: Backend) -> None:
    connect(backend, "first", mode="manage")
    with pytest.raises(Conflict, match="already, as first"):
        connect(backend, "second", mode="observe", observe=True)
