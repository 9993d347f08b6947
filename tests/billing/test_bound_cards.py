"""A card that was bound to a pod stays bound, whoever is looked at together with it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billing.services.metering import meter_cluster
from infra.models import Cluster
from portal.kernel.clock import HOUR
from tests.billing.factories import T0, observe, pod_evidence, set_watermark
from tests.billing.test_bindings import MINUTE, cards, cluster, sight

__all__ = ["cluster"]
pytestmark = pytest.mark.django_db


def test_a_card_stays_bound_when_others_are_seen_on_it_later(cluster: Cluster) -> None:
    observe(cluster, pod_evidence("a", namespace="team-vision", node="node-0", gpu=1, start=T0))
    sight(cluster, "a", "GPU-a", T0 + MINUTE, T0 + 10 * MINUTE)
    set_watermark(cluster, T0 + 2 * HOUR)
    meter_cluster(cluster.pk)
    assert cards(cluster) == {0: "GPU-a"}
    assert sight(cluster, "a", "GPU-a", T0 + HOUR, T0 + HOUR + timedelta(seconds=30), shared=True) == 1
    meter_cluster(cluster.pk)
    assert cards(cluster) == {0: "GPU-a"}, "what is bound stays"
