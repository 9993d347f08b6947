"""Many asks at once for the last MIG slices that a quota names: as many as it says hold one. First the race."""

from __future__ import annotations

import pytest
from django.db.models import Sum

from infra.models import Reservation
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import run_item
from tenants.models import ModelDeployment, Tenant
from tenants.services import placing
from tenants.services.deployments import deployment_apply
from tenants.services.profile_quotas import quota_profiles_set
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import TESTER, give_quota, make_tenant
from tests.support.threads import at_once
from tests.unit.tenants.manifests import manifest_data

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

ADMIN = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)
PROFILE, LIMIT, ASKS = "1g.10gb", 2, 12


@pytest.fixture
def tenant() -> Tenant:
    """Plenty of cards and slices on three clusters: what is scarce is the profile."""
    tenant = make_tenant()
    for slug in ("alpha", "beta", "gamma"):
        make_node(make_pool("mig", cluster=make_cluster(slug)), cards=8, name=f"{slug}-0", profile=PROFILE)
    give_quota(tenant, make_type(), 24)
    quota_profiles_set(tenant=tenant, gpu_type=make_type(), profiles={PROFILE: LIMIT}, actor=ADMIN)
    return tenant


def ask(tenant: Tenant, name: str) -> None:
    manifest = manifest_data(name, tenant=tenant.slug, share={"profile": PROFILE})
    deployment = deployment_apply(tenant=tenant, manifest=manifest, actor=TESTER).deployment
    run_item(WorkItem.objects.get(kind="deployment", object_id=deployment.pk).pk)


def held() -> int:
    rows = Reservation.objects.filter(profile=PROFILE, released_at__isnull=True)
    return rows.aggregate(total=Sum("slices"))["total"] or 0


def test_without_the_lock_too_many_are_let_in(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "LOCK_QUOTA", False)
    monkeypatch.setattr(placing, "allotment_require", lambda **_: None)
    for attempt in range(5):
        at_once([lambda name=f"r{attempt}-{n}": ask(tenant, name) for n in range(ASKS)], timeout=120)
        if held() > LIMIT:
            return
    pytest.fail("the race was not seen without the lock, so the test with it proves nothing")


def test_as_many_as_the_quota_says_hold_one(tenant: Tenant) -> None:
    failures = [
        result
        for result in at_once([lambda name=f"d{n}": ask(tenant, name) for n in range(ASKS)], timeout=120)
        if isinstance(result, BaseException)
    ]
    assert not failures, failures[0]
    assert held() == LIMIT
    with system_scope("test"):
        waiting = ModelDeployment.objects.filter(waiting_since__isnull=False)
        assert waiting.count() >= ASKS - LIMIT
        said = [row.waiting for row in waiting if f"MIG slices {PROFILE}" in row.waiting]
    assert len(said) == ASKS - LIMIT
