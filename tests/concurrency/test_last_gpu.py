"""Two hundred asks for eight cards at once: exactly eight hold a reservation. First the race, with the locks off."""

from __future__ import annotations

import pytest
from django.db.models import Sum

from infra.models import Reservation
from infra.services import reservations
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import run_item
from tenants.models import GPUQuota, ModelDeployment, ModelReplica, QuotaAllotment, Tenant
from tenants.services import placing
from tenants.services.deployments import deployment_apply
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import CARD, TESTER, give_quota, make_tenant
from tests.support.threads import at_once
from tests.unit.tenants.manifests import manifest_data

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

QUOTA = 8
ASKS = 200
THREADS = 40


@pytest.fixture
def tenant() -> Tenant:
    """A quota of 8 and plenty of cards on three clusters: what is scarce is the quota."""
    tenant = make_tenant()
    for slug in ("alpha", "beta", "gamma"):
        make_node(make_pool(cluster=make_cluster(slug)), cards=64, name=f"{slug}-0")
    give_quota(tenant, make_type(), QUOTA)
    return tenant


def deploy(tenant: Tenant, names: list[str]) -> None:
    """Apply and place, as a worker does it right after the request; each thread its own deployments."""
    for name in names:
        deployment = deployment_apply(
            tenant=tenant, manifest=manifest_data(name, tenant=tenant.slug), actor=TESTER
        ).deployment
        run_item(WorkItem.objects.get(kind="deployment", object_id=deployment.pk).pk)


def all_at_once(tenant: Tenant, asks: int) -> None:
    names = [f"d{number}" for number in range(asks)]
    jobs = [lambda part=names[thread::THREADS]: deploy(tenant, part) for thread in range(THREADS)]
    failures = [result for result in at_once(jobs, timeout=240) if isinstance(result, BaseException)]
    assert not failures, failures[0]


def held(tenant: Tenant) -> int:
    """Cards that are promised to the tenant."""
    rows = Reservation.objects.filter(tenant_id=tenant.pk, released_at__isnull=True)
    return (rows.aggregate(total=Sum("share"))["total"] or 0) // CARD


def test_without_the_lock_too_many_are_let_in(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    # The lock of the quota alone is off; what it guards (the parts on the clusters) is let be, so that the sum of
    # the reservations shows the race.
    monkeypatch.setattr(placing, "LOCK_QUOTA", False)
    monkeypatch.setattr(reservations, "LOCK_NODES", False)
    monkeypatch.setattr(placing, "allotment_require", lambda **_: None)
    for attempt in range(5):
        names = [f"r{attempt}-{number}" for number in range(THREADS * 4)]
        at_once([lambda part=names[thread::THREADS]: deploy(tenant, part) for thread in range(THREADS)], timeout=240)
        if held(tenant) > QUOTA:
            return
    pytest.fail("the race was not seen without the lock, so the test with it proves nothing")


def test_exactly_eight_hold_a_reservation(tenant: Tenant) -> None:
    all_at_once(tenant, ASKS)
    assert held(tenant) == QUOTA
    with system_scope("test"):
        assert ModelDeployment.objects.count() == ASKS
        assert ModelReplica.objects.count() == QUOTA
        waiting = ModelDeployment.objects.filter(waiting_since__isnull=False)
        assert waiting.count() == ASKS - QUOTA
        assert all("quota" in row.waiting.lower() for row in waiting)
        amounts = QuotaAllotment.objects.aggregate(total=Sum("amount"))["total"]
        assert amounts == QUOTA * CARD == GPUQuota.objects.get().limit
    replicas = Reservation.objects.filter(released_at__isnull=True).values_list("replica_id", flat=True)
    assert len(set(replicas)) == QUOTA


def test_the_last_card_of_a_node_goes_to_one(tenant: Tenant) -> None:
    """The quota is no limit here: what is scarce are the cards, for two tenants at once."""
    other = make_tenant("research", zone="research")
    with system_scope("test"):
        for row in GPUQuota.objects.all():
            row.limit = 100 * CARD
            row.save()
    give_quota(other, make_type(), 100)
    from infra.models import Node

    Node.objects.update(allocatable={"cpu": "192", "memory": "2Ti", "nvidia.com/gpu": "2"}, cards=2)
    jobs = [lambda owner=owner, n=n: deploy(owner, [f"d{n}"]) for n in range(8) for owner in (tenant, other)]
    failures = [result for result in at_once(jobs, timeout=240) if isinstance(result, BaseException)]
    assert not failures, failures[0]
    by_node = Reservation.objects.filter(released_at__isnull=True).values("node").annotate(cards=Sum("cards"))
    assert sorted(row["cards"] for row in by_node) == [2, 2, 2]
