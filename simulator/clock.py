"""How long things take on a simulated cluster. Seconds throughout."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from simulator.kinds import Obj


@dataclass(frozen=True)
class Timing:
    """Delays of scheduler, kubelet and controllers."""

    schedule: float = 0.2
    retry_pending: float = 5.0
    pull: float = 3.0
    create: float = 0.5
    init: float = 1.0
    ready: float = 2.0
    stop: float = 2.0
    gone: float = 0.5
    backoff: float = 10.0
    backoff_cap: float = 300.0
    backoff_reset: float = 600.0
    lease_every: float = 10.0
    lease_lasts: int = 40
    node_grace: float = 50.0
    node_tick: float = 5.0
    eviction_scale: float = 1.0
    job_ttl_scale: float = 1.0
    namespace_tick: float = 0.5
    bookmark: float = 60.0
    save: float = 5.0

    def changed(self, given: Obj) -> Timing:
        """A copy with the values given by name; raises ValueError naming an unknown one."""
        known = {row.name for row in fields(self)}
        for name in given:
            if name not in known:
                raise ValueError(f"timing.{name} is unknown; known are {', '.join(sorted(known))}")
        return replace(self, **given)


FAST = {
    "schedule": 0.01,
    "retry_pending": 1.0,
    "pull": 0.1,
    "create": 0.02,
    "init": 0.05,
    "ready": 0.05,
    "stop": 0.1,
    "gone": 0.05,
    "backoff": 0.3,
    "backoff_cap": 3.0,
    "lease_every": 1.0,
    "lease_lasts": 4,
    "node_grace": 4.0,
    "node_tick": 0.25,
    "eviction_scale": 0.01,
    "namespace_tick": 0.1,
    "bookmark": 1.0,
    "save": 1.0,
}
"""What `--fast` changes, for tests."""
