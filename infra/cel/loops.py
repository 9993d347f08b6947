"""Running loops that have more rounds than the runtime allows in one evaluation (10,000), but that Kubernetes runs.

Each loop becomes an expression of its own, evaluated by a call from the one around it, with the variables that it uses
of the loops outside. The budget (`infra.cel.budget`) is one for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from infra.cel import wire
from infra.cel.wire import Checked, Node

# What the runtime answers when an evaluation has too many rounds.
TOO_MANY_ROUNDS = "Iteration budget exceeded"

Part = tuple[Any, tuple[str, ...]]  # a loop's expression and the names it takes from outside


class _Local(threading.local):
    parts: tuple[Part, ...] = ()
    variables: Mapping[str, Any] = {}


_local = _Local()


def split(checked: Checked, load: Callable[[bytes], Any]) -> tuple[Any, tuple[Part, ...]]:
    """The expression and its loops, each loaded apart with `load`. Changes the tree of `checked`."""
    parts: list[Part] = []

    def load_tree(root: Node) -> Any:
        return load(Checked(root, checked.types, checked.rest).encode())

    def visit(node: Node, bound: frozenset[str]) -> Node:
        if node.kind == "fold":
            return visit_fold(node, bound)
        if node.target is not None:
            node.target = visit(node.target, bound)
        node.args = [visit(arg, bound) for arg in node.args]
        for entry in node.entries:
            if entry.key is not None:
                entry.key = visit(entry.key, bound)
            entry.value = visit(entry.value, bound)
        return node

    def visit_fold(node: Node, bound: frozenset[str]) -> Node:
        free = tuple(sorted(_free(node, bound)))
        inside = bound | set(node.vars)
        scopes = (bound, bound, inside, inside, inside)
        node.args = [visit(arg, scope) for arg, scope in zip(node.args, scopes, strict=True)]
        parts.append((load_tree(node), free))
        values = [wire.int_const(len(parts) - 1), *(wire.ident(name) for name in free)]
        return wire.call("nested_loop", Node("list", args=values))

    root = visit(checked.expr, frozenset())
    return load_tree(root), tuple(parts)


def _free(node: Node, bound: frozenset[str]) -> Iterator[str]:
    if node.kind == "ident":
        if node.name in bound:
            yield node.name
    elif node.kind == "fold":
        inside = bound - set(node.vars)
        for arg, scope in zip(node.args, (bound, bound, inside, inside, inside), strict=True):
            yield from _free(arg, scope)
    else:
        for child in node.children():
            yield from _free(child, bound)


@contextmanager
def running(parts: tuple[Part, ...], variables: Mapping[str, Any]) -> Iterator[None]:
    """While one device is evaluated on this thread: the loops, and the device's variables."""
    _local.parts, _local.variables = parts, variables
    try:
        yield
    finally:
        _local.parts, _local.variables = (), {}


def nested_loop(call: list[Any]) -> Any:
    """Run loop number `call[0]` with the values that follow. Raises RuntimeError for an error inside it."""
    expression, names = _local.parts[call[0]]
    result = expression.eval(data={**_local.variables, **dict(zip(names, call[1:], strict=True))})
    value = result.plain_value()
    if result.type().name() == "ERROR":
        raise RuntimeError(str(value))
    return value
