"""A Prometheus of one's own, and a cluster's exporters, as processes for tests.

with exporter(cluster) as told, prometheus(tmp_path, {"dcgm-exporter": told.dcgm}) as server:
    server.wait_for("DCGM_FI_DEV_GPU_UTIL")
    server.url                                  # for a ClusterEndpoint
    told.order(f"cards/{uuid}/xid", {"xid": 79})
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from tests.support.controlplane import RealCluster
from tests.support.served import ROOT, start

PATIENCE = 60.0
INTERVAL = "1s"
"""Of a scrape: no test waits long for a sample."""


@dataclass
class Exporter:
    """The exporters of one cluster; see controlplane/exporter/server.py."""

    url: str

    @property
    def dcgm(self) -> str:
        """dcgm-exporter's page, for all nodes."""
        return f"{self.url}/metrics/dcgm"

    @property
    def kube_state(self) -> str:
        """kube-state-metrics' page."""
        return f"{self.url}/metrics/kube-state"

    def read(self, path: str) -> Any:
        """A page: its text, or what its JSON says. Raises AssertionError for any status but 200."""
        answer = urllib3.request("GET", f"{self.url}/{path}", timeout=10)
        assert answer.status == 200, answer.data
        return json.loads(answer.data) if answer.headers["Content-Type"] == "application/json" else answer.data.decode()

    def cards(self) -> list[dict[str, Any]]:
        """Which card or MIG instance each pod holds."""
        return list(self.read("cards"))

    def order(self, path: str, body: Any = None) -> None:
        """`nodes/NAME/silent`, `cards/UUID/xid` …"""
        answer = urllib3.request("POST", f"{self.url}/{path}", json=body or {}, timeout=10)
        assert answer.status == 200, answer.data


@contextlib.contextmanager
def exporter(cluster: RealCluster, *, fleet: Path | None = None) -> Iterator[Exporter]:
    """The exporters of a real cluster, once they have read it."""
    command = [sys.executable, "-m", "controlplane.exporter", "--kubeconfig", str(cluster.exporter_kubeconfig)]
    command += ["--cluster", cluster.name, "--parent-pid", str(os.getpid())]
    command += ["--fleet", str(fleet)] if fleet is not None else []
    process, facts = start(command, PATIENCE)
    try:
        _wait_for(lambda: _ok(f"{facts['url']}/healthz"), process, "the exporter does not read its cluster")
        yield Exporter(facts["url"])
    finally:
        _end(process)


@dataclass
class Prometheus:
    """A running server."""

    url: str
    process: subprocess.Popen[Any]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query. Raises AssertionError where Prometheus refuses it."""
        answer = urllib3.request("GET", f"{self.url}/api/v1/query", fields={"query": expression}, timeout=10)
        found = answer.json()
        assert found["status"] == "success", found
        return list(found["data"]["result"])

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        """The result, as soon as it is not empty."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = self.query(expression)
            return bool(found)

        _wait_for(there, self.process, f"no answer to {expression}")
        return found


@functools.cache
def program() -> str:
    """The path of Prometheus; fetched into the user's cache folder where it is missing."""
    done = subprocess.run(
        [sys.executable, "-m", "controlplane", "prometheus"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextlib.contextmanager
def prometheus(
    folder: Path,
    pages: Mapping[str, str],
    *,
    labels: Mapping[str, str] | None = None,
    honor_labels: bool = True,
    interval: str = INTERVAL,
    arguments: tuple[str, ...] = (),
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes these pages, once it is ready.

    Args:
        pages: job → address (`http://host:port/path`).
        labels: put on every target, as `{"cluster": "gpu-fra-1"}`.
        honor_labels: False: where a page has a label of the target's, it is renamed (`exported_pod`).
        arguments: more command line flags, as `--storage.tsdb.min-block-duration=…`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval},
        "scrape_configs": [_job(job, page, dict(labels or {}), honor_labels) for job, page in pages.items()],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    command = [
        program(), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}", "--web.enable-admin-api", "--log.level=warn", *arguments,
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_for(lambda: _ok(f"{url}/-/ready"), process, f"Prometheus is not ready; see {folder / 'log'}")
        yield Prometheus(url, process)
    finally:
        _end(process)


def _job(name: str, page: str, labels: dict[str, str], honor_labels: bool) -> dict[str, Any]:
    scheme, _, rest = page.partition("://")
    target, _, path = rest.partition("/")
    return {
        "job_name": name,
        "scheme": scheme,
        "metrics_path": f"/{path}",
        "honor_labels": honor_labels,
        "static_configs": [{"targets": [target], "labels": labels}],
    }


def _ok(url: str) -> bool:
    try:
        return urllib3.request("GET", url, timeout=5, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _wait_for(done: Any, process: subprocess.Popen[Any], complaint: str) -> None:
    until = time.monotonic() + PATIENCE
    while not done():
        assert process.poll() is None, f"{complaint}: it ended with status {process.returncode}"
        assert time.monotonic() < until, complaint
        time.sleep(0.05)


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(15)
    if process.stdout:
        process.stdout.close()
