"""The verbs on objects: create, update, patch, apply, delete, as an API server carries them out on one cluster.

Everything runs on the event loop's thread, without awaiting: each verb is one step for everybody else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from simulator import admission, defaults, deletion, validation
from simulator.apply import apply, track_update
from simulator.errors import (
    already_exists,
    bad_request,
    bad_value,
    conflict,
    invalid,
    not_found,
    not_in_schema,
    stale,
)
from simulator.kinds import NAMESPACE, NODE, POD, SERVICE, Kind, KindTable, Obj
from simulator.objects import Ids, clone, is_deleting, name_of, namespace_of, rfc3339, same, spec_of, uid_of
from simulator.options import Options
from simulator.patch import json_patch, merge_patch, strategic_patch
from simulator.podsecurity import check_pod_security
from simulator.policies import check_policies, check_policy
from simulator.resources import qos_class
from simulator.schemas import prune, unknown_field, violations
from simulator.store import Entry, Store

_SERVER_META = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


class Registry:
    """The objects of one cluster behind the rules of an API server."""

    def __init__(self, store: Store, ids: Ids, hami: str = "off", clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.kinds = KindTable()
        self.ids = ids
        self.hami = hami
        self.clock = clock
        self._next_ip = 10

    def now(self) -> str:
        """The present second as RFC 3339."""
        return rfc3339(self.clock())

    # --- reads -------------------------------------------------------------------------------------------

    def find(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """The object, or None; not to be changed."""
        entry = self.store.get(kind, namespace, name)
        return entry.obj if entry else None

    def entry(self, kind: Kind, namespace: str, name: str) -> Entry:
        """The entry; raises ApiError 404."""
        entry = self.store.get(kind, namespace, name)
        if entry is None:
            raise not_found(kind, name)
        return entry

    # --- create ------------------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, body: Obj, options: Options) -> Entry:
        """POST. Raises ApiError as a real server refuses."""
        obj = self._opened(kind, namespace, body)
        if obj["metadata"].get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        if kind.schema is not None:
            unknown = prune(kind, obj)
            if unknown and options.strict:
                fields = ", ".join(f'unknown field "{path}"' for path in unknown)
                raise bad_request(
                    f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                    f"strict decoding error: {fields}"
                )
            options.warnings += [f'unknown field "{path}"' for path in unknown]
        return self._insert(kind, obj, options, track=True)

    def _opened(self, kind: Kind, namespace: str, body: Obj) -> Obj:
        """A copy of the body with kind and apiVersion in front, checked against the URL."""
        if not isinstance(body.get("metadata", {}), dict):
            raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind})")
        for field_name, wanted in (("kind", kind.kind), ("apiVersion", kind.api_version)):
            given = body.get(field_name)
            if given and given != wanted:
                raise bad_request(
                    f"{field_name} in the body ({given}) does not match the expected {field_name} ({wanted})"
                )
        obj: Obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {}}
        obj.update({k: clone(v) for k, v in body.items() if k not in ("kind", "apiVersion", "metadata")})
        meta = clone(body.get("metadata") or {})
        if kind.namespaced:
            given = meta.get("namespace")
            if given and given != namespace:
                raise bad_request(
                    f"the namespace of the provided object does not match the namespace sent on the request "
                    f"({given!r}, {namespace!r})"
                )
            meta = {"namespace": namespace, **meta}
        else:
            meta.pop("namespace", None)
        obj["metadata"] = {"name": meta.get("name", ""), **meta}
        return obj

    def _insert(self, kind: Kind, obj: Obj, options: Options, *, track: bool) -> Entry:
        meta = obj["metadata"]
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = f"{str(meta['generateName'])[:58]}{self.ids.suffix()}"
        for key in _SERVER_META:
            meta.pop(key, None)
        if track:
            meta.pop("managedFields", None)
        defaults.fill(obj)
        if track:
            without_status = obj if kind == NODE else {k: v for k, v in obj.items() if k != "status"}
            blank = {k: v for k, v in kind.blank().items() if k != "status" or kind == NODE}
            track_update(blank, without_status, options.manager, "", self.now())
        admission.check_namespace(self.store, kind, obj)
        if kind == POD:
            admission.complete_pod(self.store, obj, self.hami)
        self._prepare(kind, obj)
        validation.check_new(kind, obj)
        violations(kind, obj)
        check_policy(kind, obj)
        if kind == POD:
            admission.check_limits(self.store, obj)
            check_pod_security(self.store, obj)
        check_policies(self.store, kind, obj, None, options)
        if kind.namespaced:
            admission.check_quota(self.store, kind, obj)
        name, namespace = name_of(obj), namespace_of(obj)
        if self.store.get(kind, namespace, name):
            raise already_exists(kind, name)
        meta["uid"] = self.ids.uid()
        meta["creationTimestamp"] = self.now()
        if kind.generation or kind.schema is not None:
            meta["generation"] = 1
        if options.dry_run:
            return Entry(obj, 0)
        return self.store.put(kind, obj)

    def _prepare(self, kind: Kind, obj: Obj) -> None:
        """What the server sets on a new object, whatever was sent."""
        if kind == POD:
            obj["status"] = {"phase": "Pending", "qosClass": qos_class(obj["spec"])}
        elif kind == NAMESPACE:
            obj["spec"] = {"finalizers": ["kubernetes"]}
            obj["status"] = {"phase": "Active"}
        elif kind == NODE:
            obj.setdefault("spec", {})
            obj.setdefault("status", {})
        elif kind.status and "status" in kind.empty:
            obj["status"] = clone(kind.empty["status"])
        elif kind.status:
            obj.pop("status", None)
        if kind == SERVICE and obj["spec"].get("type") != "ExternalName":
            ip = obj["spec"].get("clusterIP") or self._service_ip()
            obj["spec"]["clusterIP"] = ip
            obj["spec"].setdefault("clusterIPs", [ip])
        if kind.kind == "Job" and "selector" not in obj["spec"]:
            self._job_selector(obj)

    def _service_ip(self) -> str:
        taken = {s["spec"].get("clusterIP") for s in self.store.objects(SERVICE)}
        while True:
            self._next_ip += 1
            ip = f"10.96.{self._next_ip // 250 % 250}.{self._next_ip % 250 + 1}"
            if ip not in taken:
                return ip

    def _job_selector(self, job: Obj) -> None:
        uid = self.ids.uid()
        job["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        labels = job["spec"]["template"]["metadata"].setdefault("labels", {})
        for prefix in ("batch.kubernetes.io/", ""):
            labels[f"{prefix}controller-uid"] = uid
            labels[f"{prefix}job-name"] = name_of(job)

    # --- update ------------------------------------------------------------------------------------------

    def update(self, kind: Kind, namespace: str, name: str, body: Obj, options: Options) -> Entry:
        """PUT, on the object or on its subresource `status`."""
        entry = self.entry(kind, namespace, name)
        new = self._opened(kind, namespace, body)
        if name_of(new) not in ("", name):
            raise bad_request(f"the name of the object ({name_of(new)}) does not match the name on the URL ({name})")
        new["metadata"]["name"] = name
        version = new["metadata"].get("resourceVersion")
        if version and version != str(entry.version):
            raise stale(kind, name)
        uid = new["metadata"].get("uid")
        if uid and uid != uid_of(entry.obj):
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {uid_of(entry.obj)}"
            raise conflict(kind, name, why)
        if kind.schema is not None:
            options.warnings += [f'unknown field "{path}"' for path in prune(kind, new)]
        return self._change(kind, entry, new, options, track=True)

    def modify(
        self, kind: Kind, namespace: str, name: str, change: Callable[[Obj], None], options: Options
    ) -> Entry | None:
        """Change a copy of the object and store it; None if there is no such object. For controllers."""
        entry = self.store.get(kind, namespace, name)
        if entry is None:
            return None
        new = clone(entry.obj)
        change(new)
        if new == entry.obj:
            return entry
        return self._change(kind, entry, new, options, track=True)

    def patch(self, kind: Kind, namespace: str, name: str, form: str, body: Any, options: Options) -> Entry:
        """PATCH of the form `merge`, `strategic` or `json`."""
        entry = self.entry(kind, namespace, name)
        if form == "json":
            new = json_patch(entry.obj, body)
        elif not isinstance(body, dict):
            raise bad_request("the body of a patch must be an object")
        elif form == "merge":
            new = merge_patch(entry.obj, body)
        else:
            new = strategic_patch(entry.obj, body)
        given = body.get("metadata", {}) if isinstance(body, dict) else {}
        if given.get("resourceVersion") and given["resourceVersion"] != str(entry.version):
            raise stale(kind, name)
        if given.get("uid") and given["uid"] != uid_of(entry.obj):
            raise invalid(kind, name, [bad_value("metadata.uid", given["uid"], "field is immutable")])
        new = self._opened(kind, namespace, clone(new))
        new["metadata"]["name"] = name
        if kind.schema is not None:
            options.warnings += [f'unknown field "{path}"' for path in prune(kind, new)]
        return self._change(kind, entry, new, options, track=True)

    def apply(self, kind: Kind, namespace: str, name: str, body: Obj, options: Options) -> tuple[Entry, bool]:
        """Server-side apply; returns the entry and whether it was created."""
        if not body.get("apiVersion") or not body.get("kind"):
            raise bad_request("an applied object must say its apiVersion and kind")
        given = self._opened(kind, namespace, body)
        if name_of(given) not in ("", name):
            raise bad_request(f"the name of the object ({name_of(given)}) does not match the name on the URL ({name})")
        given["metadata"]["name"] = name
        if body.get("metadata", {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        if kind.schema is not None:
            path = unknown_field(kind, given)
            if path:
                raise not_in_schema(kind, namespace, name, path)
        entry = self.store.get(kind, namespace, name)
        if not options.subresource and kind.status:
            given.pop("status", None)
        version = given["metadata"].get("resourceVersion")
        if version and (entry is None or version != str(entry.version)):
            raise stale(kind, name)
        live = entry.obj if entry else None
        merged = apply(live, given, options.manager, options.subresource, options.force, self.now())
        if entry is None:
            if options.subresource:
                raise not_found(kind, name)
            merged["metadata"].pop("resourceVersion", None)
            return self._insert(kind, merged, options, track=False), True
        return self._change(kind, entry, merged, options, track=False), False

    def _change(self, kind: Kind, entry: Entry, new: Obj, options: Options, *, track: bool) -> Entry:
        old = entry.obj
        meta, before = new["metadata"], old["metadata"]
        for key in (*_SERVER_META, "name", "namespace", "resourceVersion"):
            if key in before:
                meta[key] = before[key]
            else:
                meta.pop(key, None)
        if "generateName" in before:
            meta["generateName"] = before["generateName"]
        if track and "managedFields" not in meta and "managedFields" in before:
            meta["managedFields"] = before["managedFields"]
        new = self._scoped(kind, old, new, options.subresource)
        if options.subresource != "status" or kind == NODE:
            defaults.fill(new)
        if not options.subresource:
            validation.check_change(kind, old, new)
            violations(kind, new)
            check_policy(kind, new)
            check_policies(self.store, kind, new, old, options)
        if track:
            track_update(old, new, options.manager, options.subresource, self.now())
        if same(old, new):
            return entry
        if (kind.generation or kind.schema is not None) and spec_of(old) != spec_of(new):
            new["metadata"]["generation"] = int(before.get("generation", 0)) + 1
        if options.dry_run:
            return Entry(new, entry.version)
        if is_deleting(new) and self._may_go(kind, new):
            removed = self.store.remove(kind, namespace_of(new), name_of(new), new)
            assert removed
            return removed
        return self.store.put(kind, new)

    def _scoped(self, kind: Kind, old: Obj, new: Obj, subresource: str) -> Obj:
        """Only what the (sub)resource may change comes from `new`."""
        if subresource == "status":
            meta = {**old["metadata"], "managedFields": new["metadata"].get("managedFields", [])}
            out = {**old, "metadata": meta}
            if "status" in new:
                out["status"] = new["status"]
            return out
        if subresource == "finalize":
            return {**old, "metadata": new["metadata"], "spec": new.get("spec", {})}
        if subresource in ("", "scale", "binding") and (kind.status or kind == NAMESPACE):
            out = {k: v for k, v in new.items() if k != "status"}
            if "status" in old:
                out["status"] = old["status"]
            if kind == NAMESPACE:
                out["spec"] = old["spec"]
            return out
        return new

    # --- delete ------------------------------------------------------------------------------------------

    def delete(self, kind: Kind, namespace: str, name: str, options: Options) -> tuple[Entry, bool]:
        """DELETE; returns the last state and whether the object is gone already."""
        return deletion.delete(self.store, self.entry(kind, namespace, name), kind, options, self.clock())

    def _may_go(self, kind: Kind, obj: Obj) -> bool:
        """True if nothing holds an object whose deletion was asked for."""
        if obj["metadata"].get("finalizers"):
            return False
        if kind == NAMESPACE:
            return not obj["spec"].get("finalizers")
        return not obj["metadata"].get("deletionGracePeriodSeconds")
