"""Pools that hand out more memory than their cards have: a rate of their own, from when the pod was bound."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from billing.models import Bucket, DeviceAllocation, Rate, UsageRecord
from billing.selectors.bills import unpriced_usage
from billing.selectors.ratecard import unpriced_keys
from billing.services.metering import meter_cluster
from billing.services.rates import rate_set
from infra.models import CapacitySpan, NodePool
from infra.services.overcommit import pool_overcommit_set
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_FINANCE, Actor
from portal.kernel.clock import HOUR, time_source
from portal.kernel.problems import Conflict, Forbidden, Invalid
from portal.kernel.scoping import system_scope
from tests.billing.factories import (
    FINANCE,
    T0,
    claim_namespaces,
    make_cluster,
    make_gpu_type,
    make_issuer,
    make_node,
    make_rate,
    make_tenant,
    month,
    observe,
    pod_evidence,
    set_watermark,
)

pytestmark = pytest.mark.django_db

ADMIN = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)
DAY = timedelta(days=1)


def test_a_pod_bound_while_too_much_was_promised_has_a_rate_of_its_own() -> None:
    cluster, tenant, a100 = make_cluster(), make_tenant("vision"), make_gpu_type("a100", memory_mib=80_000)
    node = make_node(cluster, gpu_type=a100, sharing="hami", cards=1)
    claim_namespaces(cluster, tenant, ["v"])
    issuer = make_issuer()
    plain = make_rate(issuer, "2.00", gpu_type=a100, sharing="hami")
    share = {"namespace": "v", "node": node.name, "gpu": 1, "gpumem": 20_000, "gpucores": 25}
    observe(cluster, pod_evidence("before", start=T0, end=T0 + 2 * HOUR, **share))
    pool = NodePool.objects.get(name="a100-hami")
    with time_source(lambda: T0 + HOUR):
        pool_overcommit_set(pool=pool, percent=180, actor=ADMIN)
    assert CapacitySpan.objects.get(node=node, ended_at=None).overcommit_percent == 180
    observe(cluster, pod_evidence("after", start=T0 + HOUR, end=T0 + 2 * HOUR, **share))
    set_watermark(cluster, T0 + DAY)
    meter_cluster(cluster.pk, budget_seconds=600)
    with system_scope("test"):
        rows = DeviceAllocation.objects.filter(bucket=Bucket.TENANTS)
        assert {row.pod_name: (row.profile, row.share) for row in rows} == {
            "before": ("", 250_000), "after": ("overcommit", 250_000),
        }  # fmt: skip
        assert {row.profile for row in UsageRecord.objects.filter(bucket=Bucket.TENANTS)} == {"", "overcommit"}
        period = month(issuer)
        assert [str(line.key) for line in unpriced_usage(period)] == ["a100 hami overcommit"], "it blocks the close"
        assert [one.what for one in unpriced_keys(issuer, now=T0 + DAY)] == ["a100 hami overcommit"]
        rate = rate_set(
            card=plain.card, gpu_type=a100, sharing="hami", profile="overcommit", price=Decimal("1.20"),
            valid_from=T0 - DAY, actor=FINANCE,
        )  # fmt: skip
        assert Rate.objects.get(pk=plain.pk).valid_to is None, "the other rate goes on"
        assert unpriced_usage(period) == []
        assert unpriced_keys(issuer, now=T0 + DAY) == []
    assert (rate.profile, rate.price) == ("overcommit", Decimal("1.20"))


def test_what_can_be_declared() -> None:
    cluster = make_cluster()
    a100 = make_gpu_type("a100", memory_mib=80_000)
    node = make_node(cluster, gpu_type=a100, sharing="hami", cards=1)
    whole = make_node(cluster, "whole-0", gpu_type=a100)
    pool = node.pool
    assert pool is not None
    assert whole.pool is not None
    with pytest.raises(Forbidden):
        pool_overcommit_set(pool=pool, percent=180, actor=Actor("user", "f", platform_role=PLATFORM_FINANCE))
    with pytest.raises(Invalid, match="from 100"):
        pool_overcommit_set(pool=pool, percent=99, actor=ADMIN)
    with pytest.raises(Conflict, match="only HAMi"):
        pool_overcommit_set(pool=whole.pool, percent=180, actor=ADMIN)
    assert pool_overcommit_set(pool=pool, percent=150, actor=ADMIN).overcommit_percent == 150
    assert pool_overcommit_set(pool=pool, percent=None, actor=ADMIN).overcommit_percent is None
    assert CapacitySpan.objects.get(node=node, ended_at=None).overcommit_percent == 100, "as the register says"


def test_a_rate_s_profile_goes_with_its_mode() -> None:
    issuer, a100 = make_issuer(), make_gpu_type("a100")
    for sharing, profile in (("hami", "quarter"), ("whole", "overcommit"), ("mig", "")):
        with pytest.raises(Invalid):
            rate_set(
                card=issuer.rate_card, gpu_type=a100, sharing=sharing, profile=profile, price=Decimal(1),
                valid_from=T0, actor=FINANCE,
            )  # fmt: skip
