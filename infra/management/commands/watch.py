"""``manage.py watch``: see :mod:`infra.watcher`."""

import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from infra.watcher.process import Watcher
from portal.kernel.metrics import serving
from portal.kernel.workqueue.claims import owner


class Command(BaseCommand):
    """Watch the connected clusters until SIGTERM. Any number of these may run; they share the clusters."""

    help = "Watch the connected clusters: pods and nodes become evidence, capacity and work."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--name", default="", help="How this watcher is called in leases (default: host and pid).")
        parser.add_argument("--limit", type=int, default=0, help="At most so many targets (default: a fair share).")
        parser.add_argument("--committers", type=int, default=4, help="Threads that write, a connection each.")

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        name = options["name"] or owner()
        serving.serve()
        self.stderr.write(f"watcher {name}: started")
        Watcher(name=name, limit=options["limit"], committers=options["committers"]).run(stop)
        self.stderr.write(f"watcher {name}: ended")
