"""The main job on real parts: Keycloak, two Kubernetes control planes, Prometheus, and every process of ours.

Real: etcd, kube-apiserver, controller-manager and scheduler of two clusters; Keycloak; Prometheus; PostgreSQL, Valkey,
web, worker, beat and two watchers with production settings; Chromium. In place of kubelets and GPUs: kwok's nodes, and
an exporter that writes dcgm-exporter's and kube-state-metrics' text for the pods that are on them. The portal reaches
the clusters as a service account that holds ``deploy/clusterroles/manage.yaml`` and no more. To come to the end of the
month the portal's clock is moved (see tests/browser/test_story.py). No evidence is written by the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from portal.cli.postgres import SUPERUSER
from portal.kernel.clock import period_of
from tests.browser import steps
from tests.browser.person import Person
from tests.browser.podtimes import PodTimes
from tests.support.controlplane import ControlPlanes, control_planes
from tests.support.db import Clone
from tests.support.instance import RunningPortal, running_portal, wait_for
from tests.support.keycloak import Keycloak
from tests.support.prometheus import Exporter

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1200)]

CLUSTERS = tuple(steps.ALLOWED)
QUICK = {"AIF_WATCH_SETTLE_SECONDS": "1", "AIF_TELEMETRY_LAG_SECONDS": "5"}
"""Here nothing comes late."""
GROUP = "/ml-team/developers"
BREAK_GLASS = """
import os
from portal.accounts.services import user_create
from portal.kernel.actors import Actor
user_create(
    username="break-glass", password=os.environ["PASSWORD"], platform_role="platform-admin", actor=Actor.system("test")
)
"""


@dataclass
class Estate:
    """Everything that runs."""

    planes: ControlPlanes
    portal: RunningPortal
    keycloak: Keycloak


@pytest.fixture
def estate(clone: Clone, tmp_path: Path, keycloak_server: Keycloak) -> Iterator[Estate]:
    """A new installation beside two real clusters, signing in through Keycloak; one local account for break-glass."""
    with (
        control_planes(tmp_path / "planes", *CLUSTERS, fleet=steps.FLEET, arguments=("--prometheus",)) as planes,
        running_portal(
            clone, planes, AIF_WATCH_SETTLE_SECONDS="1", AIF_TELEMETRY_LAG_SECONDS="5", **keycloak_server.env()
        ) as portal,
    ):
        keycloak_server.make_realm(portal.url)
        portal.watchers = 2
        portal.start()
        portal.manage("shell", "-c", BREAK_GLASS, PASSWORD=steps.PASSWORD)
        portal.wait_ready()
        yield Estate(planes, portal, keycloak_server)


@pytest.fixture
def times(estate: Estate) -> Iterator[dict[str, PodTimes]]:
    """What each cluster says of the tenant's pods, from the beginning."""
    found = {name: PodTimes(estate.planes[name], steps.NAMESPACE) for name in CLUSTERS}
    for one in found.values():
        one.start()
    yield found
    for one in found.values():
        one.stop()


def test_from_keycloak_to_the_bill(estate: Estate, times: dict[str, PodTimes], chromium: Browser) -> None:
    portal, planes, keycloak = estate.portal, estate.planes, estate.keycloak
    month = period_of(datetime.now(UTC), "UTC")
    label = f"{month.year:04d}-{month.month:02d}"
    admin, developer = Person(chromium, portal.url), Person(chromium, portal.url)

    admin.sign_in("break-glass", steps.PASSWORD)
    for name in CLUSTERS:
        steps.connect(admin, planes[name], planes[name].manage_kubeconfig)
    for name in CLUSTERS:
        steps.await_nodes(admin, name)
        add_prometheus(admin, name, planes.prometheus_url)
    steps.make_tenant(admin)
    map_group(admin)
    steps.set_prices(admin, month.start)

    sign_in_through_keycloak(developer, "ml-developer", keycloak.passwords["ml-developer"])
    steps.deploy(developer)
    steps.await_ready(developer)
    made = {name: steps.objects(planes[name]) for name in CLUSTERS}
    assert {name: len(found) for name, found in made.items()} == {"alpha": 2, "beta": 2}, made
    refused_over_quota(planes)
    charged = steps.charges_so_far(developer)
    assert charged > 0
    cards_are_known(estate)

    steps.repair_drift(portal, developer)
    group_is_removed(estate, developer)

    steps.delete(developer)
    for name, paths in made.items():
        for path in paths:
            assert planes[name].call("GET", path)[0] == 404, path
    assert steps.held(portal) == 0, "reservations are released"

    runs = {name: one.finish() for name, one in times.items()}
    assert {name: len(pods) for name, pods in runs.items()} == {"alpha": 2, "beta": 1}, runs
    assert steps.charges_so_far(developer) >= charged
    expected = steps.cost(runs, month)

    steps.skip_to(portal, month.end + timedelta(minutes=5))
    assert steps.close(admin, label) == expected
    # By the portal's clock nobody did anything for a day: the session is over.
    assert developer.go("/t/ml-team/bills/").get_by_role("link", name="Sign in with Keycloak").is_visible()
    reader = Person(chromium, portal.url)
    sign_in_through_keycloak(reader, "ml-developer", keycloak.passwords["ml-developer"])
    steps.read_bill(reader, label, expected)
    assert admin.complaints + developer.complaints + reader.complaints == []
    assert portal.errors == []


def sign_in_through_keycloak(person: Person, username: str, password: str) -> None:
    """The link on our page, Keycloak's own form, and back."""
    page = person.go("/auth/login")
    page.get_by_role("link", name="Sign in with Keycloak").click()
    page.locator("#username").fill(username)
    page.locator("#password").fill(password)
    page.locator("#kc-login").click()
    page.get_by_role("button", name="Sign out").wait_for(state="attached")


def map_group(admin: Person) -> None:
    """Who is in the group is a developer of the team."""
    admin.go("/platform/groups/")
    values = {"Claim": "groups", "Value": GROUP, "Tenant": "ml-team", "Role in the tenant": "developer"}
    admin.send(steps.form_with(admin, "Add"), values, "Add")


def add_prometheus(admin: Person, name: str, address: str) -> None:
    """On the cluster's page: one Prometheus has the series of both clusters."""
    page = admin.go(f"/platform/clusters/{name}/sources")
    form = page.locator(f"form[action='/platform/clusters/{name}/sources/metrics']")
    page.locator("details", has=form).locator("summary").click()
    admin.send(form, {"Address": address, "Labels of this cluster": f"cluster={name}"}, "Test and store")


def refused_over_quota(planes: ControlPlanes) -> None:
    """Somebody with every right on the cluster makes a pod beside the portal's: the API server itself refuses it."""
    container = {
        "name": "sleep",
        "image": "busybox:1",
        "resources": {
            "requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"},
            "limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"},
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "ninth", "namespace": steps.NAMESPACE},
        "spec": {
            "containers": [container],
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    }
    for name in CLUSTERS:
        code, answer = planes[name].call("POST", f"/api/v1/namespaces/{steps.NAMESPACE}/pods", pod)
        assert code == 403, answer
        assert "exceeded quota" in answer["message"], answer["message"]
        assert "nvidia.com/gpu" in answer["message"], answer["message"]


def cards_are_known(estate: Estate) -> None:
    """Prometheus tells which card each pod holds; it comes to stand in the allocations."""
    truth = {
        (cluster, card["pod"]): card["uuid"]
        for cluster in CLUSTERS
        for card in Exporter(estate.planes[cluster].exporter_url).cards()
        if card["namespace"] == steps.NAMESPACE
    }
    assert len(truth) == 2, truth

    def told() -> bool:
        for name in ("infra.telemetry.read", "billing.meter_hours"):
            estate.portal.tick(name)
        query = """
            SELECT c.slug, a.pod_name, a.device_uuid FROM billing_deviceallocation a
            JOIN infra_cluster c ON c.id = a.cluster_id WHERE a.ended_at IS NULL
        """
        with estate.portal.clone.connect(SUPERUSER) as connection:
            rows = connection.execute(query).fetchall()
        return {(cluster, pod): uuid for cluster, pod, uuid in rows} == truth

    try:
        wait_for(told, f"the allocations' cards {truth}", patience=240)
    except AssertionError as error:
        raise AssertionError(f"{error}; of the sources it is known: {_telemetry(estate)}") from None


def _telemetry(estate: Estate) -> list[object]:
    """What the sources' conditions say, and how far they were read."""
    with estate.portal.clone.connect(SUPERUSER) as connection:
        sources = connection.execute("SELECT read_until, s.* FROM infra_telemetrysource s").fetchall()
        endpoints = connection.execute("SELECT url, last_answer_at, conditions FROM infra_clusterendpoint").fetchall()
        cards = connection.execute("SELECT * FROM infra_devicesighting").fetchall()
        work = connection.execute("SELECT kind, next_attempt_at, last_error FROM kernel_workitem").fetchall()
    return [sources, endpoints, cards, work]


def group_is_removed(estate: Estate, developer: Person) -> None:
    """Taken out of the group in Keycloak, the open page stops working at the next refresh; put back, it works again."""
    page = developer.go("/t/ml-team/deployments/qwen3-8b/")
    estate.keycloak.remove_from_group("ml-developer", GROUP)
    refresh_now(estate)
    answer = page.reload()
    assert answer is not None
    assert answer.status == 404, developer.text()
    assert "qwen3-8b" not in developer.text()
    developer.complaints.clear()  # the browser tells of the 404
    estate.keycloak.add_to_group("ml-developer", GROUP)
    refresh_now(estate)
    developer.go("/t/ml-team/deployments/qwen3-8b/")


def refresh_now(estate: Estate) -> None:
    """As if the time until the next refresh were over."""
    with estate.portal.clone.connect(SUPERUSER) as connection:
        connection.execute("UPDATE portal_auth_oidcsession SET next_refresh_at = now()")
