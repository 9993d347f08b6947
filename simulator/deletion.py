def delete(self, kind: Kind, namespace: str, name: str, options: Options) -> tuple[Entry, bool]:
    """DELETE; returns the last state and whether the object is gone already."""
    entry = self.entry(kind, namespace, name)
    obj = entry.obj
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
        return self._delete_pod(entry, options)
    if kind == NAMESPACE:
        return self._delete_namespace(entry), False
    return self._delete_plain(kind, entry, options)

def _delete_pod(self, entry: Entry, options: Options) -> tuple[Entry, bool]:
    pod = clone(entry.obj)
    meta = pod["metadata"]
    grace = options.grace if options.grace is not None else int(pod["spec"]["terminationGracePeriodSeconds"])
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in FINISHED:
        grace = 0
    deleting = is_deleting(pod)
    if deleting and grace >= int(meta.get("deletionGracePeriodSeconds", 0)) and grace > 0:
        return entry, False
    self._dependents(POD, meta, options)
    if grace > 0 or deleting or meta.get("finalizers"):
        meta["deletionTimestamp"] = rfc3339(self.clock() + grace)
        meta["deletionGracePeriodSeconds"] = grace
        if not deleting:
            meta["generation"] = int(meta.get("generation", 0)) + 1
        entry = self.store.put(POD, pod)
    if grace > 0 or meta.get("finalizers"):
        return entry, False
    removed = self.store.remove(POD, namespace_of(pod), name_of(pod))
    assert removed
    return removed, True

def _delete_namespace(self, entry: Entry) -> Entry:
    if is_deleting(entry.obj):
        return entry
    namespace = clone(entry.obj)
    namespace["metadata"]["deletionTimestamp"] = self.now()
    namespace["status"]["phase"] = "Terminating"
    return self.store.put(NAMESPACE, namespace)

def _delete_plain(self, kind: Kind, entry: Entry, options: Options) -> tuple[Entry, bool]:
    obj = clone(entry.obj)
    meta = obj["metadata"]
    self._dependents(kind, meta, options)
    if not meta.get("finalizers"):
        removed = self.store.remove(kind, namespace_of(obj), name_of(obj))
        assert removed
        return removed, True
    if not is_deleting(obj):
        meta["deletionTimestamp"] = self.now()
        meta["deletionGracePeriodSeconds"] = 0
        if kind.generation:
            meta["generation"] = int(meta.get("generation", 0)) + 1
    return (entry, False) if _same(entry.obj, obj) else (self.store.put(kind, obj), False)

def _dependents(self, kind: Kind, meta: Obj, options: Options) -> None:
    """Set the finalizer that the propagation policy asks for."""
    policy = options.propagation or ("Orphan" if kind.orphans else "Background")
    if policy not in ("Orphan", "Foreground", "Background"):
        raise bad_request(
            f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "{policy}"'
        )
    finalizers = [f for f in meta.get("finalizers") or [] if f not in (FOREGROUND, ORPHAN)]
    if policy == "Foreground":
        finalizers.append(FOREGROUND)
    elif policy == "Orphan":
        finalizers.append(ORPHAN)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)

