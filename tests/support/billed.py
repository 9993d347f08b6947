"""Bills of a database as bytes, and the close of the next month, to be run by ``manage.py shell`` of any installation:

manage.py shell -c "from tests.support.billed import told; told()"
manage.py shell -c "from tests.support.billed import close_december; close_december()"
"""

from __future__ import annotations

import hashlib
import json
import sys
from datetime import UTC, datetime, timedelta

from billing.exports import bill_csv, period_csv, statements_csv
from billing.models import Bill, BillingPeriod, BillLine
from billing.selectors.bills import bill_is_reproducible
from billing.selectors.lines import bill_line_parts
from billing.selectors.statements import period_statements
from billing.services.close import period_close
from billing.services.metering import meter_cluster
from billing.services.periods import period_ensure
from infra.models import Cluster, PodObservation, WatchTarget
from portal.kernel.actors import Actor
from portal.kernel.clock import time_source
from portal.kernel.scoping import system_scope

JANUARY = datetime(2027, 1, 10, tzinfo=UTC)


def files() -> dict[str, bytes]:
    """Each bill's CSV, each period's, what is open so far, and each line with the allocations that it is made of."""
    found: dict[str, bytes] = {}
    with system_scope("test"), time_source(lambda: JANUARY - timedelta(days=20)):
        for bill in Bill.objects.select_related("period__issuer", "tenant").order_by("number"):
            found[f"bill {bill.number}"] = bill_csv(bill).body
            found[f"figures of {bill.number}"] = f"{bill.total} {bill.digest} {bill_is_reproducible(bill)}".encode()
        for period in BillingPeriod.objects.select_related("issuer").order_by("starts_at"):
            export = period_csv if period.state == BillingPeriod.State.CLOSED else _open
            found[f"period {period}"] = export(period).body
        for line in BillLine.objects.select_related("bill__period__issuer").order_by("bill__number", "position"):
            parts = [f"{row}" for row in bill_line_parts(line).rows]
            found[f"line {line.bill.number} {line.position}"] = "\n".join(parts).encode()
    return found


def _open(period: BillingPeriod):  # type: ignore[no-untyped-def]  # an Export
    return statements_csv(period, period_statements(period))


def told() -> None:
    """The digests of all files, as JSON on standard output."""
    digests = {name: hashlib.sha256(body).hexdigest() for name, body in files().items()}
    sys.stdout.write(json.dumps({"files": digests, "pods": PodObservation.objects.count()}) + "\n")


def close_december() -> None:
    """Everything of December is known, so it is metered and closed; then as :func:`told`."""
    WatchTarget.objects.update(watermark=JANUARY)
    actor = Actor(kind="user", name="finance", platform_role="platform-finance")
    with time_source(lambda: JANUARY):
        for cluster in Cluster.objects.order_by("slug"):
            while not meter_cluster(cluster.pk, budget_seconds=600).done:
                pass
        november = BillingPeriod.objects.select_related("issuer").earliest("starts_at")
        december = period_ensure(november.issuer, datetime(2026, 12, 15, tzinfo=UTC))
        assert period_close(period=december, actor=actor).made >= 1
    told()
