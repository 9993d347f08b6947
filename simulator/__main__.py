"""Starts the simulated fleet: `python -m simulator --help`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

from simulator import machinery, metrics, saving
from simulator.clock import FAST, Timing
from simulator.cluster import Cluster
from simulator.controllers.base import Manager
from simulator.fleet import ClusterSpec, FleetError, load
from simulator.http import App
from simulator.pki import Pki

log = logging.getLogger("simulator")

DEFAULT_FLEET = Path(__file__).parent / "fleets" / "demo.yaml"
_PR_SET_PDEATHSIG = 1


class _Server(uvicorn.Server):
    """A server that leaves signals to the whole program, and tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


class Running:
    """One cluster with its socket, its machinery and its files."""

    def __init__(self, cluster: Cluster, manager: Manager, pki: Pki, sock: socket.socket, state_dir: Path) -> None:
        self.cluster, self.manager, self.pki, self.sock, self.state_dir = cluster, manager, pki, sock, state_dir
        port = sock.getsockname()[1]
        self.url = f"https://127.0.0.1:{port}"
        self.kubeconfig = state_dir / f"{cluster.spec.name}.kubeconfig"
        self.observe_kubeconfig = state_dir / f"{cluster.spec.name}-observe.kubeconfig"
        for user, path in zip(pki.users, (self.kubeconfig, self.observe_kubeconfig), strict=True):
            pki.write_kubeconfig(path, self.url, user)
        config = uvicorn.Config(
            App(cluster),
            ssl_certfile=pki.cert,
            ssl_keyfile=pki.key,
            lifespan="off",
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=120,
            timeout_graceful_shutdown=2,
            backlog=512,
        )
        self.server = _Server(config)
        self.writing = asyncio.Lock()

    def save(self, *, last: bool = False) -> None:
        """Write the state."""
        saving.save(self.state_dir, self.cluster.spec.name, saving.snapshot(self.cluster, last=last))

    async def keep_saving(self) -> None:
        """Save and read the energy counters again and again."""
        while True:
            await asyncio.sleep(self.cluster.timing.save)
            now = self.cluster.clock()
            metrics.sample(self.cluster, self.cluster.meter, metrics.exporting(self.cluster), now)
            data = saving.snapshot(self.cluster, last=False)
            async with self.writing:
                await asyncio.to_thread(saving.save, self.state_dir, self.cluster.spec.name, data)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    parser.add_argument("--state-dir", type=Path, required=True, help="where kubeconfigs, keys and state are kept")
    parser.add_argument("--fleet", type=Path, default=DEFAULT_FLEET, help="the fleet file (default: the demo's)")
    parser.add_argument("--clusters", default="", help="only these clusters of the fleet, separated by commas")
    parser.add_argument("--tenants", default="", help="names of further API servers, in the role of tenant clusters")
    parser.add_argument("--port-base", type=int, default=0, help="first port, one for each cluster; 0: any free ones")
    parser.add_argument("--fast", action="store_true", help="short delays, for tests")
    parser.add_argument("--seed", default=None, help="make uids and generated names the same each time")
    parser.add_argument("--parent-pid", type=int, default=0, help="end when this process is gone")
    parser.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    return parser.parse_args(argv)


def _specs(arguments: argparse.Namespace) -> tuple[list[ClusterSpec], Timing, str]:
    fleet = load(arguments.fleet)
    chosen = [name for name in arguments.clusters.split(",") if name]
    known = {spec.name: spec for spec in fleet.clusters}
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise FleetError(f"the fleet has no cluster {', '.join(unknown)}; it has {', '.join(known)}")
    timing = Timing().changed(fleet.timing)
    if arguments.fast:
        timing = timing.changed(FAST)
    specs = [known[name] for name in chosen] if chosen else list(fleet.clusters)
    specs += [ClusterSpec(name, virtual=True) for name in arguments.tenants.split(",") if name]
    return specs, timing, fleet.seed


def _listen(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError as error:
        raise FleetError(
            f"port {port} on 127.0.0.1 is not free ({error.strerror}): choose another --port-base"
        ) from error
    sock.set_inheritable(False)
    return sock


def _die_with_parent(pid: int) -> None:
    """Ask the kernel for SIGTERM when the parent ends (Linux; elsewhere polling alone has to do)."""
    if sys.platform == "linux" and os.getppid() == pid:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


async def _watch_parent(pid: int, stop: asyncio.Event) -> None:
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            stop.set()
            return
        except PermissionError:
            pass
        await asyncio.sleep(1.0)


async def serve(arguments: argparse.Namespace) -> None:
    """Run until SIGTERM or SIGINT."""
    specs, timing, seed = _specs(arguments)
    state_dir: Path = arguments.state_dir
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    running: list[Running] = []
    for index, spec in enumerate(specs):
        sock = _listen(arguments.port_base + index if arguments.port_base else 0)
        pki = Pki(state_dir, spec.name)
        cluster = Cluster(spec, timing, pki.users, arguments.seed and f"{arguments.seed}/{spec.name}")
        machinery.furnish_devices(cluster, seed)
        found = saving.load(cluster, state_dir)
        manager = machinery.controllers(cluster, pki.ca)
        machinery.furnish(cluster)
        if not found:
            machinery.deploy(cluster)
        running.append(Running(cluster, manager, pki, sock, state_dir))
        running[-1].save()  # from now on a kill is known as one: the saved state is no longer the last
    tasks = [asyncio.create_task(row.server.serve(sockets=[row.sock])) for row in running]
    tasks += [asyncio.create_task(row.manager.run()) for row in running]
    tasks += [asyncio.create_task(row.keep_saving()) for row in running]
    if arguments.parent_pid:
        _die_with_parent(arguments.parent_pid)
        tasks.append(asyncio.create_task(_watch_parent(arguments.parent_pid, stop)))
    await asyncio.gather(*(row.server.listening.wait() for row in running))
    ready = {
        row.cluster.spec.name: {
            "server": row.url,
            "kubeconfig": str(row.kubeconfig),
            "observe_kubeconfig": str(row.observe_kubeconfig),
        }
        for row in running
        if not row.cluster.spec.virtual
    }
    tenants = {
        row.cluster.spec.name: {
            "server": row.url,
            "kubeconfig": str(row.kubeconfig),
            "secret_kubeconfig": str(row.kubeconfig),
            "authentication": "",
        }
        for row in running
        if row.cluster.spec.virtual
    }
    sys.stdout.write(json.dumps({"ready": True, "clusters": ready, "tenants": tenants}) + "\n")
    sys.stdout.flush()
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    await _end(running, tasks)


async def _end(running: list[Running], tasks: list[asyncio.Task[Any]]) -> None:
    for row in running:
        row.server.should_exit = True
        row.cluster.hub.end_all(cut=False)
    servers = tasks[: len(running)]
    await asyncio.wait(servers, timeout=5)
    for row in running:
        row.manager.stop()
        async with row.writing:
            row.save(last=True)
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            log.error("a part of the simulator ended with an error", exc_info=outcome)


def main(argv: list[str] | None = None) -> int:
    """The program; returns its exit status."""
    arguments = _arguments(argv)
    arguments.state_dir = arguments.state_dir.resolve()
    arguments.state_dir.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=arguments.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            _run(arguments)
    except (FleetError, saving.StateError) as error:
        sys.stderr.write(f"simulator: {error}\n")
        return 2
    return 0


def _run(arguments: argparse.Namespace) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(arguments))
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(arguments))


if __name__ == "__main__":
    sys.exit(main())
