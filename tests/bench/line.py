"""What a bench says: its facts as JSON, and the line that `make bench` puts into its table."""

from __future__ import annotations

import json
import sys

MARK = "bench: "
"""How the line begins; scripts/stages.py looks for it."""


def tell(what: str, ours: str, yardstick: str, ratio: str, reach: str, *, met: bool, **facts: object) -> None:
    """Print both. ``ratio``: ours to the yardstick. ``reach``: what the design asks for, ``met`` in this run or not."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.write(MARK + " | ".join((what, ours, yardstick, ratio, reach, "yes" if met else "NO")) + "\n")
    sys.stdout.flush()


def seconds(value: float) -> str:
    """For people: three digits that count."""
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
