"""The default scheduler, and what it shares with HAMi's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from simulator.cluster import scheduled
from simulator.controllers import fit
from simulator.controllers.base import Controller, Key
from simulator.kinds import NODE, POD, Obj
from simulator.objects import is_deleting, name_of, namespace_of
from simulator.options import Options
from simulator.resources import Vector, holds, of_pod
from simulator.store import Change


@dataclass
class Choice:
    """Where a pod goes (with annotations to write), or why it goes nowhere."""

    node: str = ""
    annotations: dict[str, str] | None = None
    message: str = ""


class Scheduler(Controller):
    """Binds the pods that name it. Those that fit nowhere wait for a change of nodes or for freed room."""

    name = "scheduler"
    scheduler_name = "default-scheduler"
    ignored: frozenset[str] = frozenset()

    def interest(self, change: Change) -> Iterable[Key]:
        if change.kind == POD:
            pod = change.new.obj
            if self._waits(pod) and change.type != "DELETED":
                yield namespace_of(pod), name_of(pod)
            elif change.old is not None and holds(change.old.obj) and not (change.type != "DELETED" and holds(pod)):
                yield from self.start()
        elif change.kind == NODE and (change.old is None or _room(change.old.obj) != _room(change.new.obj)):
            yield from self.start()

    def start(self) -> Iterable[Key]:
        return [(namespace_of(pod), name_of(pod)) for pod in self.cluster.pods.unbound() if self._waits(pod)]

    def _waits(self, pod: Obj) -> bool:
        spec = pod["spec"]
        return (
            not spec.get("nodeName")
            and spec.get("schedulerName") == self.scheduler_name
            and not is_deleting(pod)
            and pod["status"].get("phase") == "Pending"
        )

    def reconcile(self, key: Key) -> float | None:
        pod = self.registry.find(POD, *key)
        if pod is None or not self._waits(pod):
            return None
        age = self.now - self.cluster.created(pod)
        if age < self.cluster.timing.schedule:
            return self.cluster.timing.schedule - age
        if pod["spec"].get("schedulingGates"):
            self._refuse(pod, "Scheduling is blocked due to non-empty scheduling gates", "SchedulingGated")
            return None
        choice = self.choose(pod)
        if choice.node:
            self.bind(pod, choice)
            return None
        if self._refuse(pod, choice.message, "Unschedulable"):
            self.cluster.event(
                pod, "FailedScheduling", choice.message, self.scheduler_name, warning=True, action="Scheduling"
            )
        return self.cluster.timing.retry_pending

    def bind(self, pod: Obj, choice: Choice) -> None:
        """Bind, with the event that says so."""
        namespace, name = namespace_of(pod), name_of(pod)
        self.cluster.bind(namespace, name, choice.node, Options(manager="kube-scheduler"), choice.annotations)
        text = f"Successfully assigned {namespace}/{name} to {choice.node}"
        self.cluster.event(pod, "Scheduled", text, self.scheduler_name, action="Binding")

    def _refuse(self, pod: Obj, message: str, reason: str) -> bool:
        """Write PodScheduled False; True if that is news."""
        news: list[bool] = []

        def change(obj: Obj) -> None:
            rows = obj["status"].setdefault("conditions", [])
            known = next((row for row in rows if row["type"] == "PodScheduled"), None)
            if known and known.get("message") == message and known.get("reason") == reason:
                return
            news.append(True)
            row = {**scheduled(self.now, message, obj["metadata"]["generation"]), "reason": reason}
            obj["status"]["conditions"] = [*(r for r in rows if r["type"] != "PodScheduled"), row]

        options = Options(manager="kube-scheduler", subresource="status")
        self.registry.modify(POD, namespace_of(pod), name_of(pod), change, options)
        return bool(news)

    def choose(self, pod: Obj) -> Choice:
        """The best node for the pod."""
        asked = of_pod(pod["spec"])
        fitting, message = self.filter(pod, asked)
        if not fitting:
            return Choice(message=message)
        ranked = sorted(fitting, key=name_of)
        best = max(ranked, key=lambda node: fit.score(pod, node, asked, self.cluster.pods.asked(name_of(node))))
        return Choice(node=name_of(best))

    def filter(self, pod: Obj, asked: Vector) -> tuple[list[Obj], str]:
        """The nodes that the pod fits on, and the sentence for none."""
        fitting: list[Obj] = []
        reasons: Counter[str] = Counter()
        helpless = 0
        nodes = self.store.objects(NODE)
        for node in nodes:
            name = name_of(node)
            found = fit.refusals(
                pod, node, asked, self.cluster.pods.asked(name), self.cluster.pods.holding(name), self.ignored
            )
            found = found or self.more_refusals(pod, node)
            if not found:
                fitting.append(node)
                continue
            reasons.update(found)
            short = all(text.startswith("Insufficient") or text == fit.TOO_MANY_PODS for text in found)
            if not short or fit.beyond(node, asked, self.ignored):
                helpless += 1
        return fitting, fit.message(len(nodes), dict(reasons), helpless)

    def more_refusals(self, pod: Obj, node: Obj) -> list[str]:
        """What a special scheduler refuses besides."""
        return []


def _room(node: Obj) -> object:
    """What of a node decides whether pods fit."""
    spec, meta = node["spec"], node["metadata"]
    return (
        spec.get("unschedulable"),
        spec.get("taints"),
        node["status"].get("allocatable"),
        meta.get("labels"),
        (meta.get("annotations") or {}).get("hami.io/node-nvidia-register"),
        (meta.get("annotations") or {}).get("hami.io/device-cordon"),
    )
