"""What simulated and real clusters have in common for tests: a process that serves them, and calls to their servers."""

from __future__ import annotations

import base64
import json
import selectors
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import urllib3
import yaml

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class ServedCluster:
    """One cluster of a running program."""

    name: str
    server: str
    kubeconfig: Path
    observe_kubeconfig: Path

    def call(
        self, method: str, path: str, body: Any = None, *, observe: bool = False, media: str = "application/json"
    ) -> tuple[int, Any]:
        """Any call, as (HTTP status, answer); the answer is text where it is no JSON."""
        config = yaml.safe_load((self.observe_kubeconfig if observe else self.kubeconfig).read_text())
        token = config["users"][0]["user"]["token"]
        answer = self.pool.request(
            method,
            self.server + path,
            body=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"Bearer {token}", "Content-Type": media, "User-Agent": "tests/1"},
            timeout=30,
            retries=False,
        )
        raw = answer.data.decode()
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw

    @cached_property
    def pool(self) -> urllib3.PoolManager:
        """Connections to this cluster."""
        return urllib3.PoolManager(ssl_context=self.context(), maxsize=16)

    def context(self) -> ssl.SSLContext:
        """A TLS context that trusts this cluster alone."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        ca = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        return ssl.create_default_context(cadata=ca)


C = TypeVar("C", bound=ServedCluster)


@dataclass
class ServingProcess(Mapping[str, C], Generic[C]):
    """A running program: its clusters by name."""

    process: subprocess.Popen[str]
    clusters: dict[str, C] = field(default_factory=dict)

    def __getitem__(self, name: str) -> C:
        return self.clusters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.clusters)

    def __len__(self) -> int:
        return len(self.clusters)

    def stop(self, how: signal.Signals = signal.SIGTERM, patience: float = 15) -> int:
        """End the process and wait for it; returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(15)
        if self.process.stdout:
            self.process.stdout.close()
        return self.process.returncode


def start(command: list[str], seconds: float) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """Start a program and wait for its ready line; (process, what the line says).

    Raises RuntimeError where it ends or is silent for so long; what it said then is among the test's output.
    """
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    line = _first_line(process, seconds)
    if not line:
        process.kill()
        process.wait()
        name = " ".join(command[1:4])
        raise RuntimeError(f"{name} did not get ready (exit status {process.returncode}); see its error output")
    return process, json.loads(line)


def _first_line(process: subprocess.Popen[str], seconds: float) -> str:
    assert process.stdout
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        until = time.monotonic() + seconds
        while time.monotonic() < until and process.poll() is None:
            if waiting.select(0.5):
                return process.stdout.readline()
    return ""
