"""DELETE: grace for pods, finalizers, propagation policies, preconditions."""

from __future__ import annotations

from simulator.errors import bad_request, conflict
from simulator.kinds import NAMESPACE, POD, Kind, Obj
from simulator.objects import clone, is_deleting, name_of, namespace_of, rfc3339, same, uid_of
from simulator.options import Options
from simulator.resources import FINISHED
from simulator.store import Entry, Store

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


def delete(store: Store, entry: Entry, kind: Kind, options: Options, now: float) -> tuple[Entry, bool]:
    """Delete the object, or mark it where something holds it; returns the last state and whether it is gone.

    Raises ApiError 409 if a precondition does not hold. `now` in unix seconds."""
    obj, name = entry.obj, name_of(entry.obj)
    if options.uid and options.uid != uid_of(obj):
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({uid_of(obj)}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind, name, why)
    if options.version and options.version != str(entry.version):
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion "
            f"in record ({entry.version}). The object might have been modified"
        )
        raise conflict(kind, name, why)
    if options.dry_run:
        return entry, False
    if kind == POD:
        return _delete_pod(store, entry, options, now)
    if kind == NAMESPACE:
        return _delete_namespace(store, entry, now), False
    return _delete_plain(store, kind, entry, options, now)


def _delete_pod(store: Store, entry: Entry, options: Options, now: float) -> tuple[Entry, bool]:
    pod = clone(entry.obj)
    meta = pod["metadata"]
    grace = options.grace if options.grace is not None else int(pod["spec"]["terminationGracePeriodSeconds"])
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in FINISHED:
        grace = 0
    deleting = is_deleting(pod)
    if deleting and grace >= int(meta.get("deletionGracePeriodSeconds", 0)) and grace > 0:
        return entry, False
    _dependents(POD, meta, options)
    if grace > 0 or deleting or meta.get("finalizers"):
        meta["deletionTimestamp"] = rfc3339(now + grace)
        meta["deletionGracePeriodSeconds"] = grace
        if not deleting:
            meta["generation"] = int(meta.get("generation", 0)) + 1
        entry = store.put(POD, pod)
    if grace > 0 or meta.get("finalizers"):
        return entry, False
    removed = store.remove(POD, namespace_of(pod), name_of(pod))
    assert removed
    return removed, True


def _delete_namespace(store: Store, entry: Entry, now: float) -> Entry:
    if is_deleting(entry.obj):
        return entry
    namespace = clone(entry.obj)
    namespace["metadata"]["deletionTimestamp"] = rfc3339(now)
    namespace["status"]["phase"] = "Terminating"
    return store.put(NAMESPACE, namespace)


def _delete_plain(store: Store, kind: Kind, entry: Entry, options: Options, now: float) -> tuple[Entry, bool]:
    obj = clone(entry.obj)
    meta = obj["metadata"]
    _dependents(kind, meta, options)
    if not meta.get("finalizers"):
        removed = store.remove(kind, namespace_of(obj), name_of(obj))
        assert removed
        return removed, True
    if not is_deleting(obj):
        meta["deletionTimestamp"] = rfc3339(now)
        meta["deletionGracePeriodSeconds"] = 0
        if kind.generation:
            meta["generation"] = int(meta.get("generation", 0)) + 1
    return (entry, False) if same(entry.obj, obj) else (store.put(kind, obj), False)


def _dependents(kind: Kind, meta: Obj, options: Options) -> None:
    """Set the finalizer that the propagation policy asks for."""
    there = [f for f in meta.get("finalizers") or [] if f in (FOREGROUND, ORPHAN)]
    if there and not options.propagation:
        return  # asked for before: that stays
    policy = options.propagation or ("Orphan" if kind.orphans else "Background")
    if policy not in ("Orphan", "Foreground", "Background"):
        raise bad_request(f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "{policy}"')
    finalizers = [f for f in meta.get("finalizers") or [] if f not in (FOREGROUND, ORPHAN)]
    if policy == "Foreground":
        finalizers.append(FOREGROUND)
    elif policy == "Orphan":
        finalizers.append(ORPHAN)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
