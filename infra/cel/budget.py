"""How much one evaluation may cost: the limit Kubernetes sets for a device selector, counted as it counts.

The runtime has no limit of its own, so `infra.cel.rewrite` puts a `tick` into each loop and a `room` around each
operation that makes strings or lists grow. A spent budget ends every loop at once, and the answer is then
"cost limit exceeded", whatever the expression made of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# resource.k8s.io/v1 CELSelectorExpressionMaxCost.
LIMIT = 1_000_000


class CostLimit(Exception):
    """The evaluation cost more than `LIMIT`."""


class _Local(threading.local):
    left: int = LIMIT


_local = _Local()


@contextmanager
def fresh(spent: int) -> Iterator[None]:
    """A new budget for one evaluation on this thread, `spent` of it already used."""
    _local.left = LIMIT - spent
    yield


def exhausted() -> bool:
    """Whether the current budget is spent."""
    return _local.left < 0


def tick(cost: int) -> bool:
    """One round of a loop; False ends the loop."""
    _local.left -= cost
    return _local.left >= 0


def charge(cost: int) -> None:
    """Take `cost`; raises CostLimit when it is not there, and the budget stays spent."""
    _local.left -= cost
    if _local.left < 0:
        raise CostLimit("cost limit exceeded")


def room(size: object) -> bool:
    """Pay for a value that was just made: `size` is its length, or the value itself. Raises CostLimit."""
    length = size if isinstance(size, int) else len(size) if isinstance(size, str | bytes | list) else 0
    # common.StringTraversalCostFactor of cel-go: a tenth for each character, rounded up.
    charge(-(-length // 10))
    return True
