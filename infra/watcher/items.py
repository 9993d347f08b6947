"""What passes from a follower to a commit: plain data, no Django."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from infra.evidence import PodEvidence
from infra.namespace_reading import NamespaceFacts
from infra.node_reading import NodeFacts


@dataclass(frozen=True, slots=True)
class NodeSight:
    """A node as it was seen. ``deleted``: it is gone; ``unwatched_since``: it left at some moment since then.

    ``lease_renewed_at``: when its kubelet last renewed its Lease; looked up only for a node whose Ready is Unknown.
    """

    facts: NodeFacts
    seen_at: datetime
    deleted: bool = False
    unwatched_since: datetime | None = None
    lease_renewed_at: datetime | None = None


Sight = PodEvidence | NodeSight | NamespaceFacts


@dataclass(frozen=True, slots=True)
class Seen:
    """One event. ``sight`` is None for an object that does not concern us (and for a bookmark): only the version moves.

    ``proof``: everything that the cluster had committed until then has been read; None while a backlog is read.
    """

    resource_version: str
    sight: Sight | None = None
    proof: datetime | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A complete list, asked for at ``asked_at``: what it holds is the state then, and what it lacks is not there.

    ``uids`` are those of all objects in it, also of those that don't concern us. ``reason``: why it was taken.
    """

    resource_version: str
    asked_at: datetime
    sights: tuple[Sight, ...]
    uids: frozenset[str]
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The target can't be read now. Nothing that is known changes but what is said of the target itself."""

    reason: str
    sentence: str
    failures: int
    not_before: datetime


@dataclass(frozen=True, slots=True)
class Connected:
    """The target answers again."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object of the cluster that could not be read: it is passed over, and the target says so."""

    resource_version: str
    sentence: str


Item = Seen | Listed | Failed | Connected | Unreadable
