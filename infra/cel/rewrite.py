"""What is done to a checked selector before it runs: looked through, bounded, and given Kubernetes' semantics.

- `device.attributes[domain]` of an unknown domain is an empty map, not an error (while `domain in device.attributes`
  stays false): the look-up becomes a conditional.
- `==` on quantities compares amounts; on an attribute that is a version it compares versions or is an error.
- Each loop pays for its rounds and each growing string or list for its size (`infra.cel.budget`).
- What the selector reads is written down, for sentences like "memory is 40Gi".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from infra.cel import wire
from infra.cel.library import LIST_TWINS
from infra.cel.wire import Checked, Node

# Costs as cel-go counts them at run time (common/cost.go): a variable or field 1, a call 1, a list 10, a map 30.
_CALL, _NAME, _LIST, _MAP = 1, 1, 10, 30
_FREE = frozenset({"_&&_", "_||_", "!_", "_?_:_", "@not_strictly_false"})
_GROWING = frozenset({"_+_", "replace", "join", "format"})
_ROOTS = {"device.attributes": "attributes", "device.capacity": "capacity"}


@dataclass(frozen=True, slots=True)
class Reference:
    """Something of a device that a selector reads: kind ("driver", "attributes", "capacity"), domain, id."""

    kind: str
    domain: str = ""
    id: str = ""

    def __str__(self) -> str:
        if self.kind == "driver":
            return "driver"
        return f'{self.kind}["{self.domain}"].{self.id}'


def references(root: Node) -> tuple[Reference, ...]:
    """What the selector reads by a literal name, in order of appearance, each once."""
    found: dict[Reference, None] = {}
    for node in reversed(list(root.walk())):
        if node.kind == "ident" and node.name == "device.driver":
            found[Reference("driver")] = None
        step = _step(node)
        outer = _step(step[0]) if step else None
        if step and outer and outer[0].kind == "ident" and outer[0].name in _ROOTS:
            found[Reference(_ROOTS[outer[0].name], outer[1], step[1])] = None
    return tuple(found)


def _step(node: Node) -> tuple[Node, str] | None:
    """`operand.name`, `operand["name"]` and their optional forms, as (operand, name)."""
    if node.kind == "select" and node.target is not None:
        return node.target, node.name
    if node.kind == "call" and node.name in ("_[_]", "_[?_]", "_?._") and len(node.args) == 2:
        name = node.args[1].text()
        if name is not None:
            return node.args[0], name
    return None


def literal_patterns(root: Node) -> Iterator[tuple[Node, str]]:
    """Regular expressions written as constants, with their nodes."""
    for node in root.walk():
        if node.kind == "call" and node.name == "matches" and node.args:
            text = node.args[-1].text()
            if text is not None:
                yield node.args[-1], text


def straight_cost(node: Node) -> int:
    """An upper bound of the cost of evaluating `node` once, without the rounds of its loops."""
    cost = 0
    stack = [node]
    while stack:
        current = stack.pop()
        if current.kind in ("ident", "select"):
            cost += _NAME
        elif current.kind == "list":
            cost += _LIST
        elif current.kind == "struct":
            cost += _MAP
        elif current.kind == "call" and current.name not in _FREE:
            cost += _CALL
            if current.name == "matches":
                # 253 characters is the longest attribute; a pattern costs a quarter for each of its characters.
                cost += 26 * -(-len(current.args[-1].raw) // 4)
        if current.kind == "fold":
            stack += [current.args[0], current.args[1], current.args[4]]
        else:
            stack.extend(current.children())
    return cost


def rewrite(checked: Checked) -> None:
    """Change the tree in place, as the module's text says."""
    _Rewriter(checked).run()


class _Rewriter:
    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.next_id = max((node.id for node in checked.expr.walk()), default=0) + 1

    def run(self) -> None:
        self.checked.expr = self._visit(self.checked.expr, "")

    def _visit(self, node: Node, accu: str) -> Node:
        """The replacement of `node`, its children replaced first. `accu`: accumulator of the loop around it."""
        if node.kind == "fold":
            return self._loop(node, accu)
        if node.target is not None:
            node.target = self._visit(node.target, accu)
        node.args = [self._visit(arg, accu) for arg in node.args]
        for entry in node.entries:
            if entry.key is not None:
                entry.key = self._visit(entry.key, accu)
            entry.value = self._visit(entry.value, accu)
        if node.kind == "select":
            return self._select(node)
        if node.kind == "call":
            return self._call(node, accu)
        return node

    def _loop(self, node: Node, accu: str) -> Node:
        is_bind = node.args[0].kind == "list" and not node.args[0].args
        cost = 0 if is_bind else straight_cost(node.args[2]) + straight_cost(node.args[3])
        inner = node.vars[1]
        scopes = (accu, accu, inner, inner, inner)
        node.args = [self._visit(arg, scope) for arg, scope in zip(node.args, scopes, strict=True)]
        if not is_bind:
            node.args[2] = self._new("_&&_", self._new("tick", wire.int_const(max(cost, 1))), node.args[2])
        return node

    def _select(self, node: Node) -> Node:
        assert node.target is not None
        if not self._is_outer_map(node.target):
            return node
        if node.test:
            return self._numbered(wire.bool_const(True))
        key = Node("const", raw=b"\x32" + _length_prefixed(node.name))
        return self._lookup(node, node.target, key)

    def _call(self, node: Node, accu: str) -> Node:
        name = node.name
        if name in ("_[_]", "_[?_]", "_?._") and self._is_outer_map(node.args[0]):
            found = self._lookup(node, node.args[0], node.args[1])
            return found if name == "_[_]" else self._new("optional.of", found)
        if name in ("_==_", "_!=_"):
            return self._equality(node)
        if name in LIST_TWINS and node.target is not None and wire.list_type(self.checked.type_of(node.target)):
            node.name, node.id = LIST_TWINS[name], self._id()
            node.args = [self._boxed(node.args[0])]
            return node
        if name in _GROWING:
            return self._growing(node, accu)
        return node

    def _equality(self, node: Node) -> Node:
        left, right = node.args
        types = {wire.abstract_name(self.checked.type_of(arg)) for arg in node.args}
        if "kubernetes.Quantity" in types:
            guard = "same_value"
        elif self.checked.type_of(left) in wire.DYN:
            # Kubernetes' `!=` answers true where its `==` is an error.
            guard = "same_attribute" if node.name == "_==_" else "same_value"
        else:
            return node
        same = self._new(guard, self._boxed(left, right))
        return same if node.name == "_==_" else self._new("!_", same)

    def _growing(self, node: Node, accu: str) -> Node:
        kind = self.checked.type_of(node)
        if node.name == "_+_":
            first = node.args[0]
            # `accumulator + [element]` is what map() and filter() make; the loop's tick pays for it.
            if first.kind == "ident" and first.name == accu and node.args[1].kind == "list":
                return node
            if kind not in wire.DYN and not wire.sized_type(kind):
                return node
        name = f"@v{self._id()}"
        value = wire.ident(name)
        if kind in wire.DYN:
            paid = self._new("room_of", self._boxed(value))
        else:
            paid = self._new("room", self._new("size", value))
        result = self._new("_?_:_", paid, wire.ident(name), wire.ident(name))
        return self._numbered(wire.bind(name, node, result))

    def _is_outer_map(self, node: Node) -> bool:
        return node.kind != "struct" and wire.map_of_maps(self.checked.type_of(node))

    def _lookup(self, node: Node, operand: Node, key: Node) -> Node:
        """`operand[key]`, or an empty map where there is no such key. Both are evaluated once."""
        binds: list[tuple[str, Node]] = []
        names: list[Node] = []
        for part in (operand, key):
            if part.kind in ("ident", "const"):
                names.append(part)
            else:
                name = f"@v{self._id()}"
                binds.append((name, part))
                names.append(wire.ident(name))
        found = self._new("_[_]", names[0], names[1])
        known = self._new("@in", names[1], names[0])
        result = self._new("_?_:_", known, found, self._numbered(Node("struct")))
        for name, part in reversed(binds):
            result = self._numbered(wire.bind(name, part, result))
        # The new node stands for the old one, so that what looks at its type still finds it.
        self.checked.types[result.id] = self.checked.type_of(node)
        return result

    def _boxed(self, *values: Node) -> Node:
        """A list literal: the runtime finds an implementation by the kinds of its arguments, and so any will do."""
        return self._numbered(Node("list", args=list(values)))

    def _new(self, name: str, *args: Node) -> Node:
        return self._numbered(wire.call(name, *args))

    def _numbered(self, node: Node) -> Node:
        for part in node.walk():
            if not part.id:
                part.id = self._id()
        return node

    def _id(self) -> int:
        self.next_id += 1
        return self.next_id


def _length_prefixed(text: str) -> bytes:
    data = text.encode()
    return wire.varint(len(data)) + data
