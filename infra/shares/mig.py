"""MIG profiles: `1g.10gb`, `nvidia.com/mig-1g.10gb`, `1c.2g.20gb`, `1g.10gb+me` (NVIDIA MIG user guide, device names;
the device plugin writes `+` as `.` in resource names: `nvidia.com/mig-1g.10gb.me`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from infra.pod_devices import MIG_PREFIX

_FORM = re.compile(
    r"(?:([1-9])c\.)?([1-9])g\.([1-9][0-9]{0,3})gb((?:[+.-](?:me|gfx)(?:\.all)?)*)",
    re.IGNORECASE,
)


class MigFormatError(ValueError):
    """Not the name of a MIG profile."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A profile. `instance_slices` is the GPU instance's size (`2g`); `compute_slices` is what a holder computes
    with: the same, or less for a compute instance inside it (`1c.2g`). `memory_gb` belongs to the GPU instance.
    `attributes`: `me` of `+me`; one that is taken away keeps its sign (`-me`)."""

    compute_slices: int
    instance_slices: int
    memory_gb: int
    attributes: tuple[str, ...] = ()

    def __str__(self) -> str:
        compute = f"{self.compute_slices}c." if self.compute_slices != self.instance_slices else ""
        extra = "".join(text if text.startswith("-") else f"+{text}" for text in self.attributes)
        return f"{compute}{self.instance_slices}g.{self.memory_gb}gb{extra}"


@lru_cache(maxsize=512)
def parse_mig(text: str) -> MigProfile:
    """Parse a profile or a resource name. Raises MigFormatError that says what is expected."""
    match = _FORM.fullmatch(text.strip().removeprefix(MIG_PREFIX))
    if match is None:
        raise MigFormatError(
            f"{text[:64]!r} is no MIG profile: expected e.g. 1g.10gb, 1g.10gb+me, 1c.2g.20gb "
            "or a resource such as nvidia.com/mig-1g.10gb"
        )
    instance = int(match.group(2))
    compute = int(match.group(1) or instance)
    if compute > instance:
        raise MigFormatError(f"{text[:64]!r}: {compute} compute slices do not fit in an instance of {instance}")
    attributes = re.findall(r"[+.-](?:me|gfx)(?:\.all)?", match.group(4).lower())
    signed = tuple(text if text.startswith("-") else text[1:] for text in attributes)
    return MigProfile(compute, instance, int(match.group(3)), signed)


def mig_spelled(profile: str) -> str:
    """A profile in the one spelling that profiles are compared in: a resource's `1g.10gb.me` is `1g.10gb+me`.

    What is no profile stays as it is; so does no profile at all ("")."""
    try:
        return str(parse_mig(profile)) if profile else ""
    except MigFormatError:
        return profile
