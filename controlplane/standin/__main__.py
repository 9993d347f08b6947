"""`python -m controlplane.standin`: plays Flux and vCluster on host clusters until it is asked to end."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import traceback
from pathlib import Path

import urllib3

from controlplane.api import Api, ApiError
from controlplane.children import alive, end_with
from controlplane.standin.definitions import furnish
from controlplane.standin.flux import Flux, rolled_out
from controlplane.standin.pool import Pool, tenant
from controlplane.standin.release import STUCK_DELETE, Release
from controlplane.standin.syncer import Syncer
from controlplane.standin.values import ValuesRefused, merged
from controlplane.standin.volumes import clear, provide

Key = tuple[str, str, str]
SOURCES_EVERY = 10
"""Looks between two at the sources and volumes."""


class Host:
    """One host cluster, looked after by a thread of its own."""

    def __init__(self, name: str, kubeconfig: Path, pool: Pool, interval: float) -> None:
        self.name, self.pool, self.interval = name, pool, interval
        self.flux = Flux(kubeconfig)
        self.api = Api(kubeconfig, manager="vcluster")
        self.syncers: dict[Key, Syncer] = {}
        self._said: dict[str, str] = {}
        self._looks = 0

    def begin(self) -> None:
        """Make the definitions, and find out which tenant clusters there are."""
        furnish(self.api)
        self.pool.learn(self.name, self.api)

    def run(self, stopping: threading.Event) -> None:
        """Look again and again."""
        while not stopping.wait(self.interval):
            try:
                self.look()
            except (ApiError, urllib3.exceptions.HTTPError) as error:
                self._say("host", str(error))

    def look(self) -> None:
        """Once at everything; what fails for one release does not hold up the others."""
        if self._looks % SOURCES_EVERY == 0:
            self.flux.sources()
            clear(self.api)
        self._looks += 1
        for release in self.flux.releases():
            key = (self.name, release.namespace, release.name)
            try:
                self._one(key, release)
                self._said.pop(str(key), None)
            except (ApiError, urllib3.exceptions.HTTPError, ValuesRefused) as error:
                if not isinstance(error, ApiError) or error.status != 409:
                    self._say(str(key), str(error))
            except Exception:  # noqa: BLE001  # else the thread ends, and every release stays as it is in silence
                self._say(str(key), traceback.format_exc())

    def _one(self, key: Key, release: Release) -> None:
        if release.deleting:
            self.syncers.pop(key, None)
            if release.ordered(STUCK_DELETE) or self.pool.give_back(key):
                self.flux.reconcile(release)
            return
        self.flux.reconcile(release)
        found = self.api.find(f"/apis/apps/v1/namespaces/{release.namespace}/statefulsets/{release.name}")
        if found is None:
            return
        provide(self.api, found)
        if found["spec"].get("replicas", 1) < 1 or not (rolled_out(found) or key in self.syncers):
            return
        if not (found.get("status") or {}).get("readyReplicas"):
            return
        values = merged(release.values)
        if key not in self.syncers:
            taken = self.pool.take(key, str(values["exportKubeConfig"].get("server") or ""))
            if taken is None:
                self._say(
                    str(key), f"all {len(self.pool.tenants)} API servers that stand in for tenant clusters are taken"
                )
                return
            self.syncers[key] = Syncer(release, values, self.api, taken)
        syncer = self.syncers[key]
        if release.settled:  # until then the old control plane runs
            syncer.look_again(values)
        syncer.step()

    def _say(self, about: str, text: str) -> None:
        """A line on standard error, once for each sentence."""
        if self._said.get(about) != text:
            self._said[about] = text
            sys.stderr.write(f"standin: {self.name}: {text}\n")
            sys.stderr.flush()


def main(argv: list[str] | None = None) -> int:
    """The program; returns its exit status."""
    given = _parser().parse_args(argv)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stopping.set())
    if given.parent_pid:
        end_with(given.parent_pid)
    try:
        pool = Pool([tenant(text) for text in given.tenant])
        named = [text.partition("=") for text in given.host]
        hosts = [Host(name, Path(path), pool, given.interval) for name, _, path in named]
    except (ValueError, OSError) as error:
        sys.stderr.write(f"standin: {error}\n")
        return 2
    try:
        for host in hosts:
            host.begin()
    except (ApiError, urllib3.exceptions.HTTPError) as error:
        sys.stderr.write(f"standin: {error}\n")
        return 1
    threads = [threading.Thread(target=host.run, args=(stopping,), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    sys.stdout.write(json.dumps({"ready": True, "hosts": [host.name for host in hosts]}) + "\n")
    sys.stdout.flush()
    while not stopping.wait(0.5):
        if given.parent_pid and not alive(given.parent_pid):
            break
    stopping.set()
    for thread in threads:
        thread.join(5)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m controlplane.standin", description=__doc__)
    parser.add_argument("--host", action="append", required=True, help="NAME=KUBECONFIG of an administrator; again")
    parser.add_argument(
        "--tenant", action="append", default=[],
        help="NAME=KUBECONFIG[,secret=KUBECONFIG][,authentication=FILE]: an API server for a tenant cluster; again",
    )  # fmt: skip
    parser.add_argument("--interval", type=float, default=0.4, help="seconds between two looks")
    parser.add_argument("--parent-pid", type=int, default=0, help="end when this process is gone")
    return parser


if __name__ == "__main__":
    sys.exit(main())
