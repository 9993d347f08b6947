"""Admission: namespace lifecycle, limit ranges, HAMi's webhook, quota. ValidatingAdmissionPolicies: see policies.py."""

from __future__ import annotations

from fractions import Fraction

from simulator import quantity
from simulator.defaults import containers_of
from simulator.errors import forbidden, not_found, terminating
from simulator.kinds import LIMIT_RANGE, NAMESPACE, POD, RESOURCE_QUOTA, SERVICE, Kind, Obj
from simulator.objects import is_deleting, labels_of, name_of, namespace_of
from simulator.resources import FINISHED, Vector, of_container, of_pod
from simulator.store import Store

HAMI_SCHEDULER = "hami-scheduler"
GPU, GPU_MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
GPU_MEMORY_PERCENT, GPU_CORES = "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"

_NOT_READY = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]


def check_namespace(store: Store, kind: Kind, obj: Obj) -> None:
    """404 if the object's namespace does not exist, 403 if it is going."""
    if not kind.namespaced:
        return
    entry = store.get(NAMESPACE, "", namespace_of(obj))
    if entry is None:
        raise not_found(NAMESPACE, namespace_of(obj))
    if is_deleting(entry.obj):
        raise terminating(kind, name_of(obj), namespace_of(obj))


def complete_pod(store: Store, pod: Obj, hami: str) -> None:
    """What admission writes into a new pod: HAMi's webhook, limit range defaults, service account, tolerations."""
    namespace = store.get(NAMESPACE, "", namespace_of(pod))
    ignored = {**(labels_of(namespace.obj) if namespace else {}), **labels_of(pod)}.get("hami.io/webhook")
    if hami != "off" and ignored != "ignore":
        _hami_webhook(pod, hami)
    _limit_defaults(store, pod)
    spec = pod["spec"]
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    tolerations = spec.setdefault("tolerations", [])
    for row in _NOT_READY:
        if not any(
            t.get("key") in (row["key"], None, "") and t.get("effect") in ("NoExecute", None) for t in tolerations
        ):
            tolerations.append(dict(row))
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _hami_webhook(pod: Obj, mode: str) -> None:
    """HAMi's mutating webhook (pkg/scheduler/webhook.go): the scheduler's name, and the card that is implied.

    Mode `all` takes every pod that asks for a card, `shares` only those that ask for memory or cores."""
    spec = pod["spec"]
    if spec.get("schedulerName") not in (None, "", "default-scheduler", HAMI_SCHEDULER):
        return
    touched = False
    for container in containers_of(spec):
        limits = of_container(container, "limits")
        share = any(name in limits for name in (GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_CORES))
        if not share and (mode != "all" or GPU not in limits):
            continue
        touched = True
        implied = {} if GPU in limits else {GPU: "1"}
        if GPU_MEMORY not in limits and GPU_MEMORY_PERCENT not in limits and GPU_CORES not in limits:
            implied[GPU_CORES] = "100"
        for which in ("limits", "requests"):
            container["resources"].setdefault(which, {}).update(implied)
    if touched:
        if spec.get("nodeName"):
            raise forbidden(
                POD, name_of(pod), 'admission webhook "vgpu.hami.io" denied the request: pod has node assigned'
            )
        spec["schedulerName"] = HAMI_SCHEDULER


def _limit_defaults(store: Store, pod: Obj) -> None:
    for rule in store.objects(LIMIT_RANGE, namespace_of(pod)):
        for row in rule["spec"].get("limits") or []:
            if row.get("type") != "Container":
                continue
            for container in containers_of(pod["spec"]):
                resources = container.setdefault("resources", {})
                for which, source in (("limits", "default"), ("requests", "defaultRequest")):
                    for name, value in (row.get(source) or {}).items():
                        resources.setdefault(which, {}).setdefault(name, value)


def check_limits(store: Store, pod: Obj) -> None:
    """403 if a limit range of the namespace refuses the pod."""
    for rule in store.objects(LIMIT_RANGE, namespace_of(pod)):
        for row in rule["spec"].get("limits") or []:
            if row.get("type") == "Container":
                for container in containers_of(pod["spec"]):
                    limits, requests = of_container(container, "limits"), of_container(container, "requests")
                    _within(pod, row, "Container", limits, requests)
            elif row.get("type") == "Pod":
                _within(pod, row, "Pod", of_pod(pod["spec"], "limits"), of_pod(pod["spec"]))


def _within(pod: Obj, row: Obj, what: str, limits: Vector, requests: Vector) -> None:
    for name, text in (row.get("max") or {}).items():
        limit = quantity.parse(text)
        if name not in limits:
            raise forbidden(POD, name_of(pod), f"maximum {name} usage per {what} is {text}. No limit is specified")
        if limits[name] > limit:
            got = quantity.decimal(limits[name])
            raise forbidden(POD, name_of(pod), f"maximum {name} usage per {what} is {text}, but limit is {got}")
    for name, text in (row.get("min") or {}).items():
        if requests.get(name, Fraction(0)) < quantity.parse(text):
            got = quantity.decimal(requests.get(name, Fraction(0)))
            raise forbidden(POD, name_of(pod), f"minimum {name} usage per {what} is {text}, but request is {got}")


def quota_charge(kind: Kind, obj: Obj, keys: list[str]) -> Vector:
    """What an object counts under each quota key."""
    charge: Vector = {}
    if kind == POD:
        if obj.get("status", {}).get("phase") in FINISHED:
            return {key: Fraction(1) for key in keys if key == "count/pods"}
        requests, limits = of_pod(obj["spec"]), of_pod(obj["spec"], "limits")
        for key in keys:
            if key in ("pods", "count/pods"):
                charge[key] = Fraction(1)
            elif key in ("cpu", "memory", "ephemeral-storage"):
                charge[key] = requests.get(key, Fraction(0))
            elif key.startswith("requests."):
                charge[key] = requests.get(key.removeprefix("requests."), Fraction(0))
            elif key in ("limits.cpu", "limits.memory", "limits.ephemeral-storage"):
                charge[key] = limits.get(key.removeprefix("limits."), Fraction(0))
        return charge
    for key in keys:
        if key in (f"count/{kind.qualified}", kind.plural):
            charge[key] = Fraction(1)
        elif key == "services.loadbalancers" and kind == SERVICE:
            charge[key] = Fraction(int(obj["spec"].get("type") == "LoadBalancer"))
    return charge


def quota_used(store: Store, namespace: str, keys: list[str], without: str = "") -> Vector:
    """What a namespace uses under each quota key; an object with the uid `without` does not count."""
    used: Vector = {key: Fraction(0) for key in keys}
    for kind in store.kinds():
        if not kind.namespaced or not _counted(kind, keys):
            continue
        for obj in store.objects(kind, namespace):
            if without and obj["metadata"].get("uid") == without:
                continue
            for key, value in quota_charge(kind, obj, keys).items():
                used[key] += value
    return used


def _counted(kind: Kind, keys: list[str]) -> bool:
    if kind == POD:
        return True
    return any(key in (f"count/{kind.qualified}", kind.plural) or key == "services.loadbalancers" for key in keys)


def check_quota(store: Store, kind: Kind, obj: Obj) -> None:
    """403 if the new object would exceed a quota of its namespace."""
    namespace = namespace_of(obj)
    for quota in sorted(store.objects(RESOURCE_QUOTA, namespace), key=name_of):
        hard = {key: quantity.parse(text) for key, text in (quota["spec"].get("hard") or {}).items()}
        charge = quota_charge(kind, obj, list(hard))
        if not charge:
            continue
        if kind == POD:
            _must_specify(quota, obj, hard)
        used = quota_used(store, namespace, list(charge))
        over = sorted(k for k, value in charge.items() if value > 0 and used[k] + value > hard[k])
        if over:
            texts = quota["spec"]["hard"]
            asked = ",".join(f"{key}={quantity.like(charge[key], texts[key])}" for key in over)
            have = ",".join(f"{key}={quantity.like(used[key], texts[key])}" for key in over)
            limit = ",".join(f"{key}={texts[key]}" for key in over)
            why = f"exceeded quota: {name_of(quota)}, requested: {asked}, used: {have}, limited: {limit}"
            raise forbidden(kind, name_of(obj), why)


def _must_specify(quota: Obj, pod: Obj, hard: Vector) -> None:
    """A quota on cpu or memory refuses containers that do not say how much they want."""
    native = {"cpu": ("requests", "cpu"), "memory": ("requests", "memory")}
    for which in ("requests", "limits"):
        for name in ("cpu", "memory"):
            native[f"{which}.{name}"] = (which, name)
    missing: dict[str, list[str]] = {}
    for key in hard:
        if key not in native:
            continue
        which, name = native[key]
        names = [c["name"] for c in containers_of(pod["spec"]) if name not in of_container(c, which)]
        if names:
            missing[key] = sorted(names)
    if missing:
        text = "; ".join(f"{key} for: {','.join(names)}" for key, names in sorted(missing.items()))
        raise forbidden(POD, name_of(pod), f"failed quota: {name_of(quota)}: must specify {text}")
