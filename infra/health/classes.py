"""Classes of faults. Which of them withhold a free card, and which are credited, are settings with these defaults."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class FaultClass(StrEnum):
    """What a fault asks for. ``unknown``: a code that no list names; it is shown and does nothing."""

    APPLICATION = "application"
    WATCH = "watch"
    RESET = "reset"
    MEMORY = "memory"
    LINK = "link"
    NODE = "node"
    INFO = "info"
    UNKNOWN = "unknown"

    @property
    def lasts(self) -> bool:
        """Whether the fault stays until something is done. The others are moments: they end when they begin."""
        return self in (FaultClass.RESET, FaultClass.MEMORY, FaultClass.LINK, FaultClass.NODE)


MEANINGS = {
    FaultClass.APPLICATION: "A program's own fault, as a rule: the pod is told, the card stays in use.",
    FaultClass.WATCH: "The card works; look at it at a quiet time.",
    FaultClass.RESET: "The card must be reset before it can be trusted again.",
    FaultClass.MEMORY: "The card's memory reported an error that it could not correct.",
    FaultClass.LINK: "A link between cards failed: jobs over several cards of the node are at risk.",
    FaultClass.NODE: "The machine must be restarted or looked after: a card is gone, or the node is at fault.",
    FaultClass.INFO: "A message that names another one, or an action to take.",
    FaultClass.UNKNOWN: "Not in the lists of this portal: look it up, and add it to the settings.",
}
"""What a class means, for those who read the list."""

WITHHELD = frozenset({FaultClass.RESET, FaultClass.NODE, FaultClass.LINK})
"""A free card with such a fault is unavailable from then on."""
CREDITED = frozenset({FaultClass.RESET, FaultClass.NODE})
"""A held card with such a fault is credited from the fault to the pod's end."""


def class_names(words: Iterable[str], default: frozenset[FaultClass]) -> frozenset[str]:
    """Names of classes from a setting; the default where it is empty. Raises ValueError for a name that is none."""
    found = frozenset(words)
    wrong = sorted(found - set(FaultClass))
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no class of faults; write some of {', '.join(FaultClass)}")
    return found or frozenset(one.value for one in default)
