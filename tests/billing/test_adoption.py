"""What is on a cluster, whose it is and what it costs: the same figures as allocations give one by one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import pytest
from django.test import override_settings

from billing.models import DeviceAllocation, Issuer
from billing.selectors.adoption import Adoption, adoption_of, held_since, namespace_rows, with_gpus
from billing.selectors.held import held_parts
from billing.selectors.rule_changes import changes_of
from billing.selectors.workloads import usage_by_workload
from billing.services.metering import meter_cluster
from infra.evidence import Owner
from infra.models import Cluster, PodObservation, WatchTarget
from infra.services.claim_rules import claim_rule_create, claim_rule_preview
from infra.services.claims import namespace_claim_set
from infra.services.owner_links import fill_workload
from portal.kernel import workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import HOUR, Interval, clip, time_source
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.models import Tenant
from tests.billing.factories import (
    T0,
    claim_namespaces,
    make_cluster,
    make_gpu_type,
    make_issuer,
    make_node,
    make_rate,
    make_tenant,
    observe,
    pod_evidence,
    set_watermark,
)

pytestmark = pytest.mark.django_db

ADMIN = Actor(kind="user", name="platform-admin", platform_role="platform-admin")
NOW = T0 + 10 * HOUR
MONTH = Interval(T0, NOW)


@pytest.fixture
def cluster() -> Cluster:
    """A cluster that was connected ten hours ago, with pods that we did not make; nothing is final before 8 h."""
    cluster = make_cluster()
    make_node(cluster)
    make_node(cluster, "hami-0", gpu_type=make_gpu_type("a100", memory_mib=80_000), sharing="hami")
    observe(
        cluster,
        pod_evidence("serve", namespace="ml-serve", node="node-0", gpu=2, start=T0),
        pod_evidence("fit", namespace="ml-fit", node="node-0", gpu=1, start=T0 + HOUR, end=T0 + 3 * HOUR),
        pod_evidence("share", namespace="ml-fit", node="hami-0", gpu=1, gpumem=20_000, gpucores=10, start=T0 + HOUR),
        pod_evidence("test", namespace="kube-system", node="node-0", gpu=1, start=T0, end=T0 + HOUR / 2),
        pod_evidence("lone", namespace="sandbox", node="unknown-node", gpu=1, start=T0),
    )  # fmt: skip
    set_watermark(cluster, NOW)
    return cluster


@pytest.fixture
def issuer() -> Issuer:
    issuer = make_issuer()
    make_rate(issuer, "2.00")
    return issuer


def meter(cluster: Cluster) -> None:
    with time_source(lambda: NOW):
        while not meter_cluster(cluster.pk, budget_seconds=600).done:
            pass


def adoption(cluster: Cluster) -> Adoption:
    with time_source(lambda: NOW), system_scope("test"):
        return adoption_of(cluster)


def test_minutes_after_connecting_everything_is_nobody_s_with_its_cost(cluster: Cluster, issuer: Issuer) -> None:
    meter(cluster)
    one = adoption(cluster)
    assert one.tenants == ()
    assert [row.namespace for row in one.unmapped] == ["ml-serve", "ml-fit", "sandbox"], "the dearest first"
    serve, fit, lone = one.unmapped
    assert (serve.pods, serve.cards, serve.held.together) == (1, 2_000_000, Decimal(20))
    assert serve.would_cost is not None
    assert (serve.would_cost.amount, serve.would_cost.currency, serve.would_cost.unpriced) == (
        Decimal(40),
        "EUR",
        False,
    )
    assert serve.held.cost is None, "nobody is charged"
    # 2 h of a whole card, and a quarter of a card since 9 h, for which there is no rate.
    assert fit.held.unattributed == Decimal(2) + Decimal("2.25")
    assert fit.would_cost is not None
    assert (fit.would_cost.amount, fit.would_cost.unpriced) == (Decimal(4), True)
    assert (lone.unmetered, lone.held.together, lone.would_cost) == (1, Decimal(0), None), "unknown, not zero"
    assert one.unmetered == 1
    assert [(row.namespace, row.held.overhead) for row in one.system] == [("kube-system", Decimal("0.5"))]
    assert one.would_cost is not None
    assert one.would_cost.amount == Decimal(44)


def test_figures_are_there_before_any_hour_is_final(cluster: Cluster, issuer: Issuer) -> None:
    set_watermark(cluster, T0 + timedelta(minutes=6))
    meter(cluster)
    one = adoption(cluster)
    assert one.known_until == T0 + timedelta(minutes=6)
    assert one.unmapped[0].held.together == Decimal("0.2")
    assert one.unmapped[0].would_cost is not None
    assert one.unmapped[0].would_cost.amount == Decimal("0.4")


def test_a_cluster_that_was_never_watched_has_no_figures(cluster: Cluster) -> None:
    WatchTarget.objects.update(watermark=None)
    one = adoption(cluster)
    assert one.known_until is None
    assert all(not row.held.together for row in one.unmapped)


def test_mapping_moves_hours_from_nobody_to_the_tenant(cluster: Cluster, issuer: Issuer) -> None:
    tenant = make_tenant("vision")
    meter(cluster)
    namespace_claim_set(
        cluster=cluster, namespace="ml-serve", tenant_id=tenant.pk, valid_from=T0 + 4 * HOUR, actor=ADMIN
    )
    meter(cluster)
    one = adoption(cluster)
    assert [row.namespace for row in one.unmapped] == ["ml-fit", "sandbox"]
    [vision] = one.tenants
    assert (vision.tenant.slug, vision.namespaces, vision.pods, vision.cards) == ("vision", 1, 1, 2_000_000)
    assert vision.hours == Decimal(12)
    assert vision.cost is not None
    assert vision.cost.amount == Decimal(24)
    with time_source(lambda: NOW), system_scope("test"):
        row = next(row for row in namespace_rows([cluster]) if row.namespace == "ml-serve")
    assert (row.standing, row.held.tenants, row.held.unattributed) == ("tenant", Decimal(12), Decimal(8))
    assert one.unattributed == Decimal(8), "what it held before it was the tenant's"


def slow(cluster: Cluster, window: Interval, until: datetime) -> dict[tuple[str, str, UUID | None], Fraction]:
    """Card-milliseconds by (namespace, bucket, tenant), one allocation after the other."""
    found: dict[tuple[str, str, UUID | None], Fraction] = {}
    for row in DeviceAllocation.objects.filter(cluster=cluster):
        end = min(row.ended_at or until, until)
        part = clip(Interval(row.started_at, max(end, row.started_at)), window)
        if part is not None and part.ms:
            key = (row.namespace, row.bucket, row.tenant_id)
            found[key] = found.get(key, Fraction(0)) + row.share * part.ms
    return found


@pytest.mark.parametrize("hourly", [False, True])
@pytest.mark.parametrize("shapes", [False, True])
@pytest.mark.parametrize(
    ("start", "end", "until"), [(0, 10, 10), (1, 2, 10), (2, 30, 5), (0.5, 1.51, 1.25), (9, 10, 8)]
)
def test_sums_are_those_of_the_allocations(
    cluster: Cluster, issuer: Issuer, start: float, end: float, until: float, hourly: bool, shapes: bool
) -> None:
    claim_namespaces(cluster, make_tenant("vision"), ["ml-fit"], T0 + 2 * HOUR)
    meter(cluster)
    window, known = Interval(T0 + start * HOUR, T0 + end * HOUR), T0 + until * HOUR
    with system_scope("test"):
        parts = held_parts(
            window, [cluster.pk], {cluster.pk: known}, cuts=[T0 + 1.5 * HOUR], hourly=hourly, shapes=shapes
        )
        expected = slow(cluster, window, known)
    found: dict[tuple[str, str, UUID | None], Fraction] = {}
    for part in parts:
        key = (part.namespace, part.bucket, part.tenant_id)
        found[key] = found.get(key, Fraction(0)) + part.usage.charged
    assert found == expected


def test_namespaces_without_anything_to_do_with_cards_are_not_listed(cluster: Cluster) -> None:
    claim_namespaces(cluster, make_tenant("vision"), ["website"])
    with system_scope("test"):
        rows = namespace_rows([cluster], MONTH)
        assert "website" in {row.namespace for row in rows}
        assert "website" not in {row.namespace for row in with_gpus(rows)}


def test_the_queries_do_not_grow_with_the_namespaces(
    cluster: Cluster, issuer: Issuer, django_assert_max_num_queries: object
) -> None:
    for number in range(30):
        observe(cluster, pod_evidence(f"p{number}", namespace=f"n{number}", node="node-0", gpu=1, start=T0, end=NOW))
    meter(cluster)
    with django_assert_max_num_queries(24):  # type: ignore[operator]
        assert len(adoption(cluster).unmapped) == 33


# ---- previews ---------------------------------------------------------------------------------------------


def test_a_preview_tells_the_hours_that_change_hands(cluster: Cluster, issuer: Issuer) -> None:
    vision, audio = make_tenant("vision"), make_tenant("audio")
    meter(cluster)

    def make(tenant: Tenant, pattern: str, start: datetime, position: int | None = None) -> None:
        claim_rule_create(
            kind="name", pattern=pattern, cluster=cluster, tenant_id=tenant.pk, valid_from=start, actor=ADMIN,
            position=position,
        )  # fmt: skip

    with time_source(lambda: NOW):
        effects = claim_rule_preview(lambda: make(vision, "ml-*", T0))
        with system_scope("test"):
            changes = changes_of(effects)
        found = {one.effect.namespace: (one.tenant, one.gains, one.hours) for one in changes}
        assert found == {"ml-serve": ("vision", True, Decimal(20)), "ml-fit": ("vision", True, Decimal("4.25"))}
        make(vision, "ml-*", T0)
        while workqueue.run_due():
            pass
        effects = claim_rule_preview(lambda: make(audio, "ml-serve", T0 + 5 * HOUR, 1))
        with system_scope("test"):
            changes = changes_of(effects)
    assert [(one.tenant, one.gains, one.hours) for one in changes] == [
        ("vision", False, Decimal(10)), ("audio", True, Decimal(10)),
    ]  # fmt: skip
    with system_scope("test"):
        assert held_since(cluster.pk, "ml-serve", vision.pk, Interval(T0, NOW)) == Decimal(20)


# ---- workloads and cost codes -----------------------------------------------------------------------------


def test_usage_by_workload(cluster: Cluster, issuer: Issuer) -> None:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["ml-serve", "ml-fit"])
    meter(cluster)
    for name, owner, labels in (
        ("serve", Owner("ReplicaSet", "vllm-77", "u1"), (("pod-template-hash", "77"),)),
        ("fit", Owner("Job", "fit", "u2"), (("kueue.x-k8s.io/queue-name", "gpu"),)),
    ):
        row = PodObservation.objects.get(name=name)
        evidence = pod_evidence(name, namespace="x", node="node-0", gpu=1, start=T0)
        fill_workload(row, replace(evidence, owner=owner, labels=labels), {})
        row.save()
    with time_source(lambda: NOW), tenant_scope(tenant.pk):
        rows = usage_by_workload(tenant.pk, issuer, MONTH)
    assert [(row.label, row.known, row.queue, row.hours, row.amount) for row in rows] == [
        ("Deployment/vllm", "inferred", "", Decimal(20), Decimal(40)),
        ("Job/fit", "owner not read", "gpu", Decimal(2), Decimal(4)),
        ("not known", "", "", Decimal("2.25"), None),
    ]
    other = make_tenant("audio")
    with tenant_scope(other.pk):
        assert usage_by_workload(other.pk, issuer, MONTH) == []


@override_settings(AIF_COST_CODE_LABEL="cost")
def test_a_pod_s_label_says_its_cost_code(cluster: Cluster) -> None:
    tenant = make_tenant("vision")
    claim_namespaces(cluster, tenant, ["ml-serve", "ml-fit"])
    PodObservation.objects.filter(name="serve").update(label_cost_code="K9")
    meter(cluster)
    with system_scope("test"):
        codes = set(DeviceAllocation.objects.filter(tenant=tenant).values_list("namespace", "cost_code"))
    assert codes == {("ml-serve", "K9"), ("ml-fit", "")}


def test_the_clock_of_the_month_is_the_default_issuer_s(cluster: Cluster, issuer: Issuer) -> None:
    meter(cluster)
    with time_source(lambda: datetime(2026, 12, 3, tzinfo=UTC)), system_scope("test"):
        one = adoption_of(cluster)
    assert one.window.start == datetime(2026, 12, 1, tzinfo=UTC)
    assert one.unmapped[0].held.together == Decimal(0), "known until November only"
