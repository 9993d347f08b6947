"""Faults that a test orders beforehand, and the count of what was asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields

from simulator.kinds import WRITE_VERBS, Obj


@dataclass
class Fault:
    """What goes wrong with the next `count` requests that match.

    `status`: answer with this code (429 as overload does: text and Retry-After). `latency`: seconds to wait first.
    `hang`: never answer (until the client goes). `cut`: begin an answer and close the connection in its middle.
    `after`: carry the request out first, so that only the answer is lost. `body`: a Status body of one's own."""

    verb: str = "*"
    resource: str = "*"
    namespace: str = "*"
    name: str = "*"
    user: str = "*"
    count: int = 1
    status: int = 0
    message: str = ""
    body: Obj | None = None
    retry_after: int = 1
    latency: float = 0.0
    hang: bool = False
    cut: bool = False
    after: bool = False

    @classmethod
    def read(cls, given: Obj) -> Fault:
        """From the body of a control request; raises ValueError naming what is unknown."""
        known = {row.name for row in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise ValueError(f"unknown in a fault: {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        return cls(**given)

    def matches(self, verb: str, resource: str, namespace: str, name: str, user: str) -> bool:
        """True if the fault meets such a request."""
        if self.verb == "write":
            if verb not in WRITE_VERBS:
                return False
        elif self.verb not in ("*", verb):
            return False
        pairs = ((self.resource, resource), (self.namespace, namespace), (self.name, name), (self.user, user))
        return all(wanted in ("*", got) for wanted, got in pairs)


class Faults:
    """The ordered faults of one cluster, oldest first."""

    def __init__(self) -> None:
        self.waiting: list[Fault] = []

    def take(self, verb: str, resource: str, namespace: str, name: str, user: str) -> Fault | None:
        """The fault that meets this request, counted down."""
        for fault in self.waiting:
            if fault.matches(verb, resource, namespace, name, user):
                fault.count -= 1
                if fault.count <= 0:
                    self.waiting.remove(fault)
                return fault
        return None


class Tally:
    """How often what was asked, by verb, resource and user; `changes` counts requests that changed an object."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.dry_runs = 0
        self.changes = 0

    def count(self, verb: str, resource: str, user: str, *, dry_run: bool) -> None:
        """One request came."""
        if dry_run and verb in WRITE_VERBS:
            self.dry_runs += 1
            verb = f"{verb} (dry run)"
        self.requests[(verb, resource, user)] += 1

    def show(self) -> Obj:
        """For the control endpoint. `writes` are the changing requests that were not dry runs."""
        verbs: Counter[str] = Counter()
        for (verb, _, _), number in self.requests.items():
            verbs[verb] += number
        return {
            "total": sum(self.requests.values()),
            "writes": sum(verbs[verb] for verb in WRITE_VERBS),
            "changes": self.changes,
            "dry_runs": self.dry_runs,
            "verbs": dict(verbs),
            "rows": [
                {"verb": verb, "resource": resource, "user": user, "count": number}
                for (verb, resource, user), number in sorted(self.requests.items())
            ],
        }
