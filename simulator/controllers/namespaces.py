"""What every namespace has, and how one ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from simulator.cluster import Cluster
from simulator.controllers.base import Controller, Key
from simulator.errors import ApiError
from simulator.kinds import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, Obj
from simulator.objects import is_deleting, name_of, namespace_of
from simulator.options import Options
from simulator.store import Change

_ROOT_CA = "kube-root-ca.crt"
_ROOT_CA_NOTE = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class Namespaces(Controller):
    """Service account and root CA for each; deletion of everything inside, then of itself."""

    name = "namespaces"

    def __init__(self, cluster: Cluster, ca_file: str = "") -> None:
        super().__init__(cluster)
        self._ca = Path(ca_file).read_text(encoding="utf-8") if ca_file else ""

    def interest(self, change: Change) -> Iterable[Key]:
        if change.type == "DELETED" and change.kind.namespaced:
            yield (namespace_of(change.new.obj),)
        elif change.kind == NAMESPACE and change.type != "DELETED":
            yield (name_of(change.new.obj),)

    def start(self) -> Iterable[Key]:
        return [(name_of(namespace),) for namespace in self.store.objects(NAMESPACE)]

    def reconcile(self, key: Key) -> float | None:
        (name,) = key
        namespace = self.registry.find(NAMESPACE, "", name)
        if namespace is None:
            return None
        if is_deleting(namespace):
            return self._end(namespace)
        if not self.store.get(SERVICE_ACCOUNT, name, "default"):
            self.registry.create(SERVICE_ACCOUNT, name, {"metadata": {"name": "default"}}, self.options())
        if not self.store.get(CONFIG_MAP, name, _ROOT_CA):
            body = {
                "metadata": {"name": _ROOT_CA, "annotations": {"kubernetes.io/description": _ROOT_CA_NOTE}},
                "data": {"ca.crt": self._ca},
            }
            self.registry.create(CONFIG_MAP, name, body, self.options())
        return None

    def _end(self, namespace: Obj) -> float | None:
        name = name_of(namespace)
        left: Counter[str] = Counter()
        finalizers: Counter[str] = Counter()
        for kind in self.registry.kinds:
            if not kind.namespaced:
                continue
            for obj in self.store.objects(kind, name):
                if not is_deleting(obj):
                    try:
                        self.registry.delete(kind, name, name_of(obj), Options(propagation="Background"))
                    except ApiError:
                        continue
            for obj in self.store.objects(kind, name):
                left[kind.qualified if kind.group else f"{kind.plural}."] += 1
                finalizers.update(obj["metadata"].get("finalizers") or [])
        if left:
            self._tell(namespace, left, finalizers)
            return self.cluster.timing.namespace_tick

        def finish(obj: Obj) -> None:
            obj["spec"]["finalizers"] = [f for f in obj["spec"].get("finalizers") or [] if f != "kubernetes"]

        self.registry.modify(NAMESPACE, "", name, finish, self.options("finalize"))
        return None

    def _tell(self, namespace: Obj, left: Counter[str], finalizers: Counter[str]) -> None:
        now = self.registry.now()
        resources = ", ".join(f"{what} has {number} resource instances" for what, number in sorted(left.items()))
        held = ", ".join(f"{what} in {number} resource instances" for what, number in sorted(finalizers.items()))
        rows = [
            ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered",
             "All resources successfully discovered"),
            ("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions",
             "All legacy kube types successfully parsed"),
            ("NamespaceDeletionContentFailure", "False", "ContentDeleted",
             "All content successfully deleted, may be waiting on finalization"),
            ("NamespaceContentRemaining", "True", "SomeResourcesRemain",
             f"Some resources are remaining: {resources}"),
            ("NamespaceFinalizersRemaining", "True" if held else "False",
             "SomeFinalizersRemain" if held else "ContentHasNoFinalizers",
             f"Some content in the namespace has finalizers remaining: {held}"
             if held else "All content-preserving finalizers finished"),
        ]  # fmt: skip

        def change(obj: Obj) -> None:
            before = {row["type"]: row for row in obj["status"].get("conditions") or []}
            obj["status"]["conditions"] = [
                {
                    "type": kind,
                    "status": value,
                    "lastTransitionTime": before[kind]["lastTransitionTime"]
                    if kind in before and before[kind]["status"] == value
                    else now,
                    "reason": reason,
                    "message": message,
                }
                for kind, value, reason, message in rows
            ]

        self.registry.modify(NAMESPACE, "", name_of(namespace), change, self.options("status"))
