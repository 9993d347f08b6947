"""The control endpoint `/sim/…`, for tests and demonstrations: break things, count things. Administrators only.

| method, path | body | what |
| --- | --- | --- |
| GET /sim/state | | versions, nodes with their cards, open watches |
| GET /sim/requests, DELETE /sim/requests | | how often what was asked; start to count anew |
| POST /sim/faults, GET, DELETE | a fault (faults.Fault) or a list | order faults; see and drop those still waiting |
| POST /sim/nodes/NAME/break | {"how": "lost" or "notready"} | the node stops beating, or says that it is not ready |
| POST /sim/nodes/NAME/mend | | it is well again |
| POST /sim/nodes/NAME/drop-card | {"count": 1} or {"uuid": "GPU-…"} | cards fall off: allocatable falls |
| POST /sim/nodes/NAME/restore-cards | | they are back |
| POST /sim/nodes/NAME/unmapped, …/mapped | | its exporter names no pod any more; it does again |
| POST /sim/history/compact | | forget the history: old watches and continue tokens get 410 |
| POST /sim/version | {"version": "v1.36.0"} | what /version tells from now on: the cluster was upgraded |
| POST /sim/watches/end | {"cut": true} | end all open watches, in order or cut off |
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from simulator.access import User
from simulator.cluster import Cluster
from simulator.errors import ApiError, bad_request, path_not_allowed, status
from simulator.faults import Fault, Tally
from simulator.kinds import NODE, POD, Obj
from simulator.objects import name_of
from simulator.request import Request


def answer(cluster: Cluster, user: User, request: Request) -> Obj:
    """Carry out a control request; raises ApiError."""
    if not user.writes:
        raise path_not_allowed(user.name, request.method.lower(), request.path)
    parts = request.path.strip("/").split("/")[1:]
    body: Any = request.data() or {}
    match (request.method, *parts):
        case ("GET", "state"):
            return _state(cluster)
        case ("GET", "requests"):
            return cluster.tally.show()
        case ("DELETE", "requests"):
            cluster.tally = Tally()
            return cluster.tally.show()
        case ("POST", "version"):
            return _upgrade(cluster, str(body.get("version")))
        case ("POST", "faults"):
            return _order(cluster, body if isinstance(body, list) else [body])
        case ("GET", "faults"):
            return _faults(cluster)
        case ("DELETE", "faults"):
            cluster.faults.waiting.clear()
            return _faults(cluster)
        case ("POST", "nodes", name, action):
            return _node(cluster, name, action, body)
        case ("POST", "history", "compact"):
            return {"resourceVersion": str(cluster.store.compact())}
        case ("POST", "watches", "end"):
            return {"ended": cluster.hub.end_all(cut=bool(body.get("cut")))}
    message = f"there is no control {request.method} {request.path}; see the docstring of simulator/control.py"
    raise ApiError(404, status(404, "NotFound", message, {}))


def _upgrade(cluster: Cluster, version: str) -> Obj:
    if not re.fullmatch(r"v\d+\.\d+\.\d+", version):
        raise bad_request(f'version: must be like "v1.36.0", not {version!r}')
    cluster.spec = replace(cluster.spec, version=version)
    return {"version": version}


def _order(cluster: Cluster, rows: list[Obj]) -> Obj:
    try:
        cluster.faults.waiting += [Fault.read(row) for row in rows]
    except (TypeError, ValueError) as error:
        raise bad_request(str(error)) from error
    return _faults(cluster)


def _faults(cluster: Cluster) -> Obj:
    return {"waiting": [vars(fault) for fault in cluster.faults.waiting]}


def _state(cluster: Cluster) -> Obj:
    return {
        "cluster": cluster.spec.name,
        "resourceVersion": str(cluster.store.version),
        "watches": cluster.hub.open,
        "nodes": [
            {
                "name": name_of(node),
                "broken": cluster.broken.get(name_of(node), ""),
                "cards": [
                    {"uuid": card.uuid, "index": card.index, "lost": card.uuid in devices.lost}
                    for card in devices.cards
                ]
                if (devices := cluster.devices.get(name_of(node)))
                else [],
            }
            for node in cluster.store.objects(NODE)
        ],
        "pods": len(cluster.store.table(POD)),
    }


def _node(cluster: Cluster, name: str, action: str, body: Obj) -> Obj:
    if cluster.node(name) is None:
        raise ApiError(404, status(404, "NotFound", f'nodes "{name}" not found', {}))
    devices = cluster.devices.get(name)
    if action == "break":
        how = body.get("how", "lost")
        if how not in ("lost", "notready"):
            raise bad_request(f"how is {how!r}, but may be lost or notready")
        cluster.broken[name] = how
    elif action == "mend":
        cluster.broken.pop(name, None)
    elif action == "unmapped":
        cluster.unmapped.add(name)
    elif action == "mapped":
        cluster.unmapped.discard(name)
    elif action == "drop-card" and devices is not None:
        well = [card.uuid for card in devices.cards if card.uuid not in devices.lost]
        chosen = [body["uuid"]] if body.get("uuid") else well[-int(body.get("count", 1)) :]
        missing = [uuid for uuid in chosen if uuid not in well]
        if missing or not chosen:
            raise bad_request(f"node {name} has no such healthy card: {', '.join(missing) or 'none is left'}")
        devices.lost.update(chosen)
    elif action == "restore-cards" and devices is not None:
        devices.lost.clear()
    else:
        raise bad_request(f"{action} is no action on node {name}")
    cluster.look_at_node(name)
    return {
        "name": name,
        "broken": cluster.broken.get(name, ""),
        "lost": sorted(devices.lost) if devices else [],
    }
