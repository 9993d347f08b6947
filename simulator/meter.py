"""Energy counters that go on from reading to reading."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Meter:
    """The energy counters of a cluster's cards, in mJ, and when each was read last (unix seconds)."""

    energy: dict[str, float] = field(default_factory=dict)
    read: dict[str, float] = field(default_factory=dict)

    def add(self, uuid: str, watts: float, now: float) -> int:
        """Count on with the present power; returns the counter."""
        since = self.read.get(uuid)
        if since is not None and now > since:
            self.energy[uuid] = self.energy.get(uuid, 0.0) + watts * 1000.0 * (now - since)
        self.read[uuid] = now
        return int(self.energy.get(uuid, 0.0))
