"""Runs a program of ours with its clock ahead: ``python -m tests.support.shifted SECONDS manage.py watch``.

What asks :func:`portal.kernel.clock.utcnow` is told a later time; the machine, the database and the clusters keep
theirs. So a test needs not wait for the end of a month. ``-m NAME`` runs a module.
"""

from __future__ import annotations

import runpy
import sys
from datetime import UTC, datetime, timedelta

from portal.kernel.clock import time_source


def main() -> None:
    """Run the program of the command line."""
    ahead, program, *arguments = timedelta(seconds=float(sys.argv[1])), *sys.argv[2:]
    with time_source(lambda: datetime.now(UTC) + ahead):
        if program == "-m":
            module, *arguments = arguments
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            sys.argv = [program, *arguments]
            runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
