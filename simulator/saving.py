"""The saved state of a cluster: one JSON file, replaced in one step."""

from __future__ import annotations

import json
from pathlib import Path

from simulator.cluster import Cluster
from simulator.devices import Held
from simulator.kinds import CRD, EVENT, POD, REPLICA_SET, Obj
from simulator.objects import write_atomically

FORM = 1
_SKIP = 100_000
"""Versions left out after a start from a state that was not the last: clients may have seen later ones."""


class StateError(Exception):
    """The saved state can't be read; the message says which file and what to do."""


def path_of(state_dir: Path, cluster: str) -> Path:
    """The file of a cluster's state."""
    return state_dir / f"{cluster}.state.json"


def snapshot(cluster: Cluster, *, last: bool) -> bytes:
    """The state as bytes. `last`: nothing will happen after it."""
    head = {
        "form": FORM,
        "last": last,
        "version": cluster.store.version,
        "broken": cluster.broken,
        "devices": {
            name: {
                "lost": sorted(devices.lost),
                "held": {uid: [[h.container, h.uuid, h.instance] for h in rows] for uid, rows in devices.held.items()},
            }
            for name, devices in cluster.devices.items()
        },
        "energy": cluster.meter.energy,
        "accounting": cluster.accounting.save(),
    }
    objects = [
        entry.raw
        for kind in cluster.store.kinds()
        if kind != EVENT or last
        for entry in cluster.store.table(kind).values()
    ]
    front = json.dumps(head, separators=(",", ":")).encode()[:-1]
    return front + b',"objects":[' + b",".join(objects) + b"]}"


def save(state_dir: Path, name: str, data: bytes) -> None:
    """Write a snapshot."""
    write_atomically(str(path_of(state_dir, name)), data)


def load(cluster: Cluster, state_dir: Path) -> bool:
    """Take over the saved state; False if there is none. Raises StateError."""
    path = path_of(state_dir, cluster.spec.name)
    if not path.exists():
        return False
    try:
        saved = json.loads(path.read_bytes())
    except ValueError as error:
        raise StateError(f"{path} is no JSON ({error}): delete it to start with a fresh cluster") from error
    if saved.get("form") != FORM:
        raise StateError(f"{path} has form {saved.get('form')!r}, not {FORM}: delete it to start with a fresh cluster")
    version = saved["version"] if saved["last"] else saved["version"] + _SKIP
    objects = saved["objects"]
    definitions = [obj for obj in objects if obj["kind"] == CRD.kind]
    cluster.store.load(version, [(CRD, obj) for obj in definitions])
    cluster.restore_kinds()
    rows = []
    for obj in objects:
        kind = cluster.registry.kinds.by_kind(obj["apiVersion"], obj["kind"])
        if kind is not None and kind != CRD:
            rows.append((kind, obj))
    cluster.store.load(version, rows)
    cluster.pods.load([obj for kind, obj in rows if kind == POD])
    cluster.sets.load([obj for kind, obj in rows if kind == REPLICA_SET])
    cluster.restore_events()
    cluster.broken.update(saved.get("broken") or {})
    cluster.meter.energy.update(saved.get("energy") or {})
    cluster.accounting.load(saved.get("accounting") or {})
    return _devices(cluster, saved.get("devices") or {})


def _devices(cluster: Cluster, saved: Obj) -> bool:
    for name, row in saved.items():
        devices = cluster.devices.get(name)
        if devices is not None:
            devices.lost.update(row["lost"])
            devices.held.update({uid: [Held(*held) for held in rows] for uid, rows in row["held"].items()})
    return True
