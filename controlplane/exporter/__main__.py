"""`python -m controlplane.exporter --kubeconfig FILE --cluster NAME`: one cluster's exporters, see `server.py`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path

from controlplane.api import Api
from controlplane.children import alive, end_with
from controlplane.exporter.mirror import Following, Mirror
from controlplane.exporter.server import serve
from controlplane.fleets import DEFAULT_FLEET, chosen
from simulator.fleet import FleetError, load


def main(argv: list[str] | None = None) -> int:
    """Until SIGTERM, or until the parent is gone; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m controlplane.exporter", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="one that may read everything")
    parser.add_argument("--cluster", required=True, help="its name in the fleet file")
    parser.add_argument("--fleet", type=Path, default=DEFAULT_FLEET, help="where its cards are described")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--parent-pid", type=int, default=0, help="end when this process is gone")
    given = parser.parse_args(argv)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if given.parent_pid:
        end_with(given.parent_pid)
    try:
        fleet = chosen(load(given.fleet), (given.cluster,))
    except FleetError as error:
        sys.stderr.write(f"exporter: {error}\n")
        return 2
    mirror = Mirror(fleet.clusters[0], fleet.seed)
    server = serve(mirror, given.port)
    Following(Api(given.kubeconfig), mirror).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(json.dumps({"ready": True, "url": f"http://127.0.0.1:{server.server_address[1]}"}) + "\n")
    sys.stdout.flush()
    while not stopping.wait(1.0):
        if given.parent_pid and not alive(given.parent_pid):
            break
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
