"""Brings clusters up, tells where they are, and stays until it is asked to end or its parent is gone."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controlplane import build
from controlplane.children import Children, Part, PlaneError, alive, end_with
from controlplane.fleets import DEFAULT_FLEET, chosen
from controlplane.furnish import furnish
from controlplane.pki import ADMIN, FURNISHER
from controlplane.plane import Etcd, Plane, Ports
from controlplane.prometheus import part as prometheus_part
from controlplane.tenants import TenantServer
from simulator.fleet import Fleet, load

START_SECONDS = 180
FURNISH_SECONDS = 120


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    state: Path
    clusters: tuple[str, ...] = ()
    fleet: Path = DEFAULT_FLEET
    port_base: int = 0
    parent: int = 0
    audit: str = "off"
    authentication: Path | None = None
    bare: bool = False
    """Without the fleet's workloads."""
    exporters: bool = False
    prometheus: bool = False
    """With one that scrapes the exporters, which it needs."""
    tenants: tuple[str, ...] = ()
    """Names of API servers that stand in for tenant clusters."""
    etcd: str = ""
    """The address of a store that runs already: then only the tenants' API servers are started, upon it."""


class Up:
    """One run of the program."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.stopping = threading.Event()

    def run(self) -> int:
        """Until SIGTERM, SIGINT or the parent's end; the exit status. Raises PlaneError, BuildError, FleetError."""
        options = self.options
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.stopping.set())
        if options.parent:
            end_with(options.parent)
        fleet = chosen(load(options.fleet), options.clusters)
        options.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        children = Children(options.state)
        try:
            ready = self._start_tenants(children) if options.etcd else self._start(children, fleet)
            if not self.stopping.is_set():
                sys.stdout.write(json.dumps(ready) + "\n")
                sys.stdout.flush()
            while not self.stopping.wait(0.3):
                children.look_after()
                if options.parent and not alive(options.parent):
                    break
        finally:
            children.stop()
        return 0

    def _start(self, children: Children, fleet: Fleet) -> dict[str, Any]:
        options, programs = self.options, build.programs()
        ports = Numbers(options.port_base)
        etcd = Etcd(programs["etcd"], options.state, ports.take(), ports.take())
        planes = [
            Plane(
                spec.name, options.state, programs, Ports(ports.take(), ports.take(), ports.take(), ports.take()),
                etcd.url, audit=options.audit, authentication=options.authentication,
            )
            for spec in fleet.clusters
        ]  # fmt: skip
        self._launch(children, [etcd.part], 30)
        tenants = self._tenants(ports, programs, etcd.url)
        servers = [plane.server for plane in planes] + [tenant.server for tenant in tenants]
        self._launch(children, servers, START_SECONDS)
        exporters = {plane.name: ports.take() for plane in planes} if options.exporters else {}
        urls = {name: f"http://127.0.0.1:{port}" for name, port in exporters.items()}
        others = [part for plane in planes for part in plane.others] + [tenant.controllers for tenant in tenants]
        others += [plane.exporter(options.fleet, exporters[plane.name]) for plane in planes if plane.name in exporters]
        prometheus = ports.take() if options.prometheus else 0
        if prometheus:
            others.append(prometheus_part(options.state, prometheus, urls))
        for part in others:
            if not self.stopping.is_set():
                children.start(part)
        with ThreadPoolExecutor(len(planes)) as pool:  # the parts get ready meanwhile
            specs = [replace(spec, workloads=()) if options.bare else spec for spec in fleet.clusters]
            work = [pool.submit(furnish, plane, spec, fleet.seed) for plane, spec in zip(planes, specs, strict=True)]
            children.wait_ready(others, START_SECONDS, self.stopping.is_set)
            kubeconfigs = [each.result(FURNISH_SECONDS) for each in work]
        return {
            "ready": True,
            "clusters": {
                plane.name: {
                    "server": plane.url,
                    "kubeconfig": str(plane.kubeconfigs[ADMIN]),
                    "observe_kubeconfig": str(paths["observe"]),
                    "manage_kubeconfig": str(paths["manage"]),
                    "exporter_kubeconfig": str(plane.kubeconfigs[FURNISHER]),
                    "audit_log": str(plane.audit_log or ""),
                    "exporter": urls.get(plane.name, ""),
                    "prometheus": f"http://127.0.0.1:{prometheus}" if prometheus else "",
                }
                for plane, paths in zip(planes, kubeconfigs, strict=True)
            },
            "tenants": {tenant.name: tenant.facts() for tenant in tenants},
            "etcd": etcd.url,
            "prometheus": f"http://127.0.0.1:{prometheus}" if prometheus else "",
            "run": str(children.ids),
            "programs": {name: str(path) for name, path in programs.items()},
        }

    def _tenants(self, ports: Numbers, programs: Mapping[str, Path], etcd: str) -> list[TenantServer]:
        state = self.options.state
        return [TenantServer(name, state, programs, ports.take(), ports.take(), etcd) for name in self.options.tenants]

    def _start_tenants(self, children: Children) -> dict[str, Any]:
        """The tenants' API servers alone, on somebody else's etcd."""
        programs = build.programs()
        tenants = self._tenants(Numbers(self.options.port_base), programs, self.options.etcd)
        self._launch(children, [tenant.server for tenant in tenants], START_SECONDS)
        self._launch(children, [tenant.controllers for tenant in tenants], START_SECONDS)
        return {
            "ready": True,
            "tenants": {tenant.name: tenant.facts() for tenant in tenants},
            "run": str(children.ids),
            "programs": {name: str(path) for name, path in programs.items()},
        }

    def _launch(self, children: Children, parts: list[Part], seconds: float) -> None:
        for part in parts:
            if not self.stopping.is_set():
                children.start(part)
        children.wait_ready(parts, seconds, self.stopping.is_set)


class Numbers:
    """Port numbers: counted up from a base, or any free ones where the base is 0."""

    def __init__(self, base: int) -> None:
        self._next = base
        self._given: set[int] = set()

    def take(self) -> int:
        """The next port; raises PlaneError where it is not free."""
        if self._next:
            port, self._next = self._next, self._next + 1
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError as error:
                    raise PlaneError(
                        f"port {port} on 127.0.0.1 is not free ({error.strerror}): choose another --port-base"
                    ) from error
            return port
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            if port not in self._given:
                self._given.add(port)
                return port
