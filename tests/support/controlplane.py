"""Real control planes as pytest fixtures: etcd, API servers, controllers, schedulers, and kwok in place of kubelets.

    def test_something(real_planes):
        cluster = real_planes["gpu-fra-1"]          # also "gpu-hel-1" (MIG and whole cards)
        cluster.kubeconfig                          # an administrator's
        cluster.observe_kubeconfig                  # of a service account that holds deploy/clusterroles/observe.yaml
        cluster.manage_kubeconfig                   # … manage.yaml
        before = cluster.audit.mark()
        …
        cluster.audit.writes(since=before)          # whoever asked; user="admin": only theirs

The programs are built once: `python -m controlplane build` (the stage "control plane" of `make test`).
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.support.served import ServedCluster, ServingProcess, start

START_SECONDS = 240
LATE_SECONDS = 120
WRITES = ("create", "update", "patch", "delete", "deletecollection")
PATHS = ("kubeconfig", "observe_kubeconfig", "manage_kubeconfig", "exporter_kubeconfig", "audit_log")
NO_RESOURCES = ("authorization.k8s.io", "authentication.k8s.io")
"""Their objects are questions, sent as POST."""
_markers = itertools.count(1)


@dataclass(frozen=True)
class Asked:
    """One request on a resource, as the API server's audit log tells it."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    dry_run: bool
    changed: bool

    @property
    def write(self) -> bool:
        """Whether it asked for a change."""
        return self.verb in WRITES and not self.dry_run


class Audit:
    """Who asked what of one API server, without Kubernetes' own parts and those that stand in for kubelets."""

    def __init__(self, cluster: RealCluster, path: Path) -> None:
        self._cluster, self._path = cluster, path
        self._offset = 0
        self._asked: list[Asked] = []
        self._versions: set[tuple[str, str]] = set()
        self._markers: set[str] = set()

    def mark(self) -> int:
        """A point to count from: everything asked before is left out."""
        self._catch_up()
        return len(self._asked)

    def asked(self, *, since: int = 0, user: str | None = None) -> list[Asked]:
        """The requests since a mark, of one user or of all."""
        self._catch_up()
        return [one for one in self._asked[since:] if user in (None, one.user)]

    def writes(self, *, since: int = 0, user: str | None = None) -> list[Asked]:
        """Those of them that asked for a change, refused ones too."""
        return [one for one in self.asked(since=since, user=user) if one.write]

    def changes(self, *, since: int = 0, user: str | None = None) -> list[Asked]:
        """Those of them that changed an object."""
        return [one for one in self.asked(since=since, user=user) if one.changed]

    def _catch_up(self) -> None:
        """Read until a request of our own is seen: what was answered before it is in the log as well."""
        marker = f"marker-{os.getpid()}-{next(_markers)}"
        self._cluster.call("GET", f"/api/v1/namespaces/default/configmaps/{marker}")
        until = time.monotonic() + LATE_SECONDS
        while marker not in self._markers:
            assert time.monotonic() < until, "the audit log does not tell of a request that was answered"
            self._read()
            time.sleep(0.01)
        self._markers.clear()

    def _read(self) -> None:
        with self._path.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        user, target = event["user"].get("username", ""), event.get("objectRef") or {}
        changed = self._changes(event)
        name = target.get("name", "")
        if name.startswith("marker-"):
            self._markers.add(name)
            return
        ours = user.startswith("system:") and not user.startswith("system:serviceaccount:")
        ours = ours or user.startswith("system:serviceaccount:kube-system:") or user in ("kwok", "controlplane")
        if ours or not target.get("resource") or target.get("apiGroup") in NO_RESOURCES:
            return
        resource = target["resource"] + (f"/{target['subresource']}" if target.get("subresource") else "")
        code = (event.get("responseStatus") or {}).get("code", 0)
        namespace = target.get("namespace", "")
        dry_run = "dryRun=" in event["requestURI"]
        self._asked.append(Asked(user, event["verb"], resource, namespace, name, code, dry_run, changed))

    def _changes(self, event: dict[str, Any]) -> bool:
        """A write that was answered with a resourceVersion that nobody was told before."""
        code = (event.get("responseStatus") or {}).get("code", 0)
        if event["verb"] not in WRITES or code >= 300 or "dryRun=" in event["requestURI"]:
            return False
        metadata = (event.get("responseObject") or {}).get("metadata") or {}
        key = (metadata.get("uid", ""), metadata.get("resourceVersion", ""))
        if not all(key):
            return event["verb"].startswith("delete")
        known = key in self._versions
        self._versions.add(key)
        return not known


@dataclass
class RealCluster(ServedCluster):
    """One cluster: its API server and what belongs to it."""

    manage_kubeconfig: Path
    exporter_kubeconfig: Path
    """With every right, and left out of what :attr:`audit` counts."""
    audit_log: Path
    etcd: str
    run: Path
    exporter_url: str = ""
    """Of its exporters (:class:`tests.support.prometheus.Exporter`), where `--prometheus` was given."""

    @cached_property
    def audit(self) -> Audit:
        """Who asked what of its API server."""
        return Audit(self, self.audit_log)

    def forget_history(self) -> None:
        """Compact etcd and start the API server anew, which keeps a history of its own in memory."""
        pool = urllib3.PoolManager()
        key = base64.b64encode(b"nothing").decode()
        header = pool.request("POST", f"{self.etcd}/v3/kv/range", json={"key": key}).json()["header"]
        compacted = pool.request(
            "POST", f"{self.etcd}/v3/kv/compaction", json={"revision": header["revision"], "physical": True}
        )
        assert compacted.status == 200, compacted.data
        self.restart_server()

    def restart_server(self) -> None:
        """Kill the API server; return when the next one is ready (it is started again by itself)."""
        path = self.run / f"{self.name}-apiserver.pid"
        before = path.read_text()
        os.kill(int(before), signal.SIGKILL)
        self._eventually(lambda: path.read_text() not in ("", before), "the API server is not started again")
        self._eventually(self._answers, "the API server does not get ready again")

    def _answers(self) -> bool:
        try:
            return self.call("GET", "/readyz")[0] == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _eventually(self, done: Any, complaint: str) -> None:
        until = time.monotonic() + LATE_SECONDS
        while not done():
            assert time.monotonic() < until, complaint
            time.sleep(0.05)


@dataclass
class ControlPlanes(ServingProcess[RealCluster]):
    """Running control planes: clusters by name."""

    programs: dict[str, str] = field(default_factory=dict)
    """Name → path of what was built (`kubectl` too)."""
    prometheus_url: str = ""
    """Of the one that scrapes all clusters' exporters, where `--prometheus` was given."""


def start_planes(
    state: Path,
    *clusters: str,
    fleet: Path | None = None,
    port_base: int = 0,
    audit: str = "changes",
    arguments: tuple[str, ...] = (),
) -> ControlPlanes:
    """Start control planes and wait until they are ready. The caller stops them; they also end with this process.

    Args:
        clusters: names of clusters of the fleet file; none: all of them.
        audit: ``metadata`` is lighter, but can't tell which writes changed something.
        arguments: more of `python -m controlplane up --help`.
    """
    command = [sys.executable, "-m", "controlplane", "up", "--state-dir", str(state), "--parent-pid", str(os.getpid())]
    command += ["--audit", audit, "--port-base", str(port_base)]
    command += ["--clusters", ",".join(clusters)] if clusters else []
    command += ["--fleet", str(fleet)] if fleet is not None else []
    process, facts = start([*command, *arguments], START_SECONDS)
    planes = ControlPlanes(process, programs=facts["programs"], prometheus_url=facts.get("prometheus", ""))
    for name, row in facts["clusters"].items():
        paths = {key: Path(row[key]) for key in PATHS}
        planes.clusters[name] = RealCluster(
            name,
            row["server"],
            **paths,
            etcd=facts["etcd"],
            run=Path(facts["run"]),
            exporter_url=row.get("exporter", ""),
        )
    return planes


@contextlib.contextmanager
def control_planes(state: Path, *clusters: str, **options: Any) -> Iterator[ControlPlanes]:
    """`start_planes` for a with block."""
    planes = start_planes(state, *clusters, **options)
    try:
        yield planes
    finally:
        planes.stop(patience=40)


@pytest.fixture(scope="session")
def real_planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlanes]:
    """Two API servers on one etcd, with the demo's nodes; one for the whole session: use namespaces of your own."""
    with control_planes(tmp_path_factory.mktemp("controlplane"), "gpu-fra-1", "gpu-hel-1") as planes:
        yield planes
