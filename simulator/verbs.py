"""From an HTTP request to a verb of the registry."""

from __future__ import annotations

from typing import Any

from simulator.access import success
from simulator.errors import bad_request, method_not_allowed
from simulator.kinds import CRD, NAMESPACE, Obj
from simulator.objects import name_of, namespace_of, uid_of
from simulator.options import Options
from simulator.reading import dumps, predicate
from simulator.registry import Registry
from simulator.request import Request, Target, delete_options
from simulator.store import Entry

Answer = tuple[int, bytes, list[str]]


def options_of(request: Request, sub: str = "") -> Options:
    """The options of a write from the query."""
    return Options(
        manager=request.manager,
        subresource=sub,
        dry_run=request.dry_run,
        force=request.flag("force"),
        strict=request.query.get("fieldValidation") == "Strict",
        user=request.user,
        groups=request.groups,
    )


def carry_out(registry: Registry, request: Request, target: Target, verb: str) -> Answer:
    """A write on an object or a collection: (HTTP status, body, warnings)."""
    if verb == "create":
        if target.name:
            raise method_not_allowed("POST")
        options = options_of(request)
        entry = registry.create(target.kind, target.namespace, _object(request), options)
        return 201, entry.raw, options.warnings
    if verb == "delete":
        return _delete(registry, request, target)
    if verb == "deletecollection":
        return _delete_all(registry, request, target)
    if not target.name:
        raise method_not_allowed(request.method)
    return write(registry, request, target)


def write(registry: Registry, request: Request, target: Target) -> Answer:
    """PUT and PATCH, on the object or on its `status`."""
    options = options_of(request, target.sub)
    kind, namespace, name = target.kind, target.namespace, target.name
    if request.method == "PUT":
        entry = registry.update(kind, namespace, name, _object(request), options)
        return 200, entry.raw, options.warnings
    form = request.patch_form
    if form == "apply":
        entry, created = registry.apply(kind, namespace, name, _object(request), options)
        return 201 if created else 200, entry.raw, options.warnings
    if options.force:
        raise bad_request("may not specify force for non-apply patch")
    entry = registry.patch(kind, namespace, name, form, request.data(), options)
    return 200, entry.raw, options.warnings


def _object(request: Request) -> Obj:
    body: Any = request.data()
    if not isinstance(body, dict):
        raise bad_request("the body of the request must be an object")
    return body


def deletion(request: Request) -> Options:
    """Options of a DELETE, from query and body."""
    given = delete_options(request)
    conditions = given.get("preconditions") or {}
    grace = given.get("gracePeriodSeconds")
    return Options(
        dry_run=request.dry_run or given.get("dryRun") == ["All"],
        propagation=given.get("propagationPolicy") or ("Orphan" if given.get("orphanDependents") else ""),
        grace=int(grace) if grace is not None else None,
        uid=conditions.get("uid") or "",
        version=conditions.get("resourceVersion") or "",
    )


def _delete(registry: Registry, request: Request, target: Target) -> Answer:
    entry, gone = registry.delete(target.kind, target.namespace, target.name, deletion(request))
    return 200, _deleted(target, entry, gone), []


def _deleted(target: Target, entry: Entry, gone: bool) -> bytes:
    if gone and not target.kind.returns_object:
        return dumps(success(target.kind, name_of(entry.obj), uid_of(entry.obj)))
    return entry.raw


def _delete_all(registry: Registry, request: Request, target: Target) -> Answer:
    if target.kind in (NAMESPACE, CRD) or (target.kind.namespaced and not target.namespace):
        raise method_not_allowed("DELETE")
    test, options = predicate(request), deletion(request)
    items = []
    for obj in registry.store.objects(target.kind, target.namespace or None):
        if test is None or test(obj):
            entry, _ = registry.delete(target.kind, namespace_of(obj), name_of(obj), options)
            items.append(entry.obj)
    body = {
        "kind": f"{target.kind.kind}List",
        "apiVersion": target.kind.api_version,
        "metadata": {"resourceVersion": str(registry.store.version)},
        "items": items,
    }
    return 200, dumps(body), []
