"""A stand-in for HAMi's scheduler: picks cards by the node register and writes the annotations HAMi writes.

Formats: HAMi docs/develop/protocol.md and pkg/device; per device `UUID,TYPE,MiB,cores` ended by ':', per container
(init containers first) ended by ';'."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from simulator.admission import GPU, GPU_CORES, GPU_MEMORY, GPU_MEMORY_PERCENT, HAMI_SCHEDULER
from simulator.controllers.base import Key
from simulator.controllers.scheduler import Choice, Scheduler
from simulator.defaults import containers_of
from simulator.kinds import NODE, POD, Obj
from simulator.objects import annotations_of, name_of, namespace_of
from simulator.options import Options
from simulator.resources import holds, of_container, of_pod, whole
from simulator.store import Change

REGISTER = "hami.io/node-nvidia-register"
ALLOCATED = "hami.io/vgpu-devices-allocated"
PHASE = "hami.io/bind-phase"


@dataclass
class Card:
    """A card of the register, with what is taken of it. Memory in MiB, cores in percent."""

    uuid: str
    type: str
    slots: int
    memory: int
    cores: int
    used_slots: int = 0
    used_memory: int = 0
    used_cores: int = 0


@dataclass(frozen=True)
class Ask:
    """What one container wants of each of `cards` cards. `percent` counts where `memory` is 0."""

    cards: int
    memory: int
    percent: int
    cores: int

    def of(self, card: Card) -> int:
        """MiB wanted of the card."""
        return self.memory or card.memory * self.percent // 100


def asks_of(pod: Obj) -> list[Ask | None]:
    """What each container wants, init containers first."""
    out: list[Ask | None] = []
    for container in containers_of(pod["spec"]):
        limits = of_container(container, "limits")
        if not whole(limits, GPU):
            out.append(None)
            continue
        memory, percent = whole(limits, GPU_MEMORY), whole(limits, GPU_MEMORY_PERCENT)
        out.append(Ask(whole(limits, GPU), memory, percent or (0 if memory else 100), whole(limits, GPU_CORES)))
    return out


def parse_allocated(text: str) -> list[tuple[str, int, int]]:
    """(UUID, MiB, cores) of each device in the annotation."""
    out = []
    for container in text.split(";"):
        for device in container.split(":"):
            parts = device.split(",")
            if len(parts) == 4 and parts[0]:
                out.append((parts[0], int(parts[2]), int(parts[3])))
    return out


class HamiScheduler(Scheduler):
    """Filters nodes by the register, takes the fullest node and on it the emptiest cards."""

    name = "hami"
    scheduler_name = HAMI_SCHEDULER
    ignored = frozenset({GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_CORES})

    def interest(self, change: Change) -> Iterable[Key]:
        yield from super().interest(change)
        if change.kind == POD and annotations_of(change.new.obj).get(PHASE) == "allocating":
            yield namespace_of(change.new.obj), name_of(change.new.obj)

    def start(self) -> Iterable[Key]:
        yield from super().start()
        for pod in self.store.objects(POD):
            if annotations_of(pod).get(PHASE) == "allocating":
                yield namespace_of(pod), name_of(pod)

    def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        pod = self.registry.find(POD, namespace, name)
        if pod is not None and pod["spec"].get("nodeName") and annotations_of(pod).get(PHASE) == "allocating":
            # the part of HAMi's device plugin: it confirms when it hands the devices out
            def confirm(obj: Obj) -> None:
                obj["metadata"]["annotations"][PHASE] = "success"

            self.registry.modify(POD, namespace, name, confirm, Options(manager="hami-device-plugin"))
            return None
        return super().reconcile(key)

    def cards(self, node: Obj) -> list[Card]:
        """The healthy cards of a node with what the pods there hold of them."""
        try:
            rows = json.loads(annotations_of(node).get(REGISTER, "[]"))
        except ValueError:
            return []
        cordoned = annotations_of(node).get("hami.io/device-cordon", "").split(",")
        cards = {
            row["id"]: Card(
                row["id"], row.get("type", ""), row.get("count", 0), row.get("devmem", 0), row.get("devcore", 0)
            )
            for row in rows
            if row.get("health") and row["id"] not in cordoned
        }
        for pod in self.cluster.pods.on_node(name_of(node)):
            if holds(pod):
                for uuid, memory, cores in parse_allocated(annotations_of(pod).get(ALLOCATED, "")):
                    if uuid in cards:
                        cards[uuid].used_slots += 1
                        cards[uuid].used_memory += memory
                        cards[uuid].used_cores += cores
        return list(cards.values())

    def more_refusals(self, pod: Obj, node: Obj) -> list[str]:
        if not any(asks_of(pod)):
            return []
        if REGISTER not in annotations_of(node):
            return ["node unregistered"]
        plan = self._plan(pod, self.cards(node))
        return [plan] if isinstance(plan, str) else []

    def _plan(self, pod: Obj, cards: list[Card]) -> list[list[tuple[Card, int, int]]] | str:
        """For each container its devices as (card, MiB, cores), or the reason why there are none."""
        plan: list[list[tuple[Card, int, int]]] = []
        for ask in asks_of(pod):
            chosen: list[tuple[Card, int, int]] = []
            plan.append(chosen)
            if ask is None:
                continue
            reason = "NodeInsufficientDevice"
            for card in sorted(cards, key=lambda c: (c.used_slots / max(c.slots, 1), c.used_cores, c.uuid)):
                if len(chosen) == ask.cards:
                    break
                why = self._unfit(pod, card, ask)
                if why:
                    reason = why
                    continue
                chosen.append((card, ask.of(card), ask.cores))
            if len(chosen) < ask.cards:
                return reason
            for card, memory, cores in chosen:
                card.used_slots += 1
                card.used_memory += memory
                card.used_cores += cores
        return plan

    def _unfit(self, pod: Obj, card: Card, ask: Ask) -> str:
        notes = annotations_of(pod)

        def listed(key: str) -> list[str]:
            return [item.strip() for item in notes.get(key, "").split(",") if item.strip()]

        if listed("nvidia.com/use-gpuuuid") and card.uuid not in listed("nvidia.com/use-gpuuuid"):
            return "CardUuidMismatch"
        if card.uuid in listed("nvidia.com/nouse-gpuuuid"):
            return "CardUuidMismatch"
        wanted, unwanted = listed("nvidia.com/use-gputype"), listed("nvidia.com/nouse-gputype")
        if wanted and not any(text.upper() in card.type.upper() for text in wanted):
            return "CardTypeMismatch"
        if any(text.upper() in card.type.upper() for text in unwanted):
            return "CardTypeMismatch"
        if card.used_slots >= card.slots:
            return "CardTimeSlicingExhausted"
        if ask.cores == 100 and card.used_slots:
            return "ExclusiveDeviceAllocateConflict"
        if card.used_cores == card.cores and ask.cores == 0:
            return "CardComputeUnitsExhausted"
        if card.used_memory + ask.of(card) > card.memory:
            return "CardInsufficientMemory"
        if card.used_cores + ask.cores > card.cores:
            return "CardInsufficientCore"
        return ""

    def choose(self, pod: Obj) -> Choice:
        fitting, message = self.filter(pod, of_pod(pod["spec"]))
        if not fitting:
            text = f"no available node, {len(self.store.objects(NODE))} nodes do not meet"
            self.cluster.event(pod, "FilteringFailed", text, self.scheduler_name, warning=True)
            return Choice(message=message)

        def fullness(node: Obj) -> float:
            cards = self.cards(node)
            return sum(card.used_memory for card in cards) / max(sum(card.memory for card in cards), 1)

        best = max(sorted(fitting, key=name_of), key=fullness)
        plan = self._plan(pod, self.cards(best))
        assert not isinstance(plan, str)
        text = "".join(
            "".join(f"{card.uuid},NVIDIA,{memory},{cores}:" for card, memory, cores in devices) + ";"
            for devices in plan
        )
        stamp = str(int(self.now))
        return Choice(
            node=name_of(best),
            annotations={
                ALLOCATED: text,
                "hami.io/vgpu-devices-to-allocate": text,
                "hami.io/vgpu-node": name_of(best),
                "hami.io/vgpu-time": stamp,
                "hami.io/bind-time": stamp,
                PHASE: "allocating",
            }
            if any(plan)
            else None,
        )

    def bind(self, pod: Obj, choice: Choice) -> None:
        fine = f"find fit node({choice.node})"
        self.cluster.event(pod, "FilteringSucceed", fine, self.scheduler_name)
        super().bind(pod, choice)
        if choice.annotations:

            def label(obj: Obj) -> None:
                obj["metadata"].setdefault("labels", {})["hami.io/vgpu-node"] = choice.node

            self.registry.modify(POD, namespace_of(pod), name_of(pod), label, Options(manager="hami-scheduler"))
        text = f"Successfully binding node [{choice.node}] to {namespace_of(pod)}/{name_of(pod)}"
        self.cluster.event(pod, "BindingSucceed", text, self.scheduler_name)
