"""The main job in Chromium, on all parts of ours as processes: sign in → tenant → quota → deployment → bill.

What is real: the pages, PostgreSQL, Valkey, web, worker, beat and watcher as ``portal.cli up`` starts them with
production settings, and the clusters' own word for when pods ran. What is simulated: the clusters (``simulator``, with
short delays). What is shifted: to come to the end of the month, the portal's processes are ended after the deployment
is gone, and started again with their clock behind the month's end, as if nobody had switched them on until then
(tests/support/shifted.py). Database and clusters keep the machine's clock. No evidence is written by the test.
The same on real control planes, Keycloak and Prometheus: tests/story/test_real_parts.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from portal.kernel.clock import period_of
from tests.browser import steps
from tests.browser.person import Person
from tests.browser.podtimes import PodTimes
from tests.support.db import Clone
from tests.support.instance import RunningPortal, running_portal
from tests.support.simulator import simulator

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def portal(clone: Clone, tmp_path: Path) -> Iterator[RunningPortal]:
    """A new installation beside a simulated fleet: two accounts, nothing else."""
    with simulator(tmp_path / "simulator", fleet=steps.FLEET) as fleet:
        with running_portal(clone, fleet, AIF_WATCH_SETTLE_SECONDS="1") as running:
            running.start()
            running.manage("shell", "-c", steps.PEOPLE, PASSWORD=steps.PASSWORD)
            running.wait_ready()
            yield running


@pytest.fixture
def times(portal: RunningPortal) -> Iterator[dict[str, PodTimes]]:
    """What each cluster says of the tenant's pods, from the beginning."""
    found = {name: PodTimes(portal.clusters[name], steps.NAMESPACE) for name in steps.SITES}
    for one in found.values():
        one.start()
    yield found
    for one in found.values():
        one.stop()


def test_from_sign_in_to_the_bill(portal: RunningPortal, times: dict[str, PodTimes], chromium: Browser) -> None:
    month = period_of(datetime.now(UTC), "UTC")
    label = f"{month.year:04d}-{month.month:02d}"
    admin, developer = Person(chromium, portal.url), Person(chromium, portal.url)

    admin.sign_in("platform-admin", steps.PASSWORD)
    for name in steps.SITES:
        steps.connect(admin, portal.clusters[name])
    for name in steps.SITES:
        steps.await_nodes(admin, name)
    steps.make_tenant(admin)
    steps.add_member(admin, "ml-developer")
    steps.set_prices(admin, month.start)

    developer.sign_in("ml-developer", steps.PASSWORD)
    elsewhere = "Cluster gamma is at site oslo; the tenant's allowed sites are: frankfurt, helsinki."
    steps.deploy(developer, elsewhere)
    steps.await_ready(developer)
    made = {name: steps.objects(portal.clusters[name]) for name in steps.ALLOWED}
    assert {name: len(found) for name, found in made.items()} == {"alpha": 2, "beta": 2}, made
    assert steps.objects(portal.clusters["gamma"]) == [], "a site that the tenant may not use"
    charged = steps.charges_so_far(developer)
    assert charged > 0

    steps.repair_drift(portal, developer)

    steps.delete(developer)
    for name, paths in made.items():
        for path in paths:
            assert portal.clusters[name].call("GET", path)[0] == 404, path
    assert steps.held(portal) == 0, "reservations are released"

    runs = {name: one.finish() for name, one in times.items()}
    assert {name: len(pods) for name, pods in runs.items()} == {"alpha": 2, "beta": 1, "gamma": 0}, runs
    assert steps.charges_so_far(developer) >= charged

    expected = steps.cost(runs, month)

    steps.skip_to(portal, month.end + timedelta(minutes=5))
    assert steps.close(admin, label) == expected
    steps.read_bill(developer, label, expected)
    assert admin.complaints + developer.complaints == []
    assert portal.errors == []
