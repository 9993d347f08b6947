"""Closing a month against one SQL GROUP BY over the same usage rows, in one run.

Run: python tests/bench/bench_close.py [--full]. By default 720,000 rows of 100 tenants; --full: 7,200,000 of 1,000.
The close is measured as users have it: locks, sums, rating, rounding, bills and lines written and committed. It is
done several times (the bills are removed in between, by the superuser) and must give the same bytes each time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.database import bench_database
from tests.bench.line import seconds, tell

if TYPE_CHECKING:
    from tests.support.db import Clone

HOURS = 720
PER_TENANT_HOUR = 10
REACH = 3.0

FILL = """
INSERT INTO billing_usagerecord (hour, slot, tenant_id, cluster_id, allocation_id, namespace, deployment_id, cost_code,
    gpu_type_id, sharing, profile, bucket, share, cpu_millicores, host_memory_mib, milliseconds, charged, physical,
    source)
SELECT h, h, t.id, %(cluster)s, gen_random_uuid(), 't-' || t.slug,
    CASE WHEN k < 8 THEN ('00000000-0000-7000-8000-' || lpad(to_hex(t.n * 16 + k / 2), 12, '0'))::uuid END,
    'CC' || t.n %% 5, CASE WHEN k %% 2 = 0 THEN %(first)s::uuid ELSE %(second)s::uuid END,
    CASE WHEN k %% 2 = 0 THEN 'whole' ELSE 'hami' END, '', 'tenants', share, 4000, 32768, ms, share * ms,
    share * ms, 'watch'
FROM generate_series(%(start)s::timestamptz, %(start)s::timestamptz + interval '719 hours', interval '1 hour') AS h,
    (SELECT id, slug, row_number() OVER (ORDER BY slug) AS n FROM tenants_tenant) AS t,
    generate_series(0, %(most)s) AS k,
    LATERAL (SELECT CASE WHEN k %% 2 = 0 THEN 1000000 ELSE 250000 END::bigint AS share,
        (CASE WHEN (t.n + k) %% 7 = 0 THEN 1234567 ELSE 3600000 END)::bigint AS ms) AS figures
"""

YARDSTICK = """
SELECT tenant_id, deployment_id, namespace, gpu_type_id, sharing, profile, cost_code, sum(milliseconds), sum(charged)
FROM billing_usagerecord GROUP BY 1, 2, 3, 4, 5, 6, 7
"""


def prepare(clone: Clone, tenants: int) -> None:
    """Tenants, prices and the month's usage."""
    from billing.services.rates import rate_set
    from billing.services.setup import issuer_ensure
    from infra.models import Cluster, GPUType, Site
    from tenants.models import Tenant, Zone
    from tests.billing.factories import FINANCE

    start = datetime(2026, 11, 1, tzinfo=UTC)
    zone = Zone.objects.create(slug="shared", name="shared")
    Tenant.objects.bulk_create([Tenant(slug=f"team-{n:04d}", name=f"team {n}", zone=zone) for n in range(tenants)])
    cluster = Cluster.objects.create(
        slug="east", name="east", site=Site.objects.create(slug="lab", name="Lab"), api_server="https://127.0.0.1:1",
        kubeconfig_ciphertext=b"none", identity="east",
    )  # fmt: skip
    first, second = (GPUType.objects.create(slug=slug, name=slug, memory_mib=81_920) for slug in ("h100", "a100"))
    card = issuer_ensure(actor=FINANCE).rate_card
    for kind, sharing, price in ((first, "whole", "2.50"), (second, "hami", "1.35")):
        rate_set(card=card, gpu_type=kind, sharing=sharing, price=Decimal(price), valid_from=start, actor=FINANCE)
    with clone.connect("postgres") as administrator:
        administrator.execute("SELECT billing_usage_partition(%s)", [start])
        administrator.execute("SET session_replication_role = replica")  # no key checks while it is filled
        administrator.execute(
            FILL,
            {
                "cluster": cluster.pk,
                "first": first.pk,
                "second": second.pk,
                "start": start,
                "most": PER_TENANT_HOUR - 1,
            },
        )
        administrator.execute("VACUUM ANALYZE billing_usagerecord")


def timed(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def group_by() -> None:
    """The yardstick, by the same role, with its rows fetched."""
    from django.db import connection

    from portal.kernel.scoping import system_scope

    with system_scope("bench"), connection.cursor() as cursor:
        cursor.execute(YARDSTICK)
        cursor.fetchall()


def close() -> str:
    """Close November; the answer is a digest over all bills."""
    from billing.models import Bill, Issuer
    from billing.services.close import period_close
    from billing.services.periods import period_ensure
    from portal.kernel.clock import time_source
    from portal.kernel.scoping import system_scope
    from tests.billing.factories import FINANCE

    period = period_ensure(Issuer.objects.get(), datetime(2026, 11, 15, tzinfo=UTC))
    with time_source(lambda: datetime(2026, 12, 10, tzinfo=UTC)):
        period_close(period=period, actor=FINANCE)
    with system_scope("bench"):
        return " ".join(Bill.objects.order_by("tenant__slug").values_list("digest", flat=True))


def reopen(clone: Clone) -> None:
    """Remove the bills, which nobody but the superuser can."""
    with clone.connect("postgres") as administrator:
        administrator.execute("TRUNCATE billing_billline, billing_bill CASCADE")
        administrator.execute("UPDATE billing_billingperiod SET state = 'open', seq_upto = NULL")


def main() -> None:
    """Print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="7,200,000 rows of 1,000 tenants")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    tenants = 1000 if options.full else 100
    with bench_database("close") as clone:
        prepare(clone, tenants)
        digests, ours, yardstick = set(), [], []
        for _ in range(options.runs):
            yardstick.append(timed(group_by))
            ours.append(timed(lambda: digests.add(close())))
            reopen(clone)
        took, grouped = statistics.median(ours), statistics.median(yardstick)
        rows = tenants * HOURS * PER_TENANT_HOUR
        same = len(digests) == 1
        tell(
            f"close a month of {rows:,} usage rows, {tenants:,} tenants",
            f"{seconds(took)}, {'the same bytes each time' if same else 'BYTES DIFFER'}",
            f"one GROUP BY over them: {seconds(grouped)}",
            f"{took / grouped:.2f}x",
            f"<= {REACH:g}x",
            met=same and took / grouped <= REACH,
            bench="close",
            rows=rows,
            tenants=tenants,
            seconds=[round(value, 3) for value in ours],
            yardstick_seconds=[round(value, 3) for value in yardstick],
            same_bytes=same,
        )


if __name__ == "__main__":
    main()
