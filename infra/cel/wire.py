"""The checked syntax tree of a CEL expression, read from and written to its protobuf form.

`Expression.serialize()` gives a `cel.expr.CheckedExpr` (google/cel-spec, proto/cel/expr/checked.proto and
syntax.proto). We look into the tree (which attributes are read, is a regular expression valid, what does it cost) and
change it (see `infra.cel.rewrite`). Only the few messages needed are read here, so that protobuf's runtime is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Node:
    """One expression. `kind` decides which fields count:

    const: `raw` (the encoded Constant). ident: `name`. select: `target`, `name`, `test` (has()).
    call: `target` (member call) or None, `name`, `args`. list: `args`, `optional` (positions).
    struct: `name`, `entries`. fold (a comprehension): `vars` = (iter, accu, iter2), `args` = range, accu_init,
    condition, step, result.
    """

    kind: str
    id: int = 0
    name: str = ""
    target: Node | None = None
    args: list[Node] = field(default_factory=list)
    test: bool = False
    raw: bytes = b""
    optional: bytes = b""
    entries: list[Entry] = field(default_factory=list)
    vars: tuple[str, str, str] = ("", "", "")

    def children(self) -> Iterator[Node]:
        """Direct children, in evaluation order."""
        if self.target is not None:
            yield self.target
        yield from self.args
        for entry in self.entries:
            if entry.key is not None:
                yield entry.key
            yield entry.value

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children())

    def text(self) -> str | None:
        """The value of a string constant, else None."""
        if self.kind == "const":
            for number, _, value in _fields(self.raw):
                if number == 6 and isinstance(value, bytes):
                    return value.decode("utf-8", "replace")
        return None


@dataclass(slots=True)
class Entry:
    """One entry of a map or message literal."""

    id: int
    key: Node | None
    field_name: str
    value: Node
    optional: bool


@dataclass(slots=True)
class Checked:
    """A checked expression: the tree, the encoded type of each node, and the rest as it came."""

    expr: Node
    types: dict[int, bytes]
    rest: list[tuple[int, int, int | bytes]]

    def type_of(self, node: Node) -> bytes:
        """The node's type, encoded; b"" for dyn and where nothing is recorded."""
        return self.types.get(node.id, b"")

    def position(self, node: Node, text: str) -> tuple[int, int]:
        """Line and column of the node in the source, both from 1."""
        offset = 0
        for number, _, info in self.rest:
            if number != 5 or not isinstance(info, bytes):
                continue
            for inner, _, entry in _fields(info):
                if inner == 4 and isinstance(entry, bytes):  # SourceInfo.positions: node id → offset
                    pair = {n: v for n, _, v in _fields(entry)}
                    place = pair.get(2, 0)
                    if pair.get(1) == node.id and isinstance(place, int):
                        offset = place
        before = text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def encode(self) -> bytes:
        """The protobuf form."""
        parts = [_encode_field(number, wire, value) for number, wire, value in self.rest]
        parts.append(_bytes_field(4, _encode(self.expr)))
        return _bytes_field(1, _TYPE_URL) + _bytes_field(2, b"".join(parts))


_TYPE_URL = b"type.googleapis.com/cel.expr.CheckedExpr"


def decode_checked(data: bytes) -> Checked:
    """Read a CheckedExpr as `Expression.serialize()` gives it, inside a google.protobuf.Any."""
    data = next(value for number, _, value in _fields(data) if number == 2 and isinstance(value, bytes))
    expr: Node | None = None
    types: dict[int, bytes] = {}
    rest: list[tuple[int, int, int | bytes]] = []
    for number, wire, value in _fields(data):
        if number == 4 and isinstance(value, bytes):
            expr = _decode(value)
            continue
        if number == 3 and isinstance(value, bytes):
            entry = {n: v for n, _, v in _fields(value)}
            key, encoded = entry.get(1, 0), entry.get(2, b"")
            if isinstance(key, int) and isinstance(encoded, bytes):
                types[key] = encoded
        rest.append((number, wire, value))
    if expr is None:
        raise ValueError("a checked expression without an expression")
    return Checked(expr, types, rest)


# Types, encoded (checked.proto, message Type).
DYN = (b"", b"\x0a\x00")


def list_type(encoded: bytes) -> bool:
    """Whether the type is list(…)."""
    return any(number == 6 for number, _, _ in _fields(encoded))


def sized_type(encoded: bytes) -> bool:
    """Whether values of the type have a length: string, bytes, list."""
    # Type.primitive = 3: STRING is 5, BYTES is 6 in Type.PrimitiveType.
    return any(number == 6 or (number == 3 and value in (5, 6)) for number, _, value in _fields(encoded))


def abstract_name(encoded: bytes) -> str:
    """The name of an abstract type (`kubernetes.Quantity`), else ""."""
    for number, _, value in _fields(encoded):
        if number == 14 and isinstance(value, bytes):
            for inner, _, name in _fields(value):
                if inner == 1 and isinstance(name, bytes):
                    return name.decode()
    return ""


def map_of_maps(encoded: bytes) -> bool:
    """Whether the type is map(_, map(_, _)): that of device.attributes and device.capacity."""
    for number, _, value in _fields(encoded):
        if number == 7 and isinstance(value, bytes):
            for inner, _, element in _fields(value):
                if inner == 2 and isinstance(element, bytes):
                    return any(kind == 7 for kind, _, _ in _fields(element))
    return False


# ------------------------------------------------------------------------------------- nodes made by ourselves


def ident(name: str) -> Node:
    """A variable."""
    return Node("ident", name=name)


def call(name: str, *args: Node) -> Node:
    """A global call."""
    return Node("call", name=name, args=list(args))


def int_const(value: int) -> Node:
    """An integer, not negative."""
    return Node("const", raw=_varint_field(3, value))


def bool_const(value: bool) -> Node:
    """A boolean."""
    return Node("const", raw=_varint_field(2, int(value)))


def bind(name: str, value: Node, result: Node) -> Node:
    """`result` with `name` bound to `value`, which is evaluated once: what the macro cel.bind expands to."""
    empty = Node("list")
    parts = [empty, value, bool_const(False), ident(name), result]
    return Node("fold", vars=("#unused", name, ""), args=parts)


# --------------------------------------------------------------------------------------------- wire format


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    pos, end = 0, len(data)
    while pos < end:
        key, pos = _read_varint(data, pos)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, pos = _read_varint(data, pos)
            yield number, wire, value
            continue
        size, pos = _read_varint(data, pos) if wire == 2 else (8 if wire == 1 else 4, pos)
        yield number, wire, data[pos : pos + size]
        pos += size


def _read_varint(data: bytes, pos: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, pos
        shift += 7


def varint(value: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def _bytes_field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def _encode_field(number: int, wire: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint_field(number, value)
    return _bytes_field(number, value) if wire == 2 else varint(number << 3 | wire) + value


def _decode(data: bytes) -> Node:
    node = Node("const")
    for number, _, value in _fields(data):
        if number == 2 and isinstance(value, int):
            node.id = value
        elif isinstance(value, bytes) and number in _DECODERS:
            _DECODERS[number](node, value)
    return node


def _decode_const(node: Node, data: bytes) -> None:
    node.kind, node.raw = "const", data


def _decode_ident(node: Node, data: bytes) -> None:
    node.kind = "ident"
    node.name = "".join(v.decode() for n, _, v in _fields(data) if n == 1 and isinstance(v, bytes))


def _decode_select(node: Node, data: bytes) -> None:
    node.kind = "select"
    for number, _, value in _fields(data):
        if isinstance(value, bytes):
            if number == 1:
                node.target = _decode(value)
            elif number == 2:
                node.name = value.decode()
        elif number == 3:
            node.test = bool(value)


def _decode_call(node: Node, data: bytes) -> None:
    node.kind = "call"
    for number, _, value in _fields(data):
        if isinstance(value, bytes):
            if number == 1:
                node.target = _decode(value)
            elif number == 2:
                node.name = value.decode()
            elif number == 3:
                node.args.append(_decode(value))


def _decode_list(node: Node, data: bytes) -> None:
    node.kind = "list"
    for number, wire, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            node.args.append(_decode(value))
        elif number == 2:
            node.optional += _encode_field(number, wire, value)


def _decode_struct(node: Node, data: bytes) -> None:
    node.kind = "struct"
    for number, _, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            node.name = value.decode()
        elif number == 2:
            node.entries.append(_decode_entry(value))


def _decode_entry(data: bytes) -> Entry:
    entry = Entry(0, None, "", Node("const"), False)
    for number, _, value in _fields(data):
        if isinstance(value, int):
            if number == 1:
                entry.id = value
            elif number == 5:
                entry.optional = bool(value)
        elif number == 2:
            entry.field_name = value.decode()
        elif number == 3:
            entry.key = _decode(value)
        elif number == 4:
            entry.value = _decode(value)
    return entry


def _decode_fold(node: Node, data: bytes) -> None:
    node.kind = "fold"
    got: dict[int, bytes] = {n: v for n, _, v in _fields(data) if isinstance(v, bytes)}
    node.vars = (got.get(1, b"").decode(), got.get(3, b"").decode(), got.get(8, b"").decode())
    node.args = [_decode(got.get(n, b"")) for n in (2, 4, 5, 6, 7)]


_DECODERS = {
    3: _decode_const,
    4: _decode_ident,
    5: _decode_select,
    6: _decode_call,
    7: _decode_list,
    8: _decode_struct,
    9: _decode_fold,
}


def _encode(node: Node) -> bytes:
    head = _varint_field(2, node.id) if node.id else b""
    if node.kind == "const":
        return head + _bytes_field(3, node.raw)
    if node.kind == "ident":
        return head + _bytes_field(4, _bytes_field(1, node.name.encode()))
    if node.kind == "select":
        assert node.target is not None
        body = _bytes_field(1, _encode(node.target)) + _bytes_field(2, node.name.encode())
        return head + _bytes_field(5, body + (_varint_field(3, 1) if node.test else b""))
    if node.kind == "call":
        body = _bytes_field(1, _encode(node.target)) if node.target is not None else b""
        body += _bytes_field(2, node.name.encode())
        return head + _bytes_field(6, body + b"".join(_bytes_field(3, _encode(arg)) for arg in node.args))
    if node.kind == "list":
        return head + _bytes_field(7, b"".join(_bytes_field(1, _encode(a)) for a in node.args) + node.optional)
    if node.kind == "struct":
        body = _bytes_field(1, node.name.encode()) if node.name else b""
        return head + _bytes_field(8, body + b"".join(_bytes_field(2, _encode_entry(e)) for e in node.entries))
    iter_var, accu_var, iter_var2 = node.vars
    body = _bytes_field(1, iter_var.encode()) + _bytes_field(3, accu_var.encode())
    body += b"".join(_bytes_field(number, _encode(arg)) for number, arg in zip((2, 4, 5, 6, 7), node.args, strict=True))
    return head + _bytes_field(9, body + (_bytes_field(8, iter_var2.encode()) if iter_var2 else b""))


def _encode_entry(entry: Entry) -> bytes:
    out = _varint_field(1, entry.id)
    out += _bytes_field(3, _encode(entry.key)) if entry.key is not None else _bytes_field(2, entry.field_name.encode())
    return out + _bytes_field(4, _encode(entry.value)) + (_varint_field(5, 1) if entry.optional else b"")
