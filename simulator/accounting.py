"""What ran when: one record for each time a pod's containers ran. OpenCost's answers are made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from simulator.kinds import POD, REPLICA_SET, Obj
from simulator.objects import controller_of, labels_of, name_of, namespace_of, uid_of, unix
from simulator.resources import of_pod
from simulator.store import Change, Store


@dataclass
class Run:
    """A pod that ran from `start` to `end` (unix seconds; None: it runs). `gpu` is its `nvidia.com/gpu`."""

    namespace: str
    pod: str
    uid: str
    node: str
    container: str
    controller: str
    controller_kind: str
    labels: dict[str, str] = field(default_factory=dict)
    cpu: float = 0.0
    ram: float = 0.0
    gpu: float = 0.0
    start: float = 0.0
    end: float | None = None


class Accounting:
    """Keeps the runs of a cluster, the ended ones for `keep` seconds."""

    def __init__(self, store: Store, clock: Callable[[], float], keep: float = 35 * 86400.0) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep
        self.ended: list[Run] = []
        self.open: dict[str, Run] = {}
        store.listen(self._changed)

    def all(self) -> list[Run]:
        """Every run kept, those that go on too."""
        return [*self.ended, *self.open.values()]

    def _changed(self, change: Change) -> None:
        if change.kind != POD:
            return
        pod, uid = change.new.obj, uid_of(change.new.obj)
        rows = pod["status"].get("containerStatuses") or []
        starts = [unix(r["state"]["running"]["startedAt"]) for r in rows if "running" in (r.get("state") or {})]
        if starts and uid not in self.open and change.type != "DELETED":
            self.open[uid] = self._run(pod, min(starts))
        elif uid in self.open and (not starts or change.type == "DELETED"):
            ends = [
                unix(r["state"]["terminated"]["finishedAt"]) for r in rows if "terminated" in (r.get("state") or {})
            ]
            ends += [unix(r["lastState"]["terminated"]["finishedAt"]) for r in rows if r.get("lastState")]
            run = self.open.pop(uid)
            run.end = max([run.start, *ends]) if ends else self._clock()
            self.ended.append(run)
            oldest = self._clock() - self._keep
            if self.ended[0].end is not None and self.ended[0].end < oldest:
                self.ended = [r for r in self.ended if r.end is None or r.end >= oldest]

    def _run(self, pod: Obj, start: float) -> Run:
        asked = of_pod(pod["spec"])
        owner = controller_of(pod) or {}
        name, kind = owner.get("name", ""), owner.get("kind", "").lower()
        if kind == "replicaset":
            entry = self._store.get(REPLICA_SET, namespace_of(pod), name)
            above = controller_of(entry.obj) if entry else None
            if above:
                name, kind = above["name"], above["kind"].lower()
        return Run(
            namespace_of(pod),
            name_of(pod),
            uid_of(pod),
            pod["spec"].get("nodeName", ""),
            pod["spec"]["containers"][0]["name"],
            name,
            kind,
            dict(labels_of(pod)),
            float(asked.get("cpu", 0)),
            float(asked.get("memory", 0)),
            float(asked.get("nvidia.com/gpu", 0)),
            start,
        )

    def save(self) -> Obj:
        """For the saved state."""
        return {"ended": [asdict(run) for run in self.ended], "open": [asdict(run) for run in self.open.values()]}

    def load(self, saved: Obj) -> None:
        """From the saved state."""
        self.ended = [Run(**row) for row in saved.get("ended", [])]
        self.open = {row["uid"]: Run(**row) for row in saved.get("open", [])}
