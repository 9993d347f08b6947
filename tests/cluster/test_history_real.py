"""A real Prometheus with history in its blocks answers our own questions, and the past comes out as it was made."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from urllib.request import urlopen

import pytest

from billing.models import UsageRecord
from billing.selectors.conservation import imbalances
from billing.services.metering import meter_cluster
from infra.models import ClusterEndpoint, PodObservation, Rebuild
from infra.services.rebuilds import rebuild_start
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.clock import HOUR, Interval
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import run_item
from tests.billing.factories import claim_namespaces, make_cluster, make_node, make_tenant, set_watermark
from tests.support.history import MadeHistory, MadeNode, MadePod, counted
from tests.support.prometheus import program
from tests.support.promql import Store

DAYS = 40
CONNECTED = datetime.now(UTC).replace(minute=10, second=20, microsecond=0) - timedelta(days=1)
BEGIN = (CONNECTED - timedelta(days=DAYS)).replace(minute=0, second=0)
T, END = int(BEGIN.timestamp()), int(CONNECTED.timestamp())
DAY = 86_400
ADMIN = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)
PATIENCE = 120.0


def made() -> MadeHistory:
    """Forty days with a scrape every five minutes: a job a day, one that is deleted, a service that goes on, a gap."""
    pods = [
        MadePod(f"job-{day}", "v", f"job-{day}", "n1", T + day * DAY + 3605, T + day * DAY + 3641,
                T + day * DAY + 40_000 + day, finished=True, lingers=1800, requests={"nvidia_com_gpu": 1 + day % 3})
        for day in range(DAYS)
    ]  # fmt: skip
    pods += [
        MadePod("gone", "w", "gone", "n2", T + 5 * DAY + 7, T + 5 * DAY + 19, T + 9 * DAY + 4321),
        MadePod("web", "w", "web-0", "n2", T + 11 * DAY, T + 11 * DAY + 30, requests={"nvidia_com_gpu": 2}),
    ]
    nodes = [MadeNode("n1"), MadeNode("n2", since=T + 2 * DAY)]
    return MadeHistory(nodes, pods, T, END, interval=240, gaps=((T + 20 * DAY, T + 20 * DAY + 7200),))


@pytest.fixture(scope="module")
def history() -> MadeHistory:
    return made()


@pytest.fixture(scope="module")
def url(history: MadeHistory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that serves the made history, filled in by promtool."""
    server = program()
    promtool = shutil.which("promtool") or str(Path(server).with_name("promtool"))
    if not Path(promtool).exists():
        pytest.skip("promtool is not there")
    folder = tmp_path_factory.mktemp("history")
    text, data = folder / "history.txt", folder / "data"
    with text.open("w") as file:
        file.writelines(line + "\n" for line in history.open_metrics())
    command = [promtool, "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=200h", str(text), str(data)]
    subprocess.run(command, check=True, capture_output=True)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "prometheus.yml").write_text("global: {}\n")
    options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={data}",
               "--storage.tsdb.retention.time=400d", f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    process = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(f"{address}/-/ready")
        yield address
    finally:
        process.terminate()
        process.wait(20)


def _wait(address: str) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with urlopen(address, timeout=5) as answer:  # noqa: S310  # our own
                if answer.status == 200:
                    return
        except OSError:
            pass
        assert time.monotonic() < until, "Prometheus did not start"
        time.sleep(0.1)


@pytest.mark.django_db
def test_forty_days_come_back_as_they_were(url: str, history: MadeHistory, settings: object) -> None:
    settings.AIF_HISTORY_QUERIES_PER_MINUTE = 1_000_000  # type: ignore[attr-defined]
    cluster = make_cluster(since=CONNECTED)
    make_node(cluster, "n1", since=CONNECTED)
    make_node(cluster, "n2", since=CONNECTED)
    vision, web = make_tenant("vision"), make_tenant("web")
    since = BEGIN - timedelta(days=30)
    claim_namespaces(cluster, vision, ["v"], start=since)
    claim_namespaces(cluster, web, ["w"], start=since)
    ClusterEndpoint.objects.create(cluster=cluster, role="metrics", via="direct", url=url)
    run = rebuild_start(cluster=cluster, actor=ADMIN, since=BEGIN - timedelta(days=10))
    for _ in range(300):
        run.refresh_from_db()
        if run.state not in (Rebuild.State.PENDING, Rebuild.State.RUNNING):
            break
        WorkItem.objects.filter(kind="rebuild").update(next_attempt_at=CONNECTED, not_before=None)
        run_item(WorkItem.objects.get(kind="rebuild").pk)
    assert (run.state, run.last_error) == ("done", "")
    assert run.pods == len(history.pods)
    assert [len(run.gaps), run.nodes] == [1, 2]
    set_watermark(cluster, CONNECTED + HOUR)
    while not meter_cluster(cluster.pk, budget_seconds=600).done:
        pass
    wanted = counted(history.pods, T, END)
    with system_scope("test"):
        found = {name: Decimal(0) for name in wanted}
        rows = UsageRecord.objects.filter(source="retroactive", bucket="tenants")
        for namespace, charged in rows.values_list("namespace", "charged"):
            found[namespace] += Decimal(charged) / 1_000_000_000
        assert not imbalances(Interval(BEGIN - timedelta(days=11), CONNECTED + HOUR)).exists()
        gone = PodObservation.objects.get(uid="past:gone")
    assert found["v"] == wanted["v"], "jobs that ended by themselves are exact to the second"
    # `web` was there in the last scrape and is not in the watch: it left in between; `gone` left between two scrapes.
    short = wanted["w"] - found["w"]
    assert short > 0
    assert short * 1000 <= 2 * run.error_ms
    assert gone.past["end_error_ms"] <= 600_000


@pytest.mark.django_db
def test_the_small_one_and_the_real_one_answer_alike(url: str, history: MadeHistory) -> None:
    """Each question of a window: the same series with the same values."""
    from infra.outbound import open_endpoint
    from infra.prometheus import PrometheusClient
    from infra.prometheus.decoding import series_of
    from infra.retroactive import questions

    high = datetime.fromtimestamp((T + 9 * DAY + 6000) // 60 * 60, UTC)
    start = T + (9 * DAY - 10 * 3600) // history.interval * history.interval
    small: Store = replace(history, start=start, end=int(high.timestamp()) + 600).store()
    for samples in small.series.values():  # promtool writes no stale markers
        samples[:] = [sample for sample in samples if sample[1] is not None]
    cluster = make_cluster(since=CONNECTED)
    endpoint = ClusterEndpoint.objects.create(cluster=cluster, role="metrics", via="direct", url=url)
    window, step = timedelta(hours=6), timedelta(minutes=1)
    with open_endpoint(endpoint) as client:
        real = PrometheusClient(client)
        for name, query in questions.at_the_end(real.selector, window, step).items():
            params = [("query", query), ("time", str(high.timestamp()))]
            mine = series_of(small.answer("/api/v1/query", params), "small")
            assert _told(real.instant(query, high)) == _told(mine), name
        ranges = {**questions.over_the_window(real.selector), **questions.without_uids(real.selector)}
        for name, query in ranges.items():
            params = [("query", query), ("start", str((high - HOUR).timestamp())), ("end", str(high.timestamp())),
                      ("step", "60")]  # fmt: skip
            mine = series_of(small.answer("/api/v1/query_range", params), "small")
            assert _told(real.range(query, high - HOUR, high, step)) == _told(mine), name


def _told(series: list[object]) -> dict[object, object]:
    return {
        tuple(sorted(one.labels.items())): [(at, float(value)) for at, value in one.samples]  # type: ignore[attr-defined]
        for one in series
    }
