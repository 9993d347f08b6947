"""Whatever is done to quotas and their parts, in any order and at once: the parts are never more than the limit.

A state machine of set, place, end, hand over, move, settle, confirm, approve, expire and tenant clusters that go. Where
it says "at once", the steps run in threads of their own, each with a connection of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from infra.models import Cluster, GPUType, NodePool, Reservation
from portal.kernel.clock import utcnow
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope
from tenants.models import AllotmentMove, GPUQuota, QuotaAllotment, QuotaRequest, Tenant, TenantNamespace
from tenants.selectors.quota import quota_taken
from tenants.services import placing
from tenants.services.allotments import (
    QuotaExceeded,
    allotment_fix,
    allotments_confirmed,
    allotments_given_up,
    allotments_settle,
    quota_locked,
)
from tenants.services.moves import Spot, allotment_move
from tenants.services.quota_requests import quota_request_approve, quota_request_create, quota_requests_tick
from tenants.services.quotas import quota_set
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import TESTER, make_tenant
from tests.support.threads import at_once
from tests.tenants.factories import ADMIN, CARD

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

CLUSTERS = ("alpha", "beta", "gamma")
VC = "vc-ml-team"
PLACES = st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(["t-ml-team", VC]))
ENDS = st.one_of(st.none(), PLACES)
FEW = st.integers(0, 5)
SOME = st.integers(1, 4)


class World:
    """A tenant with a quota of 4 and two namespaces on each of three clusters."""

    def __init__(self) -> None:
        self.tenant: Tenant = make_tenant(f"m{uuid4().hex[:8]}")
        self.gpu_type: GPUType = make_type()
        self.clusters: dict[str, Cluster] = {}
        self.pools: dict[str, NodePool] = {}
        for slug in CLUSTERS:
            self.clusters[slug] = Cluster.objects.filter(slug=slug).first() or make_cluster(slug)
            self.pools[slug] = NodePool.objects.filter(cluster=self.clusters[slug]).first() or make_pool(
                cluster=self.clusters[slug]
            )
            if not self.pools[slug].nodes.exists():
                make_node(self.pools[slug], cards=64, name=f"{slug}-0")
        with system_scope("test"):
            for cluster in self.clusters.values():
                for name in ("t-ml-team", VC):
                    TenantNamespace.objects.create(tenant=self.tenant, cluster=cluster, name=name)
        quota_set(tenant=self.tenant, gpu_type=self.gpu_type, limit=4 * CARD, actor=ADMIN)

    def locked(self) -> GPUQuota:
        return quota_locked(self.tenant.pk, [self.gpu_type.pk])[self.gpu_type.pk]

    def place(self, slug: str, cards: int) -> None:
        """What a placement does of quota: admit, and book."""
        with suppress(QuotaExceeded), system_scope("test"):
            tenant = Tenant.objects.get(pk=self.tenant.pk)
            place_in(tenant, self.clusters[slug], self.gpu_type, cards * CARD)
            Reservation.objects.create(
                tenant_id=self.tenant.pk, zone_id=self.tenant.zone_id, cluster=self.clusters[slug],
                namespace=tenant.namespace, deployment_id=uuid4(), replica_id=uuid4(), member="e/Standalone/0/0/gpu",
                node=self.pools[slug].nodes.get(), pool=self.pools[slug], gpu_type=self.gpu_type, sharing="whole",
                cards=cards, share=cards * CARD,
            )  # fmt: skip

    def end(self, slug: str) -> None:
        """A replica there ends."""
        with system_scope("test"):
            self.locked()
            row = Reservation.objects.filter(
                tenant_id=self.tenant.pk, cluster=self.clusters[slug], released_at__isnull=True
            ).first()
            if row is not None:
                Reservation.objects.filter(pk=row.pk).update(released_at=utcnow())
                allotments_settle(tenant_id=self.tenant.pk, cluster_id=self.clusters[slug].pk)

    def fix(self, place: tuple[str, str], cards: int) -> None:
        with suppress(QuotaExceeded), system_scope("test"):
            quota = self.locked()
            TenantNamespace.objects.get_or_create(
                tenant=self.tenant, cluster=self.clusters[place[0]], name=self.name(place)
            )
            allotment_fix(quota=quota, cluster=self.clusters[place[0]], namespace=self.name(place), amount=cards * CARD)

    def move(self, source: tuple[str, str] | None, goal: tuple[str, str] | None, cards: int) -> None:
        with suppress(Conflict, Invalid):
            allotment_move(
                tenant=self.tenant, gpu_type=self.gpu_type, source=self.spot(source), goal=self.spot(goal),
                amount=cards * CARD, actor=TESTER,
            )  # fmt: skip

    def vanish(self, slug: str) -> None:
        """The tenant cluster there is deleted: what the end of it does of quota."""
        cluster = self.clusters[slug]
        with system_scope("test"):
            allotments_given_up(tenant_id=self.tenant.pk, cluster_id=cluster.pk, namespace=VC)
            TenantNamespace.objects.filter(tenant=self.tenant, cluster=cluster, name=VC).delete()

    def settle(self, slug: str) -> None:
        with system_scope("test"):
            allotments_settle(tenant_id=self.tenant.pk, cluster_id=self.clusters[slug].pk)

    def targets(self, place: tuple[str, str]) -> dict[UUID, int]:
        """What a reconciler writes to the cluster: some time passes until it confirms that."""
        with system_scope("test"):
            rows = QuotaAllotment.objects.filter(
                tenant=self.tenant, cluster=self.clusters[place[0]], namespace=self.name(place)
            )
            return dict(rows.values_list("pk", "target"))

    def confirm(self, place: tuple[str, str], targets: dict[UUID, int]) -> None:
        with system_scope("test"):
            allotments_confirmed(
                tenant_id=self.tenant.pk, cluster_id=self.clusters[place[0]].pk, namespace=self.name(place),
                targets=targets,
            )  # fmt: skip

    def set(self, limit: int) -> None:
        quota_set(tenant=self.tenant, gpu_type=self.gpu_type, limit=limit * CARD, actor=ADMIN)

    def approve(self, limit: int, boxed: bool) -> None:
        row = quota_request_create(
            tenant=self.tenant, gpu_type=self.gpu_type, limit=limit * CARD, reason="A larger model.", submit=True,
            until=utcnow() + timedelta(hours=1) if boxed else None, actor=TESTER,
        )  # fmt: skip
        with suppress(Conflict):
            quota_request_approve(tenant=self.tenant, request_id=row.pk, actor=ADMIN)

    def expire(self) -> None:
        quota_requests_tick(utcnow() + timedelta(hours=2))

    def name(self, place: tuple[str, str]) -> str:
        return self.tenant.namespace if place[1] == "t-ml-team" else VC

    def spot(self, place: tuple[str, str] | None) -> Spot | None:
        return None if place is None else Spot(self.clusters[place[0]], self.name(place))

    def sums(self) -> tuple[int, int, int]:
        """Σ parts, limit, Σ admitted."""
        with system_scope("test"):
            amounts = sum(QuotaAllotment.objects.filter(tenant=self.tenant).values_list("amount", flat=True))
            limit = GPUQuota.objects.get(tenant=self.tenant).limit
            return amounts, limit, quota_taken(self.tenant.pk).total(self.gpu_type.pk)


def place_in(tenant: Tenant, cluster: Cluster, gpu_type: GPUType, share: int) -> None:
    placing._admit(tenant, cluster, {gpu_type.pk: share}, {})


class Parts(RuleBasedStateMachine):
    """The rules; after each the sums are looked at."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.before = self.world.sums()
        self.written: list[tuple[tuple[str, str], dict[UUID, int]]] = []

    @rule(limit=st.integers(0, 8))
    def set_quota(self, limit: int) -> None:
        self.world.set(limit)

    @rule(slug=st.sampled_from(CLUSTERS), cards=SOME)
    def place(self, slug: str, cards: int) -> None:
        self.world.place(slug, cards)

    @rule(slug=st.sampled_from(CLUSTERS))
    def end(self, slug: str) -> None:
        self.world.end(slug)

    @rule(place=PLACES, cards=FEW)
    def fix(self, place: tuple[str, str], cards: int) -> None:
        self.world.fix(place, cards)

    @rule(source=ENDS, goal=ENDS, cards=SOME)
    def move(self, source: tuple[str, str] | None, goal: tuple[str, str] | None, cards: int) -> None:
        self.world.move(source, goal, cards)

    @rule(slug=st.sampled_from(CLUSTERS))
    def settle(self, slug: str) -> None:
        self.world.settle(slug)

    @rule(place=PLACES)
    def write(self, place: tuple[str, str]) -> None:
        self.written.append((place, self.world.targets(place)))

    @rule(newest=st.booleans())
    def confirm(self, newest: bool) -> None:
        """The cluster confirms something that was written, be it of long ago."""
        if self.written:
            self.world.confirm(*self.written.pop(-1 if newest else 0))

    @rule(limit=st.integers(0, 8), boxed=st.booleans())
    def approve(self, limit: int, boxed: bool) -> None:
        self.world.approve(limit, boxed)

    @rule(slug=st.sampled_from(CLUSTERS))
    def vanish(self, slug: str) -> None:
        self.world.vanish(slug)

    @rule()
    def expire(self) -> None:
        self.world.expire()

    @rule(
        steps=st.lists(
            st.one_of(
                st.tuples(st.just("place"), st.sampled_from(CLUSTERS), SOME),
                st.tuples(st.just("fix"), PLACES, FEW),
                st.tuples(st.just("move"), ENDS, ENDS, SOME),
                st.tuples(st.just("end"), st.sampled_from(CLUSTERS)),
                st.tuples(st.just("settle"), st.sampled_from(CLUSTERS)),
                st.tuples(st.just("vanish"), st.sampled_from(CLUSTERS)),
                st.tuples(st.just("confirm"), PLACES),
                st.tuples(st.just("set"), st.integers(0, 8)),
                st.tuples(st.just("approve"), st.integers(0, 8), st.booleans()),
            ),
            min_size=2,
            max_size=5,
        )
    )
    def at_once(self, steps: list[tuple]) -> None:  # type: ignore[type-arg]
        jobs: list[Callable[[], None]] = [self._job(step) for step in steps]
        # A limit that is lowered beside a placement may find more admitted than it allows: that is "over by".
        lowered = any(step[0] in ("set", "approve") for step in steps)
        failures = [result for result in at_once(jobs) if isinstance(result, BaseException)]
        assert not failures, failures[0]
        if lowered:
            self.before = (10**12, *self.before[1:])

    def _job(self, step: tuple) -> Callable[[], None]:  # type: ignore[type-arg]
        name, *given = step
        if name == "confirm":
            return lambda: self.world.confirm(given[0], self.world.targets(given[0]))
        return lambda: getattr(self.world, name)(*given)

    @invariant()
    def the_parts_are_within_the_limit(self) -> None:
        if not hasattr(self, "world"):
            return
        amounts, limit, admitted = self.world.sums()
        # Lowering evicts nothing: what is above a limit that was lowered only ever falls.
        assert amounts <= max(limit, self.before[0]), (amounts, limit, self.before)
        assert admitted <= max(limit, self.before[2], self.before[0]), (admitted, limit, self.before)
        with system_scope("test"):
            for part in QuotaAllotment.objects.filter(tenant=self.world.tenant):
                assert 0 <= part.target <= part.amount, part
                assert 0 <= part.leaving <= part.handed, part
                pending = AllotmentMove.objects.filter(source=part, state="pending").values_list("amount", flat=True)
                assert part.leaving <= sum(pending), part
                spaces = TenantNamespace.objects.filter(cluster=part.cluster_id, name=part.namespace)
                assert not part.handed or spaces.exists(), "handed over to a namespace that is gone"
            assert not QuotaRequest.objects.filter(
                tenant=self.world.tenant, state="approved", set_generation=None
            ).exists()
        self.before = (amounts, limit, admitted)


@pytest.mark.timeout(900)
def test_the_parts_are_never_more_than_the_limit(transactional_db: None) -> None:
    run_state_machine_as_test(
        Parts,
        settings=settings(
            max_examples=8, stateful_step_count=20, deadline=None,
            suppress_health_check=list(HealthCheck), database=None,
        ),
    )  # fmt: skip


def test_without_the_lock_two_growing_parts_are_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the lock is for: with it off, parts on three clusters grow past the limit at once."""
    world = World()

    def unlocked(tenant_id: UUID, gpu_type_ids: object) -> dict[UUID, GPUQuota]:
        return {row.gpu_type_id: row for row in GPUQuota.objects.filter(tenant_id=tenant_id).select_related("gpu_type")}

    monkeypatch.setattr("tests.tenants.test_quota_machine.quota_locked", unlocked)
    for _ in range(10):
        with system_scope("test"):
            QuotaAllotment.objects.filter(tenant=world.tenant).update(
                amount=0, target=0, handed=0, fixed=False, leaving=0
            )
        at_once([lambda slug=slug: world.fix((slug, VC), 3) for slug in CLUSTERS])
        if world.sums()[0] > 4 * CARD:
            break
    else:
        pytest.fail("the race was not seen without the lock, so the test with it proves nothing")


def test_with_the_lock_one_of_three_grows() -> None:
    world = World()
    at_once([lambda slug=slug: world.fix((slug, VC), 3) for slug in CLUSTERS])
    assert world.sums()[0] == 3 * CARD
