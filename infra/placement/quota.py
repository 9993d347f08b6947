"""Quotas while a plan is made: by GPU type in millionths of a card, and by MIG profile in instances.

One mapping holds both: a type by its slug, a profile as ``slug/1g.10gb``. A type that is missing has no quota; a
profile that is missing is limited by its cards alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_BETWEEN = "/"
_NO_END = 1 << 62


def profile_key(gpu_type: str, profile: str) -> str:
    """The key of a type's MIG profile. No slug holds the character between the two."""
    return f"{gpu_type}{_BETWEEN}{profile}"


def profile_of(key: str) -> tuple[str, str]:
    """(GPU type, MIG profile) of a key; the profile is empty where it is a type's own."""
    gpu_type, _, profile = key.partition(_BETWEEN)
    return gpu_type, profile


def left_of(quota: Mapping[str, int], key: str) -> int:
    """What is left of a key; very much where nothing limits it."""
    return quota.get(key, _NO_END if _BETWEEN in key else 0)


def spend(quota: dict[str, int], usage: Iterable[tuple[str, int]], times: int = 1) -> None:
    """Take usage out of what is left (``times`` -1: put it back)."""
    for key, amount in usage:
        if key in quota or _BETWEEN not in key:
            quota[key] = quota.get(key, 0) - amount * times


def cards_in(usage: Mapping[str, int]) -> dict[str, int]:
    """The usage of types alone, in millionths of a card."""
    return {key: amount for key, amount in usage.items() if _BETWEEN not in key}
