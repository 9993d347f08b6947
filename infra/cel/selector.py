"""Compile and evaluate device selectors."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from infra.cel import budget, library, loops, wire
from infra.cel.device import Device, Version
from infra.cel.library import FUNCTIONS, STRINGS, pack_quantity, pack_semver
from infra.cel.rewrite import Reference, literal_patterns, references, rewrite, straight_cost
from infra.cel.semver import parse_semver
from infra.quantity import Quantity

__all__ = ["Answer", "Match", "Selector", "SelectorError", "compile_selector"]

# resource.k8s.io/v1 CELSelectorExpressionMaxLength.
MAX_LENGTH = 10 * 1024
MAX_PATTERNS = 2_000
"""What the regular expressions of one selector may weigh together (:func:`pattern_weight`): some 40 ms to compile."""
_ANSWERS_KEPT = 4096


class Answer(StrEnum):
    """The kinds of answer a selector can give for a device."""

    TRUE = "true"
    FALSE = "false"
    COMPILE_ERROR = "compile-error"
    EVAL_ERROR = "eval-error"


@dataclass(frozen=True, slots=True)
class Match:
    """The answer for one device; true only if the device matches. `reason` says what went wrong in an error.

    An error is not "no match": the Kubernetes allocator fails the whole claim on it.
    """

    answer: Answer
    reason: str = ""

    def __bool__(self) -> bool:
        return self.answer is Answer.TRUE


class SelectorError(ValueError):
    """The selector is not valid. `line` and `column` (from 1) say where; the message also says what to do."""

    answer = Answer.COMPILE_ERROR

    def __init__(self, detail: str, line: int = 1, column: int = 1) -> None:
        super().__init__(f"line {line}, column {column}: {detail}")
        self.detail = detail
        self.line = line
        self.column = column


class Selector:
    """A compiled selector. `reads` lists the attributes and capacities it names. Safe to share between threads."""

    def __init__(self, text: str, encoded: bytes, reads: tuple[Reference, ...], cost: int) -> None:
        self.text = text
        self.reads = reads
        self._encoded = encoded
        self._expression = _runtime().deserialize(encoded)
        self._parts: tuple[loops.Part, ...] = ()
        self._cost = cost
        self._answers: OrderedDict[Device, Match] = OrderedDict()
        self._lock = threading.Lock()

    def matches(self, device: Device) -> Match:
        """The answer for this device; evaluated once for each distinct device, then remembered."""
        with self._lock:
            known = self._answers.get(device)
        if known is None:
            known = self._evaluate(device)
            with self._lock:
                self._answers[device] = known
                if len(self._answers) > _ANSWERS_KEPT:
                    self._answers.popitem(last=False)
        return known

    def _evaluate(self, device: Device) -> Match:
        try:
            variables = _variables(device)
        except ValueError as error:
            return Match(Answer.EVAL_ERROR, str(error))
        kind, value, spent = self._run(variables)
        if kind == "ERROR" and not spent and not self._parts and loops.TOO_MANY_ROUNDS in str(value):
            checked = wire.decode_checked(self._encoded)
            self._expression, self._parts = loops.split(checked, _runtime().deserialize)
            kind, value, spent = self._run(variables)
        if spent:
            return Match(Answer.EVAL_ERROR, "cost limit exceeded: make its lists or loops smaller")
        if kind == "BOOL":
            return Match(Answer.TRUE if value else Answer.FALSE)
        if kind == "ERROR":
            return Match(Answer.EVAL_ERROR, _plain_reason(str(value)))
        return Match(Answer.EVAL_ERROR, f"the result is of type {kind.lower()}, not a boolean")

    def _run(self, variables: dict[str, Any]) -> tuple[str, Any, bool]:
        """Kind and value of the result, and whether the budget ran out."""
        with budget.fresh(self._cost), loops.running(self._parts, variables):
            try:
                result = self._expression.eval(data=variables)
                kind, value = result.type().name(), result.plain_value()
            except Exception as error:  # noqa: BLE001  the binding hands on whatever a function raised
                kind, value = "ERROR", str(error)
            return kind, value, budget.exhausted()


def _variables(device: Device) -> dict[str, Any]:
    attributes: dict[str, dict[str, Any]] = {}
    for name, value in device.attributes:
        domain, identifier = _qualified(name, device.driver)
        if isinstance(value, Version):
            try:
                packed: Any = pack_semver(parse_semver(value.text))
            except ValueError as error:
                raise ValueError(f"attribute {name}: {error}") from error
        else:
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise ValueError(f"attribute {name}: {value} does not fit in 64 bits")
            if isinstance(value, str) and "\0" in value:
                # The runtime would cut it off there, and the rest would compare as equal.
                raise ValueError(f"attribute {name}: a NUL character is not allowed")
            packed = value
        attributes.setdefault(domain, {})[identifier] = packed
    capacity: dict[str, dict[str, Any]] = {}
    for name, amount in device.capacity:
        domain, identifier = _qualified(name, device.driver)
        try:
            capacity.setdefault(domain, {})[identifier] = pack_quantity(Quantity.parse(amount))
        except ValueError as error:
            raise ValueError(f"capacity {name}: {error}") from error
    return {
        "device.driver": device.driver,
        "device.attributes": attributes,
        "device.capacity": capacity,
        "device.allowMultipleAllocations": device.allow_multiple,
    }


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


# ------------------------------------------------------------------------------------------------- compiling


def _variable_types(quantity: Any) -> dict[str, Any]:
    text, dyn = cel.Type.STRING, cel.Type.DYN
    return {
        "device.driver": text,
        "device.attributes": cel.Type.Map(text, cel.Type.Map(text, dyn)),
        "device.capacity": cel.Type.Map(text, cel.Type.Map(text, quantity)),
        "device.allowMultipleAllocations": cel.Type.BOOL,
    }


@lru_cache(maxsize=1)
def _checker() -> Any:
    """The environment that types are checked in: declarations only."""
    overloads: dict[str, list[Any]] = {}
    tables = [(f.name, f.signatures) for f in FUNCTIONS] + list(STRINGS.items())
    for name, signatures in tables:
        for signature in signatures:
            made = overloads.setdefault(name, [])
            made.append(
                cel.Overload(
                    f"{name}_{len(made)}", signature.result, list(signature.params), is_member=signature.member
                )
            )
    return cel.NewEnv(
        variables=_variable_types(library.QUANTITY),
        extensions=[ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
        functions=[cel.FunctionDecl(name, made) for name, made in overloads.items()],
    )


@lru_cache(maxsize=1)
def _runtime() -> Any:
    """The environment that selectors run in: the implementations, for the kinds of value the runtime knows."""
    plain, seen = [cel.Type.DYN], set()
    overloads: dict[str, list[Any]] = {}

    def add(name: str, kinds: list[Any], member: bool, impl: library.Impl) -> None:
        key = (name, member, tuple(kind.name() for kind in kinds))
        if key not in seen:
            seen.add(key)
            made = overloads.setdefault(name, [])
            made.append(cel.Overload(f"run_{name}_{len(made)}", plain[0], kinds, is_member=member, impl=impl))

    for function in FUNCTIONS:
        for signature in function.signatures:
            add(function.name, [_runtime_kind(p) for p in signature.params], signature.member, function.impl)
    for twin, (kinds, member, impl) in library.INTERNAL.items():
        add(twin, list(kinds), member, impl)
    return cel.NewEnv(
        variables=_variable_types(cel.Type.DYN),
        extensions=[ext_strings.ExtStrings(2), ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
        functions=[cel.FunctionDecl(name, made) for name, made in overloads.items()],
    )


def _runtime_kind(declared: Any) -> Any:
    """Our own types travel as lists, and of lists the runtime tells only that they are lists."""
    name = declared.name().lower()
    return library.LIST if name.startswith("list") or "." in name else declared


@lru_cache(maxsize=4096)
def compile_selector(text: str) -> Selector:
    """Compile a selector; the result is cached.

    Raises SelectorError for what Kubernetes refuses: bad syntax, unknown names, wrong types, a result that is not
    a boolean, an invalid literal regular expression; and for regular expressions that take long to compile, which it
    takes. A dynamic result (a bare attribute) is accepted, as there.
    """
    if len(text) > MAX_LENGTH:
        raise SelectorError(f"the selector has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    try:
        compiled = _checker().compile(_known_fields(text))
    except RuntimeError as error:
        raise _compile_error(str(error)) from None
    result = compiled.return_type()
    if result not in (cel.Type.BOOL, cel.Type.DYN):
        raise SelectorError(
            f"the selector gives {_type_name(result)}, not a boolean; compare it with something, "
            'e.g. device.driver == "gpu.nvidia.com"'
        )
    checked = wire.decode_checked(compiled.serialize())
    _check_patterns(text, checked)
    reads = references(checked.expr)
    cost = straight_cost(checked.expr)
    rewrite(checked)
    try:
        return Selector(text, checked.encode(), reads, cost)
    except RuntimeError:
        # What is nested deeper than protobuf reads back, though the compiler took it.
        raise SelectorError("the selector is nested too deeply; nest it less, or split it into several") from None


# `device` is an object in Kubernetes; here its fields are variables, for which the macro has() knows no answer.
_HAS_FIELD = re.compile(
    r"""(?P<keep>[rRbB]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*)"""
    r"|\bhas\(\s*device\s*\.\s*(?:driver|attributes|capacity|allowMultipleAllocations)\s*\)",
    re.DOTALL,
)


def _known_fields(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        found = match.group(0)
        if match.group("keep") is not None:
            return found
        # Same length, so that columns of later errors stay right.
        return "true" + "".join(c if c == "\n" else " " for c in found[4:])

    return _HAS_FIELD.sub(one, text)


_COUNTED = re.compile(r"\{([0-9]{1,5})(?:,([0-9]{0,5}))?\}")
_WIDE = re.compile(r"\\[pP]")
_WIDER_THAN_A_LETTER = re.compile(r"\.|\[\^|\\[WDS]")


def pattern_weight(pattern: str) -> int:
    """How long an RE2 pattern takes to compile, in steps of about 0.02 ms: its size, with classes of Unicode (2.5 ms
    each) and complements of others, as often as its counted repeats say, as if each held the others."""
    size = len(pattern) + 100 * len(_WIDE.findall(pattern)) + 10 * len(_WIDER_THAN_A_LETTER.findall(pattern))
    for least, most in _COUNTED.findall(pattern):
        size *= max(1, int(most or least))
    return size


def _check_patterns(text: str, checked: wire.Checked) -> None:
    weight = 0
    for node, pattern in literal_patterns(checked.expr):
        weight += pattern_weight(pattern)
        if weight > MAX_PATTERNS:
            line, column = checked.position(node, text)
            raise SelectorError(
                f"the regular expression {pattern[:64]!r} takes too long to compile; write it with fewer counted "
                "repeats {n,m} and fewer classes \\p",
                line,
                column,
            )
        probe = _regex_probe().eval(data={"pattern": pattern})
        if probe.type().name() == "ERROR":
            line, column = checked.position(node, text)
            why = str(probe.plain_value()).partition("invalid regular expression: ")[2] or "not valid"
            raise SelectorError(
                f"the regular expression {pattern[:64]!r} is invalid ({why}); RE2 syntax is needed", line, column
            )


@lru_cache(maxsize=1)
def _regex_probe() -> Any:
    return cel.NewEnv(variables={"pattern": cel.Type.STRING}).compile('"".matches(pattern)')


# --------------------------------------------------------------------------------------------------- messages


def _names(member: bool) -> str:
    return "|".join(sorted({re.escape(f.name) for f in FUNCTIONS if f.signatures[0].member is member}))


_LOCATION = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_HINTS = (
    (re.compile(r"undeclared reference to 'device'"), "use device.driver, device.attributes or device.capacity"),
    (
        re.compile(r"undeclared reference to '(find|findAll|named|sortBy|transform\w*)'"),
        "that function is not offered here; matches() and the one-variable macros are",
    ),
    (re.compile(f"undeclared reference to '({_names(True)})'"), "it is called on a value: x.name(...)"),
    (re.compile(f"undeclared reference to '({_names(False)})'"), "it is called with the value: name(x)"),
    (
        re.compile(r"undeclared reference"),
        'only `device` is known: device.driver, device.attributes["domain"].name, device.capacity["domain"].name',
    ),
    (
        re.compile(r"no matching overload.*kubernetes\.Quantity"),
        'compare capacities like this: ….compareTo(quantity("40Gi")) >= 0',
    ),
    (
        re.compile(r"no matching overload.*map\(string, "),
        'attributes have a domain and a name: device.attributes["gpu.nvidia.com"].architecture',
    ),
    (re.compile(r"no matching overload"), "the types of the operands do not fit each other; convert one of them"),
    (re.compile(r"has\(\) argument"), 'has() needs a field: has(device.capacity["gpu.nvidia.com"].memory)'),
    (re.compile(r"[Rr]ecursion"), "nest it less, or split it into several selectors (all must be true)"),
    (
        re.compile(r"Syntax error"),
        "check quotes and parentheses; `and`, `or`, `not` are written &&, || and !",
    ),
)


def _compile_error(raw: str) -> SelectorError:
    match = _LOCATION.search(raw)
    detail = match.group(3).strip() if match else raw.splitlines()[0].strip()
    line, column = (max(1, int(match.group(1))), max(1, int(match.group(2)))) if match else (1, 1)
    detail = detail.removesuffix("(in container '')").removesuffix("[INVALID_ARGUMENT]").strip()
    hint = next((text for pattern, text in _HINTS if pattern.search(detail)), "see the CEL language definition")
    return SelectorError(f"{detail}; {hint}", line, column)


def _type_name(kind: Any) -> str:
    return str(kind.name()).lower()


_MISSING = re.compile(r'Key not found in map : "(.*)"')


def _plain_reason(raw: str) -> str:
    """The runtime's message without its status code and trailing tag, in words of devices where it is about one."""
    if loops.TOO_MANY_ROUNDS in raw:
        return "a list of more than 10,000 elements is looped over; make it smaller"
    missing = _MISSING.search(raw)
    if missing:
        return f"the device has no {missing.group(1)!r} there; test with has(...) before reading it"
    text = re.sub(r"^[A-Z_]+: ", "", raw)
    text = re.sub(r" \[[A-Z_]+\]$", "", text)
    return re.sub(r"\s+", " ", text).strip()
