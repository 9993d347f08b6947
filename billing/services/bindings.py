"""Which card each device of a pod is: bound once, from what metrics have shown.

The Kubernetes API does not say which whole cards or MIG instances a pod got. Allocations are keyed without the card;
it is written beside them when it is known, and not changed again. Shares of HAMi name their card themselves, and
time-sliced cards can't be told apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from billing.metering.holdings import Holding, Mode
from billing.models import DeviceAllocation
from infra.models import Cluster, DeviceSighting
from infra.models.hardware import SharingMode
from infra.services.telemetry_write import BINDS_AFTER

Device = tuple[str, int]
"""Resource and ordinal: which of the pod's devices."""


class Card(NamedTuple):
    """A card, and the MIG instance of it (empty: the whole card)."""

    uuid: str
    mig_instance: str = ""


class Seen(NamedTuple):
    """A card that a pod was seen to hold; ``profile`` of the MIG instance, ``last`` sorts by how lately."""

    card: Card
    profile: str
    last: float


NO_CARD = Card("")


class Bindings:
    """What is known of the cards of some pods."""

    def __init__(self, written: Mapping[str, Mapping[Device, Card]], seen: Mapping[str, Sequence[Seen]]) -> None:
        self._written = written
        self._seen = seen

    def of(self, pod_uid: str, held: Sequence[Holding]) -> dict[Device, Card]:
        """The card of each device of the pod that is known."""
        return bound(held, self._written.get(pod_uid, {}), self._seen.get(pod_uid, ()))


def bindings_of(cluster: Cluster, pod_uids: Collection[str]) -> Bindings:
    """Read what is bound already, and what was seen long enough, of these pods. Needs a system scope."""
    seen: dict[str, list[Seen]] = defaultdict(list)
    rows = DeviceSighting.objects.filter(cluster=cluster, pod_uid__in=list(pod_uids), shared=False)
    for row in rows.order_by("uuid", "mig_instance"):
        if row.last_seen - row.first_seen >= BINDS_AFTER:
            card = Card(row.uuid, row.mig_instance)
            seen[row.pod_uid].append(Seen(card, row.mig_profile, row.last_seen.timestamp()))
    written: dict[str, dict[Device, Card]] = defaultdict(dict)
    known = (
        DeviceAllocation.objects.filter(cluster=cluster, pod_uid__in=list(pod_uids))
        .exclude(device_uuid="")
        .exclude(sharing=SharingMode.HAMI)
    )
    for uid, resource, ordinal, uuid, instance in known.values_list(
        "pod_uid", "resource", "ordinal", "device_uuid", "mig_instance"
    ):
        written[uid][resource, ordinal] = Card(uuid, instance)
    return Bindings(written, seen)


def bound(held: Iterable[Holding], written: Mapping[Device, Card], seen: Iterable[Seen]) -> dict[Device, Card]:
    """The card of each whole card or MIG slice, as far as known. Pure.

    What is written stays. Of what was seen, the most lately seen go to the devices that have none, in the order of
    their names; a MIG slice takes only an instance of its profile. Where fewer were seen than are held, the rest stays
    unknown.
    """
    found: dict[Device, Card] = {}
    taken = set(written.values())
    free: dict[str, list[Device]] = defaultdict(list)
    for holding in held:
        if holding.mode not in (Mode.WHOLE, Mode.MIG):
            continue
        device = (holding.resource, holding.ordinal)
        if device in written:
            found[device] = written[device]
        else:
            free[holding.profile].append(device)
    lately = sorted(dict.fromkeys(seen), key=lambda one: -one.last)
    for profile, devices in free.items():
        fit = [
            one.card
            for one in lately
            if one.card not in taken and bool(one.card.mig_instance) == bool(profile) and one.profile == profile
        ]
        cards = sorted(dict.fromkeys(fit[: len(devices)]))
        found.update(zip(sorted(devices), cards, strict=False))
    return found
