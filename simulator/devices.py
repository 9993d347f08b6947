"""The kubelets' device managers: which cards and MIG instances each pod was given."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.fleet import Pool
from simulator.kinds import Obj
from simulator.nodes import Card
from simulator.objects import uid_of
from simulator.resources import of_container

WHOLE = "nvidia.com/gpu"
MIG_PREFIX = "nvidia.com/mig-"


class NoDevices(Exception):
    """The node has fewer free devices than were asked for; the message is the kubelet's."""


@dataclass(frozen=True)
class Held:
    """One device in one container: a card (`instance` is None) or a MIG instance of it."""

    container: str
    uuid: str
    instance: int | None = None


@dataclass
class NodeDevices:
    """The cards of a node and who holds them. `lost` are cards that fell off."""

    pool: Pool
    cards: list[Card]
    lost: set[str] = field(default_factory=set)
    held: dict[str, list[Held]] = field(default_factory=dict)

    def assign(self, pod: Obj) -> list[Held]:
        """Give the pod its devices, the lowest free ones; raises NoDevices. Shared (HAMi) cards are HAMi's affair,
        and what an ordinary init container asks for is handed on to the containers after it."""
        uid = uid_of(pod)
        if uid in self.held:
            return self.held[uid]
        out: list[Held] = []
        sidecars = [c for c in pod["spec"].get("initContainers") or [] if c.get("restartPolicy") == "Always"]
        for container in [*sidecars, *pod["spec"]["containers"]]:
            for name, value in sorted(of_container(container, "limits").items()):
                count = int(value)
                if not count or self.pool.mode == "hami":
                    continue
                free: list[tuple[str, int | None]]
                if name == WHOLE and self.pool.mode == "whole":
                    free = [(c.uuid, None) for c in self._healthy() if not self._taken(c.uuid, None, out)]
                elif name.startswith(MIG_PREFIX) and self.pool.mode == "mig":
                    free = [
                        (c.uuid, i) for c in self._healthy() for i in c.instances if not self._taken(c.uuid, i, out)
                    ]
                else:
                    continue
                if len(free) < count:
                    raise NoDevices(
                        f"Pod was rejected: Allocate failed due to requested number of devices unavailable for "
                        f"{name}. Requested: {count}, Available: {len(free)}, which is unexpected"
                    )
                out += [Held(container["name"], uuid, instance) for uuid, instance in free[:count]]
        if out:
            self.held[uid] = out
        return out

    def _healthy(self) -> list[Card]:
        return [card for card in self.cards if card.uuid not in self.lost]

    def _taken(self, uuid: str, instance: int | None, also: list[Held]) -> bool:
        rows = [row for held in self.held.values() for row in held] + also
        return any(row.uuid == uuid and row.instance == instance for row in rows)

    def free(self, uid: str) -> None:
        """The pod has ended: its devices are free."""
        self.held.pop(uid, None)
