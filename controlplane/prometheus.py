"""Prometheus as a process: Debian's program, unpacked into the cache folder without installing it, or the one that is
installed. No service is started, and no other package is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from controlplane.build import BuildError, alone, cache_folder, say
from controlplane.children import Part
from controlplane.plane import http_ok

PACKAGE = "prometheus"
RETENTION = "400d"


def program() -> Path:
    """Where it is; fetched where it is missing. Raises BuildError."""
    if found := shutil.which(PACKAGE):
        return Path(found)
    folder = cache_folder() / PACKAGE
    path = folder / "usr" / "bin" / PACKAGE
    if not path.exists():
        with alone():
            if not path.exists():
                _fetch(folder)
    return path


def _fetch(folder: Path) -> None:
    missing = [command for command in ("apt-get", "dpkg") if shutil.which(command) is None]
    if missing:
        raise BuildError(f"Without {' and '.join(missing)} Prometheus can't be fetched. Install it.")
    say("fetching Debian's prometheus")
    with tempfile.TemporaryDirectory(prefix=f"{PACKAGE}-", dir=cache_folder()) as name:
        unfinished = Path(name)
        unfinished.chmod(0o755)
        done = _download(unfinished)
        if done.returncode != 0 and os.geteuid() == 0:  # perhaps the lists of packages are missing or old
            _run(["apt-get", "update", "-qq"], unfinished)
            done = _download(unfinished)
        packages = list(unfinished.glob("*.deb"))
        if done.returncode != 0 or len(packages) != 1:
            said = done.stderr.strip()[-500:]
            raise BuildError(f"Debian's prometheus can't be fetched ({said}). Install Prometheus, or `apt-get update`.")
        unpacked = unfinished / "unpacked"
        done = _run(["dpkg", "-x", str(packages[0]), str(unpacked)], unfinished)
        if done.returncode != 0:
            raise BuildError(f"Debian's prometheus can't be unpacked: {done.stderr.strip()[-500:]}")
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)


def _download(folder: Path) -> subprocess.CompletedProcess[str]:
    # As root apt would fetch as another user, who may not write here.
    return _run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", PACKAGE], folder)


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def part(state: Path, port: int, exporters: Mapping[str, str], interval: str = "15s") -> Part:
    """One Prometheus that scrapes the exporters of each cluster (name → base address) and labels them `cluster`."""
    folder = state / "prometheus"
    folder.mkdir(exist_ok=True, mode=0o700)
    jobs = [
        {
            "job_name": job,
            "metrics_path": f"/metrics/{path}",
            "honor_labels": True,  # as kube-prometheus does for both: namespace, pod and node are the pod's
            "static_configs": [
                {"targets": [url.removeprefix("http://")], "labels": {"cluster": cluster}}
                for cluster, url in exporters.items()
            ],
        }
        for job, path in (("dcgm-exporter", "dcgm"), ("kube-state-metrics", "kube-state"))
    ]
    config = folder / "prometheus.yml"  # JSON is YAML
    config.write_text(json.dumps({"global": {"scrape_interval": interval}, "scrape_configs": jobs}, indent=1))
    command = [
        str(program()), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
        f"--storage.tsdb.retention.time={RETENTION}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    return Part("prometheus", command, lambda: http_ok(f"http://127.0.0.1:{port}/-/ready"), patience=10)
