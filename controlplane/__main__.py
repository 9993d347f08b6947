"""`python -m controlplane build|prometheus|up`: real Kubernetes API servers on this machine, with fake GPU nodes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from controlplane.build import GROUPS, BuildError, build
from controlplane.children import PlaneError
from controlplane.fleets import DEFAULT_FLEET
from controlplane.plane import AUDITS
from controlplane.prometheus import program
from controlplane.up import Options, Up
from simulator.fleet import FleetError


def main(argv: list[str] | None = None) -> int:
    """The program; returns its exit status."""
    given = _parser().parse_args(argv)
    try:
        if given.command == "build":
            made = build()
            for group in GROUPS:
                state = "built" if group.name in made else "up to date"
                sys.stdout.write(f"{group.name}: {state} ({group.folder})\n")
            return 0
        if given.command == "prometheus":
            sys.stdout.write(f"{program()}\n")
            return 0
        return Up(
            Options(
                state=given.state_dir.resolve(),
                clusters=tuple(name for name in given.clusters.split(",") if name),
                fleet=given.fleet,
                port_base=given.port_base,
                parent=given.parent_pid,
                audit=given.audit,
                authentication=given.authentication_config,
                bare=given.bare,
                exporters=given.exporters or given.prometheus,
                prometheus=given.prometheus,
                tenants=tuple(name for name in given.tenants.split(",") if name),
                etcd=given.etcd,
            )
        ).run()
    except (BuildError, FleetError, PlaneError) as error:
        sys.stderr.write(f"controlplane: {error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m controlplane", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build etcd, Kubernetes and kwok into the user's cache folder; needs Go")
    commands.add_parser("prometheus", help="print where Prometheus is; Debian's is fetched into the cache folder")
    up = commands.add_parser("up", help="start them, print one JSON line with where they are, and stay")
    up.add_argument("--state-dir", type=Path, required=True, help="where data, keys, kubeconfigs and logs are kept")
    up.add_argument("--clusters", default="", help="only these clusters of the fleet, separated by commas")
    up.add_argument("--fleet", type=Path, default=DEFAULT_FLEET, help="a fleet file, as the simulator's")
    up.add_argument("--bare", action="store_true", help="without the workloads of the fleet file")
    up.add_argument("--exporters", action="store_true", help="with what dcgm-exporter and kube-state-metrics tell")
    up.add_argument("--prometheus", action="store_true", help="with these, and one Prometheus that scrapes them all")
    up.add_argument("--tenants", default="", help="names of API servers that stand in for tenant clusters")
    up.add_argument("--etcd", default="", help="only the tenants' API servers, on the etcd at this address")
    up.add_argument("--port-base", type=int, default=0, help="first port, two and four for each cluster; 0: free ones")
    up.add_argument("--parent-pid", type=int, default=0, help="end when this process is gone")
    up.add_argument("--audit", choices=AUDITS, default="off", help="write who asked what, and what writes changed")
    up.add_argument(
        "--authentication-config", type=Path, default=None,
        help="an AuthenticationConfiguration (OIDC); @CA@ in it is replaced by the cluster's own authority",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
