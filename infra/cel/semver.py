"""Semantic versions as selectors compare them: strict parsing (semver.org 2.0), or lenient on request.

Build metadata is dropped, because versions that differ only there are equal. Numbers are limited to uint64.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_NUMBER = r"(0|[1-9][0-9]*)"
_STRICT = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?")
_UINT64_MAX = 2**64 - 1


class SemverError(ValueError):
    """Not a semantic version."""


@dataclass(frozen=True, slots=True)
class Semver:
    """A version without its build metadata. `pre` is the prerelease, identifier by identifier."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    def __str__(self) -> str:
        core = f"{self.major}.{self.minor}.{self.patch}"
        return f"{core}-{'.'.join(self.pre)}" if self.pre else core

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1 by semver precedence."""
        mine, theirs = self._key(), other._key()
        return (mine > theirs) - (mine < theirs)

    def _key(self) -> tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]:
        # A version without prerelease comes after its prereleases; numbers come before words.
        pre = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return self.major, self.minor, self.patch, not self.pre, pre


@lru_cache(maxsize=8192)
def parse_semver(text: str, lenient: bool = False) -> Semver:
    """Parse a version. `lenient` allows a leading v, missing parts and leading zeros, as the two-argument
    `semver(text, true)` of Kubernetes does. Raises SemverError."""
    match = _STRICT.fullmatch(_normalized(text) if lenient else text)
    if match is None:
        raise SemverError(
            f"{text[:64]!r} is not a semantic version: three numbers are needed, as in 9.0.0"
            + ("" if lenient else '; semver("8.9", true) also takes shorter ones')
        )
    major, minor, patch = (int(match.group(i)) for i in (1, 2, 3))
    if max(major, minor, patch) > _UINT64_MAX:
        raise SemverError(f"{text[:64]!r}: a version number must fit in 64 bits")
    pre = tuple(match.group(4).split(".")) if match.group(4) is not None else ()
    build = match.group(5).split(".") if match.group(5) is not None else []
    if not all(pre) or not all(build):
        raise SemverError(f"{text[:64]!r}: an identifier between dots is empty")
    for part in pre:
        if part.isdigit() and ((len(part) > 1 and part[0] == "0") or int(part) > _UINT64_MAX):
            raise SemverError(f"{text[:64]!r}: a numeric identifier must have no leading zero and fit in 64 bits")
    return Semver(major, minor, patch, pre)


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for i, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[i] = stripped if stripped and stripped[0] in "0123456789" else "0" + stripped
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise SemverError(f"{text[:64]!r}: a shortened version cannot have prerelease or build parts")
    return ".".join(parts + ["0"] * (3 - len(parts)))
