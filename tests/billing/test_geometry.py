"""What MIG geometry stranded of a card is of the time in which the card was cut so."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.db import connection

from billing.models import CapacityHour
from billing.services.metering import meter_again, meter_cluster
from infra.models import CapacitySpan, Cluster
from portal.kernel.clock import HOUR, Interval
from portal.kernel.scoping import system_scope
from tests.billing.factories import T0, make_cluster, set_watermark
from tests.billing.test_reconfigured import LARGER, SINGLE, WHOLE, see, tell

pytestmark = pytest.mark.django_db

CARD_HOUR = 3_600_000 * 1_000_000


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


def overhead(cluster: Cluster, hours: int) -> list[int]:
    """Of each hour, what nobody could use; once all of them are final."""
    set_watermark(cluster, T0 + hours * HOUR)
    meter_cluster(cluster.pk, budget_seconds=600)
    with system_scope("test"):
        rows = CapacityHour.objects.filter(cluster=cluster).exclude(in_service=0).order_by("hour")
        assert [row.in_service for row in rows] == [CARD_HOUR] * hours
        return [row.overhead for row in rows]


STRANDED = 142_857 * 3_600_000
"""Two of 3g on a card of seven slices leave one."""


def test_a_card_that_is_whole_again_had_a_slice_that_nobody_could_use(cluster: Cluster) -> None:
    see(cluster, LARGER, 0, 2)
    assert overhead(cluster, 4) == [STRANDED] * 4
    see(cluster, WHOLE, 5, 1)
    assert overhead(cluster, 8) == [STRANDED] * 5 + [0] * 3


def test_a_card_that_is_cut_anew_strands_from_then_on(cluster: Cluster) -> None:
    see(cluster, SINGLE, 0, 7)
    assert overhead(cluster, 4) == [0] * 4
    see(cluster, LARGER, 5, 2)
    assert overhead(cluster, 8) == [0] * 5 + [STRANDED] * 3


def cut(cluster: Cluster, hours: int, **profiles: int) -> None:
    """The node says that it has so many slices of these profiles (MIG, strategy mixed) on a card."""
    amounts = {f"nvidia.com/mig-{name.replace('_', '.')}": str(number) for name, number in profiles.items()}
    tell(cluster, hours, amounts, {"nvidia.com/gpu.product": WHOLE, "nvidia.com/gpu.count": "1"})


def test_slices_of_several_profiles_strand_while_they_are_there(cluster: Cluster) -> None:
    cut(cluster, 0, **{"1g_10gb": 7, "3g_40gb": 0})
    assert overhead(cluster, 4) == [0] * 4
    cut(cluster, 5, **{"1g_10gb": 0, "3g_40gb": 2})
    assert overhead(cluster, 8) == [0] * 5 + [STRANDED] * 3
    meter_again(cluster.pk, Interval(T0, T0 + 8 * HOUR))
    assert overhead(cluster, 8) == [0] * 5 + [STRANDED] * 3
    see(cluster, WHOLE, 9, 1)
    assert overhead(cluster, 12) == [0] * 5 + [STRANDED] * 4 + [0] * 3


def test_what_lasts_gets_its_layout_from_the_node_that_says_it(cluster: Cluster) -> None:
    """The migration, on rows as they were before."""
    cut(cluster, 0, **{"1g_10gb": 4, "3g_40gb": 1, "2g_20gb": 0})
    CapacitySpan.objects.update(mig_layout={})
    with connection.cursor() as cursor:
        cursor.execute(import_module("infra.migrations.0010_capacity_facts").LAYOUT)
    assert CapacitySpan.objects.get().mig_layout == {"1g.10gb": 4, "3g.40gb": 1}
    CapacitySpan.objects.all().delete()
    see(cluster, LARGER, 1, 2)
    CapacitySpan.objects.update(mig_layout={})
    with connection.cursor() as cursor:
        cursor.execute(import_module("infra.migrations.0010_capacity_facts").LAYOUT)
    assert CapacitySpan.objects.get().mig_layout == {"3g.40gb": 2}
