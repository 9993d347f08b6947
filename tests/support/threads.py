"""Running the same thing many times at once, each thread with a database connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from django.db import connections

T = TypeVar("T")


def at_once(functions: list[Callable[[], T]], *, timeout: float = 60.0) -> list[T | BaseException]:
    """Start all functions at one moment and wait; each result, or the exception, in the order given."""
    barrier = threading.Barrier(len(functions))
    results: list[T | BaseException | None] = [None] * len(functions)

    def work(index: int) -> None:
        try:
            barrier.wait(timeout)
            results[index] = functions[index]()
        except BaseException as error:  # noqa: BLE001  # handed to the caller
            results[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    assert not any(thread.is_alive() for thread in threads), "a thread does not come to an end"
    return results  # type: ignore[return-value]  # every slot is filled once its thread has ended
