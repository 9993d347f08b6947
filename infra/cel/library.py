"""The functions a device selector may call: declarations for the type checker, implementations for evaluation.

The set is that of Kubernetes' DRA environment (k8s.io/apiserver `pkg/cel/environment/base.go` and `pkg/cel/library`,
1.37), type-checked in an environment of its own and evaluated in another. In the first the types are Kubernetes'
(`kubernetes.Quantity` is no string and has no fields); in the second the values of these types travel as
lists with a mark at their head, e.g. `["quantity", "<nanos>", true]`, because the runtime knows only plain values.

Not offered, and refused at compile time by name: `find` and `findAll` (Python's regular expressions can run for
ever; `matches` runs in linear time), `format.*`, two-variable comprehensions, `sortBy`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs

from cel_expr_python import cel

from infra.cel import budget, loops, network
from infra.cel.semver import Semver, parse_semver
from infra.quantity import Quantity

T = cel.Type
QUANTITY = T.AbstractType("kubernetes.Quantity")
SEMVER = T.AbstractType("kubernetes.Semver")
URL = T.AbstractType("kubernetes.URL")
IP = T.AbstractType("net.IP")
CIDR = T.AbstractType("net.CIDR")

Impl = Callable[..., Any]


@dataclass(frozen=True)
class Signature:
    """One overload as the type checker sees it."""

    params: tuple[cel.Type, ...]
    result: cel.Type
    member: bool


@dataclass(frozen=True)
class Function:
    """A function of ours. `runtime` is the name it is evaluated under where `name` is taken there."""

    name: str
    signatures: tuple[Signature, ...]
    impl: Impl
    runtime: str = ""


# ------------------------------------------------------------------------------------- values and their marks


def pack_quantity(value: Quantity) -> list[Any]:
    """A quantity as the runtime carries it."""
    return ["quantity", str(value.nanos), value.is_integer]


def pack_semver(value: Semver) -> list[Any]:
    """A version as the runtime carries it; equal versions are equal lists."""
    return ["semver", str(value)]


def is_marked(value: object) -> bool:
    """Whether a runtime value is one of our types."""
    return isinstance(value, list) and len(value) > 1 and value[0] in _MARKS


_MARKS = frozenset({"quantity", "semver", "url", "ip", "cidr"})


def _quantity(value: Any) -> Quantity:
    if isinstance(value, list) and value and value[0] == "quantity":
        return Quantity(int(value[1]), bool(value[2]))
    raise TypeError("no such overload: a quantity is needed here")


def _semver(value: Any) -> Semver:
    if isinstance(value, list) and value and value[0] == "semver":
        return parse_semver(value[1])
    raise TypeError("no such overload: a version is needed here")


def _compare(left: Any, right: Any) -> int:
    if isinstance(left, list) and left and left[0] == "quantity":
        return _quantity(left).compare(_quantity(right))
    return _semver(left).compare(_semver(right))


def _is(parse: Callable[..., object], *args: Any) -> bool:
    try:
        parse(*args)
    except ValueError:
        return False
    return True


def _operand(value: Any) -> Quantity:
    return Quantity.of_int(value) if isinstance(value, int) else _quantity(value)


# ------------------------------------------------------------------------------------------------- lists, sets


def _sum(items: list[Any]) -> Any:
    total = sum(items[1:], items[0]) if items else 0
    if isinstance(total, int) and not -(2**63) <= total < 2**63:
        raise OverflowError("integer overflow")
    return total


def _extreme(pick: Callable[[list[Any]], Any]) -> Impl:
    def of(items: list[Any]) -> Any:
        if not items:
            raise ValueError("min or max of an empty list")
        return pick(items)

    return of


def _index_of(items: list[Any], item: Any) -> int:
    return next((i for i, x in enumerate(items) if _same(x, item)), -1)


def _last_index_of(items: list[Any], item: Any) -> int:
    return next((i for i in range(len(items) - 1, -1, -1) if _same(items[i], item)), -1)


def _same(left: Any, right: Any) -> bool:
    # In CEL true is not 1; in Python it is.
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _has(items: list[Any], item: Any) -> bool:
    budget.charge(len(items))
    return any(_same(x, item) for x in items)


def _range(n: int) -> list[int]:
    budget.charge(n)
    return list(range(n))


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0 or start > end or end > len(items):
        raise ValueError(f"cannot slice({start}, {end}) a list of {len(items)}")
    return items[start:end]


def _distinct(items: list[Any]) -> list[Any]:
    out: list[Any] = []
    for item in items:
        if not _has(out, item):
            out.append(item)
    return out


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise ValueError("flatten: the level must not be negative")
    out: list[Any] = []
    for item in items:
        if isinstance(item, list) and not is_marked(item) and depth:
            out.extend(_flatten(item, depth - 1))
        else:
            out.append(item)
    return out


# ------------------------------------------------------------------------------------------- guards (ours only)


def same_attribute(left: Any, right: Any) -> bool:
    """`attribute == value`, where an attribute that is a version or quantity compares with its like only:
    Kubernetes answers "no such overload" there, and an error must not read as "no match"."""
    if is_marked(left) and not (is_marked(right) and left[0] == right[0]):
        raise TypeError(f"no such overload: the attribute is a {left[0]}; compare it with {left[0]}(...)")
    return same_value(left, right)


def same_value(left: Any, right: Any) -> bool:
    """Equality of two plain values; quantities by amount, however they were written."""
    if is_marked(left) and is_marked(right):
        return bool(left[:2] == right[:2])
    return _same(left, right)


# --------------------------------------------------------------------------------------------------- the table


def _m(*params: cel.Type, to: cel.Type) -> Signature:
    return Signature(params, to, True)


def _g(*params: cel.Type, to: cel.Type) -> Signature:
    return Signature(params, to, False)


_NUMBERS = (T.INT, T.DOUBLE, T.UINT, T.DURATION)
_ORDERED = (*_NUMBERS, T.BOOL, T.STRING, T.BYTES, T.TIMESTAMP)
_ANY = T.DYN
LIST = T.List(T.DYN)

FUNCTIONS: tuple[Function, ...] = (
    Function("quantity", (_g(T.STRING, to=QUANTITY),), lambda s: pack_quantity(Quantity.parse(s))),
    Function("isQuantity", (_g(T.STRING, to=T.BOOL),), lambda s: _is(Quantity.parse, s)),
    Function("sign", (_g(QUANTITY, to=T.INT),), lambda q: _quantity(q).compare(Quantity(0, True))),
    Function("isInteger", (_m(QUANTITY, to=T.BOOL),), lambda q: _quantity(q).is_integer),
    Function("asInteger", (_m(QUANTITY, to=T.INT),), lambda q: _quantity(q).as_integer()),
    Function("asApproximateFloat", (_m(QUANTITY, to=T.DOUBLE),), lambda q: _quantity(q).as_float()),
    Function(
        "add",
        (_m(QUANTITY, QUANTITY, to=QUANTITY), _m(QUANTITY, T.INT, to=QUANTITY)),
        lambda a, b: pack_quantity(_quantity(a) + _operand(b)),
    ),
    Function(
        "sub",
        (_m(QUANTITY, QUANTITY, to=QUANTITY), _m(QUANTITY, T.INT, to=QUANTITY)),
        lambda a, b: pack_quantity(_quantity(a) - _operand(b)),
    ),
    Function("compareTo", (_m(QUANTITY, QUANTITY, to=T.INT), _m(SEMVER, SEMVER, to=T.INT)), _compare),
    Function(
        "isGreaterThan",
        (_m(QUANTITY, QUANTITY, to=T.BOOL), _m(SEMVER, SEMVER, to=T.BOOL)),
        lambda a, b: _compare(a, b) > 0,
    ),
    Function(
        "isLessThan",
        (_m(QUANTITY, QUANTITY, to=T.BOOL), _m(SEMVER, SEMVER, to=T.BOOL)),
        lambda a, b: _compare(a, b) < 0,
    ),
    Function("semver", (_g(T.STRING, to=SEMVER),), lambda s: pack_semver(parse_semver(s))),
    Function("semver", (_g(T.STRING, T.BOOL, to=SEMVER),), lambda s, lenient: pack_semver(parse_semver(s, lenient))),
    Function("isSemver", (_g(T.STRING, to=T.BOOL),), lambda s: _is(parse_semver, s)),
    Function("isSemver", (_g(T.STRING, T.BOOL, to=T.BOOL),), lambda s, lenient: _is(parse_semver, s, lenient)),
    Function("major", (_m(SEMVER, to=T.INT),), lambda v: _semver(v).major),
    Function("minor", (_m(SEMVER, to=T.INT),), lambda v: _semver(v).minor),
    Function("patch", (_m(SEMVER, to=T.INT),), lambda v: _semver(v).patch),
    Function("url", (_g(T.STRING, to=URL),), lambda s: ["url", network.parse_url(s)]),
    Function("isURL", (_g(T.STRING, to=T.BOOL),), lambda s: _is(network.parse_url, s)),
    Function("getScheme", (_m(URL, to=T.STRING),), lambda u: network.url(u).scheme),
    Function("getHost", (_m(URL, to=T.STRING),), network.url_host),
    Function("getHostname", (_m(URL, to=T.STRING),), network.url_hostname),
    Function("getPort", (_m(URL, to=T.STRING),), network.url_port),
    Function("getEscapedPath", (_m(URL, to=T.STRING),), lambda u: network.url(u).path),
    Function(
        "getQuery",
        (_m(URL, to=T.Map(T.STRING, T.List(T.STRING))),),
        lambda u: parse_qs(network.url(u).query, keep_blank_values=True),
    ),
    Function("ip", (_g(T.STRING, to=IP),), lambda s: ["ip", str(network.parse_address(s))]),
    Function("ip", (_m(CIDR, to=IP),), lambda c: ["ip", str(network.parse_network(c[1]).ip)]),
    Function("isIP", (_g(T.STRING, to=T.BOOL),), lambda s: _is(network.parse_address, s)),
    Function("ip.isCanonical", (_g(T.STRING, to=T.BOOL),), lambda s: str(network.parse_address(s)) == s),
    Function("family", (_m(IP, to=T.INT),), lambda a: network.parse_address(a[1]).version),
    Function("isUnspecified", (_m(IP, to=T.BOOL),), lambda a: network.parse_address(a[1]).is_unspecified),
    Function("isLoopback", (_m(IP, to=T.BOOL),), lambda a: network.parse_address(a[1]).is_loopback),
    Function(
        "isLinkLocalMulticast",
        (_m(IP, to=T.BOOL),),
        lambda a: network.parse_address(a[1]) in network.LINK_LOCAL_MULTICAST[network.parse_address(a[1]).version],
    ),
    Function("isGlobalUnicast", (_m(IP, to=T.BOOL),), lambda a: network.global_unicast(network.parse_address(a[1]))),
    Function("isLinkLocalUnicast", (_m(IP, to=T.BOOL),), lambda a: network.parse_address(a[1]).is_link_local),
    Function("cidr", (_g(T.STRING, to=CIDR),), lambda s: ["cidr", str(network.parse_network(s))]),
    Function("isCIDR", (_g(T.STRING, to=T.BOOL),), lambda s: _is(network.parse_network, s)),
    Function("prefixLength", (_m(CIDR, to=T.INT),), lambda c: network.parse_network(c[1]).network.prefixlen),
    Function("masked", (_m(CIDR, to=CIDR),), lambda c: ["cidr", str(network.parse_network(c[1]).network)]),
    Function("containsIP", (_m(CIDR, T.STRING, to=T.BOOL), _m(CIDR, IP, to=T.BOOL)), network.contains_ip),
    Function("containsCIDR", (_m(CIDR, T.STRING, to=T.BOOL), _m(CIDR, CIDR, to=T.BOOL)), network.contains_cidr),
    Function("sum", tuple(_m(T.List(t), to=t) for t in _NUMBERS), _sum),
    Function("min", tuple(_m(T.List(t), to=t) for t in _ORDERED), _extreme(min)),
    Function("max", tuple(_m(T.List(t), to=t) for t in _ORDERED), _extreme(max)),
    Function(
        "isSorted",
        tuple(_m(T.List(t), to=T.BOOL) for t in _ORDERED),
        lambda items: all(a <= b for a, b in pairwise(items)),
    ),
    Function("sort", tuple(_m(T.List(t), to=T.List(t)) for t in _ORDERED), sorted),
    Function("distinct", (_m(LIST, to=LIST),), _distinct),
    Function("flatten", (_m(LIST, to=LIST),), _flatten),
    Function("flatten", (_m(LIST, T.INT, to=LIST),), _flatten),
    Function("reverse", (_m(LIST, to=LIST),), lambda items: items[::-1]),
    Function("slice", (_m(LIST, T.INT, T.INT, to=LIST),), _slice),
    Function("lists.range", (_g(T.INT, to=T.List(T.INT)),), _range),
    Function("sets.contains", (_g(LIST, LIST, to=T.BOOL),), lambda a, b: all(_has(a, x) for x in b)),
    Function("sets.intersects", (_g(LIST, LIST, to=T.BOOL),), lambda a, b: any(_has(a, x) for x in b)),
    Function(
        "sets.equivalent",
        (_g(LIST, LIST, to=T.BOOL),),
        lambda a, b: all(_has(a, x) for x in b) and all(_has(b, x) for x in a),
    ),
)

# The string functions are the runtime's own (ExtStrings); the checker gets declarations only, beside those that
# Kubernetes defines for lists under the same names, which the rewriting step sends to LIST_TWINS.
_S = T.STRING
STRINGS: dict[str, tuple[Signature, ...]] = {
    "charAt": (_m(_S, T.INT, to=_S),),
    "indexOf": (_m(_S, _S, to=T.INT), _m(_S, _S, T.INT, to=T.INT), _m(LIST, _ANY, to=T.INT)),
    "lastIndexOf": (_m(_S, _S, to=T.INT), _m(_S, _S, T.INT, to=T.INT), _m(LIST, _ANY, to=T.INT)),
    "join": (_m(T.List(_S), to=_S), _m(T.List(_S), _S, to=_S)),
    "strings.quote": (_g(_S, to=_S),),
    "replace": (_m(_S, _S, _S, to=_S), _m(_S, _S, _S, T.INT, to=_S)),
    "split": (_m(_S, _S, to=T.List(_S)), _m(_S, _S, T.INT, to=T.List(_S))),
    "substring": (_m(_S, T.INT, to=_S), _m(_S, T.INT, T.INT, to=_S)),
    "trim": (_m(_S, to=_S),),
    "lowerAscii": (_m(_S, to=_S),),
    "upperAscii": (_m(_S, to=_S),),
    "format": (_m(_S, LIST, to=_S),),
}
LIST_TWINS = {"indexOf": "list_index_of", "lastIndexOf": "list_last_index_of"}
# Functions that only a rewritten tree calls: name → kinds of the parameters, member call, implementation.
# A list stands where any kind may come, because the runtime matches parameters by kind.
INTERNAL: dict[str, tuple[tuple[cel.Type, ...], bool, Impl]] = {
    "list_index_of": ((LIST, LIST), True, lambda items, boxed: _index_of(items, boxed[0])),
    "list_last_index_of": ((LIST, LIST), True, lambda items, boxed: _last_index_of(items, boxed[0])),
    "same_attribute": ((LIST,), False, lambda pair: same_attribute(*pair)),
    "same_value": ((LIST,), False, lambda pair: same_value(*pair)),
    "nested_loop": ((LIST,), False, loops.nested_loop),
    "tick": ((T.INT,), False, budget.tick),
    "room": ((T.INT,), False, budget.room),
    "room_of": ((LIST,), False, lambda boxed: budget.room(boxed[0])),
}
__all__ = [
    "FUNCTIONS",
    "INTERNAL",
    "LIST",
    "LIST_TWINS",
    "QUANTITY",
    "STRINGS",
    "Impl",
    "pack_quantity",
    "pack_semver",
]
