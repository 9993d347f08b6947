"""The same on the simulator, as in the demonstration: an upgrade (a real API server can play none), and robots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from portal.kernel.problems import Invalid
from portal.kernel.scoping import system_scope
from tenants.models import Robot
from tenants.services.tenantcluster_access import robot_create, robot_delete, robot_token
from tenants.services.tenantclusters import tenant_cluster_delete, tenant_cluster_upgrade
from tests.support.estate import ADMIN
from tests.support.standin import StandIn, simulated_standin
from tests.support.tenantclusters import TenantEstate, tenant_estate

__all__ = ["simulated_standin"]  # a fixture, found by its name

pytestmark = pytest.mark.django_db(transaction=True)

SLUG = "ml-team"


@pytest.fixture
def made(simulated_standin: StandIn, settings: Any) -> Iterator[TenantEstate]:
    """The simulated host and one tenant."""
    settings.AIF_VCLUSTER_VERSIONS = ("1.33.0=0.33.1", "1.34.0=0.34.7", "1.35.0=0.35.3")
    with tenant_estate(simulated_standin, SLUG) as found:
        yield found


def test_made_upgraded_used_by_a_robot_and_deleted(made: TenantEstate) -> None:
    row = made.request(SLUG, version="1.33.0")
    made.until(lambda: made.row(row).phase == "Ready", "Ready")
    assert made.inside(row, "GET", "/version")["gitVersion"] == "v1.33.0"
    with pytest.raises(Invalid):
        tenant_cluster_upgrade(row=made.row(row), version="1.35.0", actor=ADMIN)
    tenant_cluster_upgrade(row=made.row(row), version="1.34.0", actor=ADMIN)
    made.until(lambda: made.row(row).running_kubernetes == "v1.34.0", "the newer version inside", soon=True)
    made.until(lambda: made.row(row).phase == "Ready", "Ready again")
    assert made.row(row).running_chart == "0.34.7"
    release = made.standin.release(SLUG)
    assert release is not None
    history = [(one["chartVersion"], one["status"]) for one in release["status"]["history"]]
    assert history == [("0.34.7", "deployed"), ("0.33.1", "superseded")]

    robot = robot_create(row=made.row(row), name="ci", role="edit", actor=ADMIN)
    made.until(lambda: _refreshed(robot).ready_at is not None, "the robot's account", soon=True)
    token = robot_token(robot=_refreshed(robot), actor=ADMIN, seconds=600).token
    assert status_with(made, token) == 200
    robot_delete(robot=_refreshed(robot), actor=ADMIN)
    made.until(lambda: status_with(made, token) == 401, "the token is refused", soon=True)

    tenant_cluster_delete(row=made.row(row), actor=ADMIN)
    made.until(lambda: made.row(row).phase == "Deleted", "the end")
    assert made.standin.get(f"/api/v1/namespaces/vc-{SLUG}") is None


def _refreshed(robot: Robot) -> Robot:
    with system_scope("test"):
        rows = Robot.objects.select_related("tenant_cluster__tenant", "tenant_cluster__cluster")
        return rows.get(pk=robot.pk)


def status_with(made: TenantEstate, token: str) -> int:
    """The status with which the tenant's API server answers a token."""
    server = made.servers[SLUG]
    headers = {"Authorization": f"Bearer {token}"}
    address = f"{server.server}/api/v1/namespaces/default/configmaps"
    return int(server.pool.request("GET", address, headers=headers, retries=False, timeout=30).status)
