"""What HAMi writes on pods and nodes: parsed, and judged before anything is charged by it.

Formats: HAMi `docs/develop/protocol.md` and `pkg/device` (2.10). Per device `UUID,TYPE,MiB,cores` ended by `:`, per
container ended by `;`, init containers first. A pod's annotations lie in the tenant's hands, so an allocation counts
only when HAMi's scheduler made it, the binding succeeded and the node's register knows the card.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

ALLOCATED = "hami.io/vgpu-devices-allocated"
BIND_PHASE = "hami.io/bind-phase"
NODE_REGISTER = "hami.io/node-nvidia-register"
HANDSHAKE = "hami.io/node-handshake"
CORDON = "hami.io/device-cordon"
SCHEDULERS = frozenset({"hami-scheduler"})
# A request of the scheduler that the device plugin left unanswered for longer means that the devices are gone.
HANDSHAKE_PATIENCE = timedelta(minutes=5)

_MOST_MIB = 1 << 24
_SLOT = re.compile(r"(.+)\[([0-9-]+)\]")


class HamiFormatError(ValueError):
    """An annotation that is not in HAMi's form; the message says which part."""


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One device of one container. `id` as written; `uuid` is the card, `slot` the MIG slot (`1-0`) or "".
    memory_mib in MiB, cores in percent of the card (0 = no limit was set)."""

    id: str
    vendor: str
    memory_mib: int
    cores: int

    @property
    def uuid(self) -> str:
        """The card's UUID, without the MIG slot."""
        match = _SLOT.fullmatch(self.id)
        return match.group(1) if match else self.id

    @property
    def slot(self) -> str:
        """The MIG slot, or ""."""
        match = _SLOT.fullmatch(self.id)
        return match.group(2) if match else ""


def parse_allocated(value: str) -> tuple[tuple[AllocatedDevice, ...], ...]:
    """Devices by container (init containers first), from `hami.io/vgpu-devices-allocated` or `…-to-allocate`.

    An empty entry is a container without a device; so is the `,,0,0` of old releases. Raises HamiFormatError.
    """
    containers = value.split(";")
    if containers and not containers[-1].strip():
        containers.pop()
    return tuple(
        tuple(
            device
            for number, record in enumerate(container.split(":"))
            if (device := _allocated(record, f"container {index}, device {number}")) is not None
        )
        for index, container in enumerate(containers)
    )


def _allocated(record: str, where: str) -> AllocatedDevice | None:
    if not record.strip():
        return None
    fields = [field.strip() for field in record.split(",")]
    if len(fields) != 4:
        raise HamiFormatError(f"{where}: expected UUID,TYPE,MiB,cores, got {record[:80]!r}")
    if not fields[0]:
        return None
    memory, cores = _number(fields[2], where, "MiB"), _number(fields[3], where, "cores")
    # HAMi#1181: an underflow once wrote 17592186044134 MiB.
    if memory > _MOST_MIB or cores > 100:
        raise HamiFormatError(f"{where}: {memory} MiB and {cores} % are out of range for one card")
    return AllocatedDevice(fields[0], fields[1], memory, cores)


def _number(text: str, where: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise HamiFormatError(f"{where}: {what} is {text[:32]!r}, not a whole number")
    return int(text)


@dataclass(frozen=True, slots=True)
class RegisteredDevice:
    """A card as HAMi's device plugin registers it. `devmem_mib` is what HAMi hands out and may exceed the real
    card (memory scaling); `split` is how many pods may share it. `healthy` None = the record does not say."""

    uuid: str
    split: int
    devmem_mib: int
    devcore: int
    type: str
    index: int = 0
    numa: int = 0
    mode: str = ""
    healthy: bool | None = False


@dataclass(frozen=True, slots=True)
class Register:
    """A node's register. `problems`: sentences about records that were cut short or could not be read."""

    devices: tuple[RegisteredDevice, ...]
    problems: tuple[str, ...] = ()


def parse_register(value: str) -> Register:
    """The node register in its string form (7 or 9 fields a record) or its JSON form (zero values left out).

    Raises HamiFormatError when the whole is unreadable; a single bad record becomes a problem, the others stay.
    """
    text = value.strip()
    return _json_register(text) if text.startswith("[") else _text_register(text)


def _json_register(text: str) -> Register:
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise HamiFormatError(f"node register: not JSON ({error})") from error
    devices: list[RegisteredDevice] = []
    problems: list[str] = []
    for number, record in enumerate(raw):
        if not isinstance(record, Mapping) or not isinstance(record.get("id"), str):
            problems.append(f"record {number} has no id")
            continue
        try:
            devices.append(_from_json(record))
        except (TypeError, ValueError) as error:
            problems.append(f"record {number} ({record['id']}): {error}")
    return Register(tuple(devices), tuple(problems))


def _from_json(record: Mapping[str, Any]) -> RegisteredDevice:
    return RegisteredDevice(
        uuid=record["id"],
        split=int(record.get("count", 0)),
        devmem_mib=int(record.get("devmem", 0)),
        devcore=int(record.get("devcore", 0)),
        type=str(record.get("type", "")),
        index=int(record.get("index", 0)),
        numa=int(record.get("numa", 0)),
        mode=str(record.get("mode", "")),
        healthy=bool(record.get("health", False)),
    )


def _text_register(text: str) -> Register:
    devices: list[RegisteredDevice] = []
    problems: list[str] = []
    for number, record in enumerate(part for part in text.split(":") if part.strip()):
        fields = [field.strip() for field in record.split(",")]
        try:
            if len(fields) < 5 or not fields[0]:
                raise HamiFormatError(f"expected UUID,count,MiB,cores,type,numa,health, got {record[:80]!r}")
            where = f"record {number}"
            count, memory, cores = (_number(field, where, "a count") for field in fields[1:4])
            health = fields[6] if len(fields) > 6 else ""
            if health not in ("true", "false"):
                problems.append(f"record {number} ({fields[0]}) is cut short: its health is not known")
            long_form = len(fields) >= 9
            devices.append(
                RegisteredDevice(
                    uuid=fields[0],
                    split=count,
                    devmem_mib=memory,
                    devcore=cores,
                    type=fields[4],
                    index=_number(fields[7], where, "index") if long_form else number,
                    numa=_number(fields[5], where, "numa") if len(fields) > 5 and fields[5] else 0,
                    mode=fields[8] if long_form else "",
                    healthy={"true": True, "false": False}.get(health),
                )
            )
        except HamiFormatError as error:
            problems.append(f"record {number}: {error}")
    if problems and not devices:
        raise HamiFormatError(f"node register: no record could be read; {problems[0]}")
    return Register(tuple(devices), tuple(problems))


@dataclass(frozen=True, slots=True)
class Handshake:
    """The last sign between HAMi's scheduler and the node's device plugin. `at` is UTC."""

    state: str  # "Reported", "Requesting" or "Deleted"
    at: datetime | None

    def available(self, now: datetime) -> bool:
        """Whether the node's devices may be used: not after five minutes of an unanswered request."""
        if self.state == "Reported":
            return True
        return self.state == "Requesting" and self.at is not None and now - self.at <= HANDSHAKE_PATIENCE


def parse_handshake(value: str) -> Handshake:
    """From `hami.io/node-handshake`: `Reported_2026-01-01 04:30:04` (or with dots). Raises HamiFormatError."""
    state, _, stamp = value.strip().partition("_")
    if state not in ("Reported", "Requesting", "Deleted"):
        raise HamiFormatError(f"node handshake: {value[:64]!r} starts with none of Reported, Requesting, Deleted")
    if not stamp:
        return Handshake(state, None)
    try:
        return Handshake(state, datetime.strptime(stamp.replace(".", "-"), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC))
    except ValueError as error:
        raise HamiFormatError(f"node handshake: {stamp[:64]!r} is not a time") from error


def parse_cordon(value: str) -> frozenset[str]:
    """UUIDs of cards that take nothing new, from `hami.io/device-cordon` (a comma list)."""
    return frozenset(part.strip() for part in value.split(",") if part.strip())


@dataclass(frozen=True, slots=True)
class JudgedAllocation:
    """A pod's allocation and whether to believe it. `reasons` are sentences; empty when trusted."""

    containers: tuple[tuple[AllocatedDevice, ...], ...]
    reasons: tuple[str, ...]

    @property
    def trusted(self) -> bool:
        """Whether it may be charged."""
        return not self.reasons


def judge_allocation(
    *,
    annotations: Mapping[str, str],
    scheduler_name: str,
    registered: Collection[str],
    schedulers: Collection[str] = SCHEDULERS,
) -> JudgedAllocation:
    """Parse and judge a pod's allocation. `registered`: UUIDs in the register of the node the pod is bound to.

    Never raises: what cannot be read is a reason not to trust it.
    """
    reasons: list[str] = []
    if scheduler_name not in schedulers:
        reasons.append(f"the pod was scheduled by {scheduler_name!r}, not by HAMi, so it may have written this itself")
    phase = annotations.get(BIND_PHASE)
    if phase != "success":
        reasons.append(f"{BIND_PHASE} is {phase!r}, not 'success'")
    try:
        containers = parse_allocated(annotations.get(ALLOCATED, ""))
    except HamiFormatError as error:
        return JudgedAllocation((), (*reasons, f"{ALLOCATED} cannot be read: {error}"))
    unknown = sorted({d.uuid for devices in containers for d in devices} - set(registered))
    if unknown:
        reasons.append(f"the node's register does not know {', '.join(unknown)}")
    return JudgedAllocation(containers, tuple(reasons))
