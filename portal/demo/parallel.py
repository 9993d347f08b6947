"""Doing the same for several things at once, each in a thread with a database connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connection

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(function: Callable[[T], R], items: Iterable[T], threads: int = 3) -> list[R]:
    """What ``function`` answers for each item, in their order. Raises what the first that failed raised.

    While one waits for the database, a cluster or a password's digest, another goes on.
    """

    def run(item: T) -> R:
        try:
            return function(item)
        finally:
            connection.close()

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, items))
