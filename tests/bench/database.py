"""A database of its own for a bench: the suite's harness without pytest."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]

if TYPE_CHECKING:
    from tests.support.db import Clone


@contextmanager
def bench_database(name: str) -> Generator[Clone]:
    """Django set up on a fresh, migrated database as the app role; it is dropped afterwards."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings.testing")
    os.environ["AIF_TEST_WORKER"] = f"bench_{name}"
    from tests.support.db import take_clone

    clone = take_clone()
    clone.create()
    os.environ["AIF_DATABASE_URL"] = clone.url()
    import django

    django.setup()
    from django.db import connections

    try:
        yield clone
    finally:
        connections.close_all()
        clone.drop()
