"""What a pod takes from the cards of its node, as the ledger counts it. Pure: no Django, no cluster.

A ledger errs on the full side: what a pod asked for counts from the moment it is bound, whether it runs or not.
What is billed is another question (``billing.metering``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from infra.evidence import PodEvidence
from infra.hami_record import believed_record
from infra.pod_devices import (
    GPU,
    GPU_CORES,
    GPU_MEMORY,
    GPU_MEMORY_PERCENT,
    GPU_SHARED,
    HAMI_SCHEDULER,
    mig_profile,
)
from infra.quantity import whole

MOST = 1_000_000
"""More than any node has. Who may make pods may ask for any number: beyond this it is counted as this, because a
number that the database's integers don't hold would break every sum that it is in."""


@dataclass(frozen=True, slots=True)
class Hold:
    """One of: ``cards`` whole cards; ``slices`` of a MIG ``profile``; memory and cores of the card ``uuid``.

    ``unpinned``: shares of cards of which it is not known which ones; nothing may be promised beside them. A ``uuid``
    that the node's register never had is as good as none: whoever reads holds counts it as unpinned.
    """

    cards: int = 0
    profile: str = ""
    slices: int = 0
    uuid: str = ""
    memory_mib: int = 0
    cores: int = 0
    unpinned: int = 0


def held_by(pod: PodEvidence) -> tuple[Hold, ...]:
    """What the pod takes; empty for a pod that asks for no NVIDIA device, or is bound to no node yet."""
    if not pod.node:
        return ()
    holds = [
        Hold(profile=profile, slices=_number(amount))
        for resource, amount in pod.requests
        if (profile := mig_profile(resource)) and amount > 0
    ]
    cards = _number(pod.request(GPU) + pod.request(GPU_SHARED))
    shares = any(pod.request(name) for name in (GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_CORES))
    if pod.scheduler == HAMI_SCHEDULER:
        holds += _hami(pod, max(cards, 1) if shares else cards)
    elif shares:
        holds.append(Hold(unpinned=max(cards, 1)))
    elif cards:
        holds.append(Hold(cards=cards))
    return tuple(holds)


def _number(amount: Fraction) -> int:
    return min(whole(amount), MOST)


def _hami(pod: PodEvidence, cards: int) -> list[Hold]:
    grants = believed_record(pod, registered=None).grants
    if grants:
        return [Hold(uuid=grant.uuid, memory_mib=grant.memory_mib, cores=grant.cores) for grant in grants]
    return [Hold(unpinned=cards)] if cards else []


def dump_holds(holds: tuple[Hold, ...]) -> list[dict[str, Any]]:
    """Holds as JSON, without what is empty."""
    return [{key: value for key, value in asdict(hold).items() if value} for hold in holds]


def load_holds(data: Iterable[Mapping[str, Any]]) -> tuple[Hold, ...]:
    """The inverse of :func:`dump_holds`."""
    return tuple(Hold(**each) for each in data)
