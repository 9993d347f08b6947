"""The page of a tenant's deployments: one with 10,000 of them against one with 100, in one run.

Run: python tests/bench/bench_pages.py. Requests go through all of Django with everything that a browser's would meet
(middleware, session, permissions, scope, queries, templates), by turns to the one tenant and to the other. The page
has 50 rows in both cases; its filter and a place deep in the list are measured too.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.database import bench_database
from tests.bench.line import seconds, tell

if TYPE_CHECKING:
    from django.test import Client

    from infra.models import Cluster
    from tenants.models import Tenant
    from tests.support.db import Clone

FEW, MANY = 100, 10_000
REACH_RATIO, REACH_QUERIES = 1.2, 15
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
WAITING = "NoCapacity: pool h100 of cluster alpha has 0 whole cards free on every node, 1 is wanted."


def fill(tenant: Tenant, cluster: Cluster, number: int) -> None:
    """So many deployments with a replica each; one in ten waits."""
    from portal.kernel.scoping import system_scope
    from tenants.models import ModelDeployment, ModelReplica
    from tests.unit.tenants.manifests import manifest_data

    spec = manifest_data()["spec"]
    refused = {"cluster": "alpha", "pool": "h100", "rule": "Capacity", "sentence": WAITING, "facts": {}}
    deployments = [
        ModelDeployment(
            tenant=tenant, name=f"model-{n:05d}", spec=spec, source=str(spec), replicas=1, cost_code=f"CC-{n % 7}",
            observed_generation=1, created_by="bench", created_at=SINCE + timedelta(minutes=n),
            phase="Ready" if n % 10 else "Waiting", ready_replicas=1 if n % 10 else 0,
            waiting="" if n % 10 else WAITING, waiting_since=None if n % 10 else SINCE, explanation=[refused] * 20,
        )
        for n in range(number)
    ]  # fmt: skip
    with system_scope("bench"):
        ModelDeployment.objects.bulk_create(deployments, batch_size=1000)
        ModelReplica.objects.bulk_create(
            [
                ModelReplica(tenant=tenant, deployment=one, index=0, cluster=cluster, placement={}, spec=spec,
                             phase="Ready", ready=True)
                for one in deployments if one.ready_replicas
            ],
            batch_size=1000,
        )  # fmt: skip


def prepare(clone: Clone) -> tuple[Client, dict[int, str]]:
    """A person who is in both teams, signed in; number of deployments → address of the page."""
    from django.test import Client

    from portal.accounts.models import User
    from tenants.models import Member
    from tests.support.fleet import make_cluster
    from tests.support.tenants import make_tenant

    person, cluster = User.objects.create_user("developer"), make_cluster()
    urls = {}
    for number in (FEW, MANY):
        tenant = make_tenant(f"team-{number}")
        Member.objects.create(tenant=tenant, user=person, role="developer")
        fill(tenant, cluster, number)
        urls[number] = f"/t/{tenant.slug}/deployments/"
    with clone.connect("postgres") as administrator:
        administrator.execute("VACUUM ANALYZE")
    client = Client()
    client.force_login(person)
    return client, urls


def ask(client: Client, url: str) -> tuple[float, int, str]:
    """Seconds, queries and text of one request."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as queries:
        began = time.perf_counter()
        response = client.get(url)
        took = time.perf_counter() - began
    assert response.status_code == 200, f"{url}: {response.status_code}"
    return took, len(queries), response.content.decode()


def deep(client: Client, url: str, pages: int) -> str:
    """The address of the page so many pages further."""
    for _ in range(pages):
        following = re.search(r'href="([^"]+)" rel="next"', ask(client, url)[2])
        assert following is not None
        url = following[1].replace("&amp;", "&")
    return url


def main() -> None:
    """Print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    options = parser.parse_args()
    with bench_database("pages") as clone:
        client, urls = prepare(clone)
        addresses = {
            "few": urls[FEW],
            "many": urls[MANY],
            "deep": deep(client, urls[MANY], 20),
            "phase": urls[MANY] + "?phase=Waiting",
            "search": urls[MANY] + "?q=0123",
        }
        times: dict[str, list[float]] = {name: [] for name in addresses}
        queries: dict[str, int] = {}
        for run in range(options.runs + 3):
            for name, url in addresses.items():
                took, count, page = ask(client, url)
                assert "model-" in page, f"{name}: no deployments on the page"
                if run >= 3:  # before that, caches fill
                    times[name].append(took)
                    queries[name] = max(count, queries.get(name, 0))
        median = {name: statistics.median(values) for name, values in times.items()}
        ratio = median["many"] / median["few"]
        tell(
            "deployments page with 10,000",
            f"{seconds(median['many'])}, {queries['many']} queries",
            f"the same with 100: {seconds(median['few'])}, {queries['few']} queries",
            f"{ratio:.2f}x",
            f"<= {REACH_RATIO}x, <= {REACH_QUERIES} queries",
            met=ratio <= REACH_RATIO and max(queries.values()) <= REACH_QUERIES,
            bench="pages",
            runs=options.runs,
            milliseconds={name: round(value * 1000, 2) for name, value in median.items()},
            queries=queries,
        )


if __name__ == "__main__":
    main()
