"""A tenant that comes while a close begins is on this bill or the next, with all that it used."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billing.models import Bill
from billing.services import close as module
from billing.services.metering import meter_again
from infra.models import Cluster
from portal.kernel.clock import HOUR, Interval
from portal.kernel.scoping import system_scope
from tests.billing.factories import (
    T0,
    claim_namespaces,
    make_issuer,
    make_node,
    make_rate,
    make_tenant,
    month,
    observe,
    pod_evidence,
)
from tests.billing.test_close import DAY, close, cluster, meter

__all__ = ["cluster"]
pytestmark = pytest.mark.django_db


def test_a_tenant_that_comes_while_a_close_begins_pays_all_of_its_usage(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = make_issuer()
    make_rate(issuer, "2.00")
    make_node(cluster)
    observe(cluster, pod_evidence("a", namespace="late", node="node-0", start=T0, end=T0 + 10 * HOUR, gpu=1))
    meter(cluster, T0 + 31 * DAY)
    read = module.last_usage_seq

    def others_were_faster() -> int:
        monkeypatch.setattr(module, "last_usage_seq", read)
        claim_namespaces(cluster, make_tenant("late"), ["late"])
        meter_again(cluster.pk, Interval(T0, T0 + DAY))
        return read()

    monkeypatch.setattr(module, "last_usage_seq", others_were_faster)
    close(month(issuer))
    meter(cluster, T0 + 61 * DAY + 2 * DAY)
    close(month(issuer, number=12), T0 + 70 * DAY)
    with system_scope("test"):
        assert sum(Bill.objects.values_list("total", flat=True)) == Decimal("20.00")
