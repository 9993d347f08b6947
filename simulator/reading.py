"""Lists with selectors, paging and resource versions, and single objects, as bytes."""

from __future__ import annotations

import json

from simulator.errors import (
    ApiError,
    bad_request,
    continue_expired,
    decode_continue,
    encode_continue,
    future_version,
)
from simulator.kinds import Kind, Obj
from simulator.objects import labels_of
from simulator.request import Request, Target
from simulator.selectors import Predicate, parse_fields, parse_labels
from simulator.store import Entry, Key, Store


def dumps(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def partial(obj: Obj) -> Obj:
    """The object as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def body_of(entry: Entry, metadata_only: bool = False) -> bytes:
    """An object as the answer to GET."""
    return dumps(partial(entry.obj)) if metadata_only else entry.raw


def predicate(request: Request) -> Predicate | None:
    """Label and field selector of the request, or None if there is neither."""
    labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
    if not labels and not fields:
        return None
    label_test, field_test = parse_labels(labels), parse_fields(fields)
    return lambda obj: label_test(labels_of(obj)) and field_test(obj)


def list_body(store: Store, request: Request, target: Target) -> bytes:
    """The answer to a LIST; raises ApiError 400, 410 or 504 on versions and continue tokens."""
    table, version, start = _table(store, request, target.kind)
    test, limit = predicate(request), request.number("limit") or 0
    keys = sorted(
        (key for key in table if not target.namespace or key[0] == target.namespace),
        key=lambda key: _path(key, target),
    )
    if start:
        keys = [key for key in keys if _path(key, target) + "\0" > start]
    chosen: list[Entry] = []
    remaining, token = 0, ""
    for index, key in enumerate(keys):
        entry = table[key]
        if test is not None and not test(entry.obj):
            continue
        chosen.append(entry)
        if limit and len(chosen) == limit and index + 1 < len(keys):
            remaining = len(keys) - index - 1
            token = encode_continue(version, "/" + _path(key, target) + "\0")
            break
    metadata: Obj = {"resourceVersion": str(version)}
    if token:
        metadata["continue"] = token
        if test is None:
            metadata["remainingItemCount"] = remaining
    if request.metadata_only:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        items = [dumps(partial(entry.obj)) for entry in chosen]
    else:
        kind = target.kind
        head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
        items = [_item(kind, entry) for entry in chosen]
    return dumps(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"


def _path(key: Key, target: Target) -> str:
    return key[1] if target.namespace or not target.kind.namespaced else f"{key[0]}/{key[1]}"


def _item(kind: Kind, entry: Entry) -> bytes:
    """An item as it stands in a list: built-in kinds leave out kind and apiVersion there."""
    if kind.schema is not None:
        return entry.raw
    front = len(f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode())
    return b"{" + entry.raw[front:]


def _table(store: Store, request: Request, kind: Kind) -> tuple[dict[Key, Entry], int, str]:
    """The entries to list, their version, and the key to start after."""
    token = request.query.get("continue", "")
    if token:
        version, start = decode_continue(token)
        start = start.lstrip("/")
        if version < 0:
            return store.table(kind), store.version, start
        try:
            return store.at(kind, version), version, start
        except ApiError as error:
            raise continue_expired(start) from error
    text, match = request.query.get("resourceVersion", ""), request.query.get("resourceVersionMatch", "")
    if not text or text == "0":
        if match == "Exact":
            raise bad_request('resourceVersionMatch "exact" is forbidden for resourceVersion "0" or unset')
        return store.table(kind), store.version, ""
    if not text.isdigit():
        raise bad_request(f"invalid resource version: {text!r}")
    asked = int(text)
    if asked > store.version:
        raise future_version(asked, store.version)
    if match == "Exact":
        return store.at(kind, asked), asked, ""
    return store.table(kind), store.version, ""
