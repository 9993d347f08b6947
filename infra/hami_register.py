"""HAMi's list of a node's cards, from annotations of the Node object. Pure: no Django, no cluster.

Source of the formats: HAMi, ``pkg/device/devices.go`` (``EncodeNodeDevices``, ``MarshalNodeDevices``): the older form
is ``UUID,count,MiB,cores,type,numa,health[,index,mode]`` with ``:`` after each card; the current one a JSON array
whose zero values are left out, so a card without ``health`` is not healthy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REGISTER = "hami.io/node-nvidia-register"
CORDON = "hami.io/device-cordon"
MOST_MIB = 1 << 24
"""MiB of a card. What says more is wrong: an underflow once wrote 17592186044134 MiB (HAMi#1181)."""
_LONGEST_UUID, _MOST = 80, 32_767
"""Characters of a card's identity; its index, slots and percent of cores. Beyond that a register would keep the whole
cluster's nodes from being stored."""


@dataclass(frozen=True, slots=True)
class RegisteredCard:
    """One card. ``slots``: how many pods may share it (never a number of cards); ``memory_mib``: what HAMi hands
    out, more than the physical memory where it is scaled; ``cores``: percent."""

    uuid: str
    index: int
    slots: int
    memory_mib: int
    cores: int
    type: str
    mode: str
    healthy: bool


def parse_register(text: str) -> tuple[RegisteredCard, ...]:
    """The cards of a register, in the order of their index. Raises ValueError naming what can't be read."""
    text = text.strip()
    cards = _from_json(text) if text.startswith("[") else _from_records(text)
    seen: set[str] = set()
    for card in cards:
        if card.uuid in seen:
            raise ValueError(f"card {card.uuid} is registered twice")
        if len(card.uuid) > _LONGEST_UUID:
            raise ValueError(f"card {card.uuid[:_LONGEST_UUID]}…: its name is longer than that of any card")
        if max(card.index, card.slots, card.cores) > _MOST or card.memory_mib > MOST_MIB:
            raise ValueError(f"card {card.uuid}: {card.memory_mib} MiB, {card.cores} % of cores, {card.slots} slots or "
                             f"index {card.index} is out of range for one card")  # fmt: skip
        seen.add(card.uuid)
    return tuple(sorted(cards, key=lambda card: (card.index, card.uuid)))


def cordoned(annotations: Mapping[str, str]) -> frozenset[str]:
    """UUIDs of the cards that HAMi must not hand out."""
    return frozenset(part.strip() for part in annotations.get(CORDON, "").split(",") if part.strip())


def _from_json(text: str) -> list[RegisteredCard]:
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the register is no JSON: {error}") from error
    return [_card(entry) for entry in entries]


def _card(entry: Any) -> RegisteredCard:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("id"), str) or not entry["id"]:
        raise ValueError(f"a registered card needs an id: {entry!r}")
    numbers = {key: entry.get(key, 0) for key in ("index", "count", "devmem", "devcore")}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"card {entry['id']}: {key} is a whole number, not {value!r}")
    return RegisteredCard(
        uuid=entry["id"],
        index=numbers["index"],
        slots=numbers["count"],
        memory_mib=numbers["devmem"],
        cores=numbers["devcore"],
        type=str(entry.get("type", "")),
        mode=str(entry.get("mode", "")),
        healthy=entry.get("health") is True,
    )


def _from_records(text: str) -> list[RegisteredCard]:
    cards = []
    for position, record in enumerate(part for part in text.split(":") if part.strip()):
        fields = [field.strip() for field in record.split(",")]
        if len(fields) < 7 or not fields[0] or not fields[6]:
            raise ValueError(
                f"card record {record!r} has {len([f for f in fields if f])} fields, "
                "expected UUID,count,MiB,cores,type,numa,health"
            )
        if not all(value.isdecimal() for value in (*fields[1:4], *fields[7:8])):
            raise ValueError(f"card record {record!r}: count, memory, cores and index are whole numbers")
        cards.append(
            RegisteredCard(
                uuid=fields[0],
                index=int(fields[7]) if len(fields) > 7 else position,
                slots=int(fields[1]),
                memory_mib=int(fields[2]),
                cores=int(fields[3]),
                type=fields[4],
                mode=fields[8] if len(fields) > 8 else "",
                healthy=fields[6].lower() == "true",
            )
        )
    return cards
