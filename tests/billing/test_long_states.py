"""A node that is in one state for months, and then in another: what was written of the months before stays."""

from __future__ import annotations

from typing import Any

import pytest

from billing.models import CapacityHour
from billing.services import metering
from billing.services.metering import meter_cluster
from infra.models import CapacitySpan, Cluster
from portal.kernel.clock import HOUR
from portal.kernel.scoping import system_scope
from tests.billing.factories import T0, make_cluster, set_watermark
from tests.billing.test_reconfigured import WHOLE, see

pytestmark = pytest.mark.django_db

CARD_HOUR = 3_600_000 * 1_000_000


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


def meter(cluster: Cluster, hours: int) -> list[int]:
    """Cards in service in each hour, when all of them are final."""
    set_watermark(cluster, T0 + hours * HOUR)
    assert meter_cluster(cluster.pk, budget_seconds=600).done
    with system_scope("test"):
        rows = CapacityHour.objects.filter(cluster=cluster).order_by("hour")
        return [row.in_service // CARD_HOUR for row in rows]


def test_the_end_of_a_state_is_metered_from_its_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    see(cluster, WHOLE, 0, 8)
    assert meter(cluster, 1000) == [8] * 1000
    written: list[Any] = []
    usual = metering.capacity_write

    def noted(cluster_id: Any, slots: Any, *more: Any) -> Any:
        written.extend(slots)
        return usual(cluster_id, slots, *more)

    monkeypatch.setattr(metering, "capacity_write", noted)
    see(cluster, WHOLE, 990, 6)  # late: ten hours of it were final
    assert meter(cluster, 1000) == [8] * 990 + [6] * 10
    assert [start for _, start, _ in written] == [T0 + number * HOUR for number in range(990, 1000)]


def test_a_state_of_which_nothing_was_metered_is_metered_from_its_begin(cluster: Cluster) -> None:
    see(cluster, WHOLE, 0, 8)
    assert meter(cluster, 4) == [8] * 4
    see(cluster, WHOLE, 2, 6)
    see(cluster, WHOLE, 3, 4)
    assert meter(cluster, 4) == [8, 8, 6, 4]


def test_spans_of_before_that_was_noted_are_metered_from_their_begin(cluster: Cluster) -> None:
    see(cluster, WHOLE, 0, 8)
    assert meter(cluster, 3) == [8] * 3
    CapacitySpan.objects.update(began_seq=None, cards=7)
    see(cluster, WHOLE, 2, 6)
    assert meter(cluster, 3) == [7, 7, 6]
