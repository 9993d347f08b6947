"""XIDs by class: NVIDIA's catalogue of messages (docs.nvidia.com, "XID Errors"), with the action it names.

What is in no list here is ``unknown``: most of the catalogue says "contact support" of codes that nobody has seen.
Operators change single codes by the setting ``AIF_HEALTH_XIDS``: providers differ in what they take a card out for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infra.health.classes import FaultClass


@dataclass(frozen=True, slots=True)
class Xid:
    """A code, what it says, and the action that NVIDIA names."""

    code: int
    fault_class: FaultClass
    says: str
    action: str


def _of(fault_class: FaultClass, action: str, **says: str) -> list[Xid]:
    """``x79="…"`` → code 79."""
    return [Xid(int(name[1:]), fault_class, text, action) for name, text in says.items()]


_ALL = [
    *_of(
        FaultClass.APPLICATION, "RESTART_APP",
        x13="graphics engine exception", x31="memory page fault", x32="invalid or corrupted push buffer",
        x43="the program stopped responding", x68="video processor exception", x69="graphics engine class error",
    ),
    *_of(
        FaultClass.APPLICATION, "IGNORE",
        x45="channels were taken down after an earlier fault", x94="contained memory error",
    ),
    *_of(
        FaultClass.WATCH, "IGNORE",
        x63="memory row will be remapped at the next reset", x92="many corrected memory errors", x121="link to the "
        "processor was retrained", x137="fault of an NVLink transaction", x157="page retirement is pending",
        x160="spare memory is used up", x161="memory is repaired at the next reset",
    ),
    *_of(
        FaultClass.RESET, "RESET_GPU",
        x46="the card stopped processing", x62="internal micro-controller halt", x64="memory row could not be remapped",
        x95="memory error that was not contained", x109="context switch timed out", x110="security fault",
        x119="the card's system processor did not answer", x120="error of the card's system processor",
        x136="link training failed", x140="memory error that can't be corrected", x143="the card failed to initialise",
        x155="NVLink must be reset", x156="resource is retired", x158="the card's clock failed",
    ),
    *_of(FaultClass.MEMORY, "WORKFLOW_XID_48", x48="double-bit memory error"),
    *_of(FaultClass.LINK, "WORKFLOW_NVLINK_ERR", x74="NVLink error"),
    *_of(
        FaultClass.LINK, "WORKFLOW_NVLINK5_ERR",
        x144="NVLink: switch access error", x145="NVLink: link error", x146="NVLink: transport error",
        x147="NVLink: transaction error", x148="NVLink: data error", x149="NVLink: network error",
        x150="NVLink: management error",
    ),
    *_of(FaultClass.NODE, "CHECK_MECHANICALS", x54="a power connector is missing"),
    *_of(FaultClass.NODE, "RESTART_BM", x79="the card has fallen off the bus"),
    *_of(FaultClass.NODE, "RESTART_VM", x151="key rotation failed"),
    *_of(FaultClass.INFO, "XID_154", x154="the recovery action changed: read its text"),
    *_of(FaultClass.INFO, "WORKFLOW_XID_48", x171="detail of a memory error", x172="detail of a memory error"),
]  # fmt: skip

XIDS: Mapping[int, Xid] = {one.code: one for one in _ALL}
"""Code → what is known of it."""


def xid_class(code: int, changed: Mapping[int, FaultClass] | None = None) -> FaultClass:
    """The class of a code. ``changed``: the operator's own classes of single codes."""
    if changed and code in changed:
        return changed[code]
    known = XIDS.get(code)
    return known.fault_class if known else FaultClass.UNKNOWN


def xid_name(code: int) -> str:
    """``XID 79: the card has fallen off the bus``."""
    known = XIDS.get(code)
    return f"XID {code}: {known.says}" if known else f"XID {code}"


def parse_classes(words: Iterable[str]) -> dict[int, FaultClass]:
    """``94:reset`` and so on. Raises ValueError naming what can't be read."""
    found = {}
    for word in words:
        code, colon, name = word.partition(":")
        if not colon or not code.isdecimal() or name not in set(FaultClass):
            raise ValueError(f"{word!r} is no XID with its class; write it like 94:reset, of {', '.join(FaultClass)}")
        found[int(code)] = FaultClass(name)
    return found
