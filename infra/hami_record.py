"""HAMi's record of the cards it gave a pod, and whether to believe it. Pure: no Django, no cluster.

Source of the format: HAMi, ``docs/develop/protocol.md`` (annotation ``hami.io/vgpu-devices-allocated``). A pod's
annotations lie in its tenant's hands, so the record counts only where HAMi's scheduler made it, the binding succeeded
and the node's register knows the cards.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from infra.evidence import PodEvidence
from infra.hami_register import MOST_MIB
from infra.pod_devices import HAMI_SCHEDULER

HAMI_ALLOCATED = "hami.io/vgpu-devices-allocated"
HAMI_PHASE = "hami.io/bind-phase"


@dataclass(frozen=True, slots=True)
class HamiGrant:
    """A part of one card: memory in MiB, cores in percent of the card (0: HAMi set no cap).

    ``slot`` is HAMi's MIG slot (``1-0``) where the card is cut up, otherwise empty.
    """

    uuid: str
    vendor: str
    memory_mib: int
    cores: int
    slot: str = ""


@dataclass(frozen=True, slots=True)
class HamiRecord:
    """What may be believed of a pod's record: its grants by container, init containers first.

    ``doubt``: why there is a record and it isn't believed; then there are no grants.
    """

    containers: tuple[tuple[HamiGrant, ...], ...] = ()
    doubt: str = ""

    @property
    def grants(self) -> tuple[HamiGrant, ...]:
        """Of all containers."""
        return tuple(grant for container in self.containers for grant in container)


def believed_record(pod: PodEvidence, registered: Collection[str] | None) -> HamiRecord:
    """The pod's record, as far as it may be believed; empty without doubt where there is none, or none yet.

    ``registered``: UUIDs in the register of the pod's node; None leaves that check to the caller. Never raises: what
    can't be read is not believed.
    """
    text = pod.annotation(HAMI_ALLOCATED)
    if not text:
        return HamiRecord()
    if pod.scheduler != HAMI_SCHEDULER:
        return HamiRecord(doubt=f"the pod's scheduler is {pod.scheduler!r}, not HAMi's: it may have written it itself")
    phase = pod.annotation(HAMI_PHASE)
    if phase == "allocating":
        return HamiRecord()
    if phase != "success":
        return HamiRecord(doubt=f"{HAMI_PHASE} is {phase!r}, not 'success'")
    try:
        record = HamiRecord(parse_record(text))
    except ValueError as error:
        return HamiRecord(doubt=f"it can't be read: {error}")
    unknown = sorted({grant.uuid for grant in record.grants} - set(registered)) if registered is not None else []
    if unknown:
        return HamiRecord(doubt=f"the register of node {pod.node} does not know {', '.join(unknown)}")
    return record


def parse_record(value: str) -> tuple[tuple[HamiGrant, ...], ...]:
    """The grants of a record by container, init containers first.

    ``UUID,TYPE,MiB,cores`` ended by ``:`` for each device, ``;`` ends a container. An empty entry is a container
    without a card; old releases wrote ``,,0,0:`` for it. Raises ValueError naming the part that is malformed or out of
    range.
    """
    entries = value.split(";")
    if entries and not entries[-1].strip():
        entries.pop()
    return tuple(
        tuple(grant for part in entry.split(":") if part.strip() for grant in _grant(part)) for entry in entries
    )


def _grant(part: str) -> tuple[HamiGrant, ...]:
    fields = [field.strip() for field in part.split(",")]
    if len(fields) < 4:
        raise ValueError(f"HAMi device {part!r} has {len(fields)} fields, expected UUID,TYPE,MiB,cores")
    uuid, vendor, memory, cores = fields[:4]
    if not uuid:
        return ()
    if not (memory + cores).isascii() or not memory.isdecimal() or not cores.isdecimal():
        raise ValueError(f"HAMi device {part!r}: memory and cores are whole numbers, not {memory!r} and {cores!r}")
    if int(memory) > MOST_MIB or int(cores) > 100:
        raise ValueError(f"HAMi device {part!r}: {memory} MiB and {cores} % are out of range for one card")
    card, slot = _card_and_slot(uuid)
    return (HamiGrant(card, vendor, int(memory), int(cores), slot),)


def _card_and_slot(uuid: str) -> tuple[str, str]:
    """``GPU-1[1-0]`` → ``GPU-1``, ``1-0``. Without an expression: a tenant may write brackets by the thousand."""
    card, _, slot = uuid[:-1].rpartition("[")
    return (card, slot) if uuid.endswith("]") and card and "]" not in slot else (uuid, "")
