"""A cluster without any card keeps nobody's period from being closed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billing.models import CapacityHour, MeterProgress, UsageRecord
from billing.selectors.bills import clusters_behind
from billing.services.metering import meter_cluster
from infra.models import Cluster
from portal.kernel.clock import HOUR
from portal.kernel.scoping import system_scope
from tests.billing.factories import (
    T0,
    claim_namespaces,
    make_cluster,
    make_issuer,
    make_node,
    make_tenant,
    month,
    observe,
    pod_evidence,
    set_watermark,
)

pytestmark = pytest.mark.django_db

AFTER = T0 + timedelta(days=31)


def behind() -> list[str]:
    with system_scope("test"):
        return clusters_behind(month(make_issuer()))


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


def test_a_cluster_without_cards_is_final_as_far_as_it_was_watched(cluster: Cluster) -> None:
    set_watermark(cluster, AFTER)
    meter_cluster(cluster.pk)
    assert behind() == []


def test_one_that_gets_its_cards_later_is_metered_from_then(cluster: Cluster) -> None:
    set_watermark(cluster, AFTER)
    meter_cluster(cluster.pk)
    make_node(cluster, since=AFTER + HOUR)
    set_watermark(cluster, AFTER + 4 * HOUR)
    assert meter_cluster(cluster.pk).final_until == AFTER + 4 * HOUR
    assert behind() == []


def test_what_is_heard_late_of_a_cluster_without_cards_is_metered(cluster: Cluster) -> None:
    set_watermark(cluster, AFTER)
    meter_cluster(cluster.pk)
    claim_namespaces(cluster, make_tenant("vision"), ["v"])
    make_node(cluster, since=T0 + HOUR)
    observe(cluster, pod_evidence("a", namespace="v", node="node-0", gpu=1, start=T0 + HOUR, end=T0 + 3 * HOUR))
    meter_cluster(cluster.pk)
    with system_scope("test"):
        assert sum(UsageRecord.objects.values_list("milliseconds", flat=True)) == 2 * 3_600_000
        hours = CapacityHour.objects.filter(cluster=cluster)
        assert (hours.count(), sum(row.difference for row in hours)) == (31 * 24 - 1, 0)
        assert MeterProgress.objects.get().metered_from == T0 + HOUR
