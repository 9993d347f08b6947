"""Subresources: status, scale, binding, eviction, finalize, log."""

from __future__ import annotations

from simulator.cluster import Cluster
from simulator.errors import bad_request, method_not_allowed, not_simulated
from simulator.kinds import NAMESPACE, POD, SERVICE_ACCOUNT, Obj
from simulator.objects import name_of, namespace_of, rfc3339, rfc3339_micro, uid_of, unix
from simulator.options import Options
from simulator.patch import json_patch, merge_patch
from simulator.reading import dumps
from simulator.request import Request, Target
from simulator.verbs import deletion, options_of, write

Answer = tuple[int, bytes, str]
_JSON = "application/json"


def subresource(cluster: Cluster, request: Request, target: Target) -> Answer:
    """The answer on a subresource; raises ApiError 501 for one that is not simulated."""
    sub, kind = target.sub, target.kind
    if sub == "status" and kind.status:
        if request.method == "GET":
            return 200, cluster.registry.entry(kind, target.namespace, target.name).raw, _JSON
        if request.method not in ("PUT", "PATCH"):
            raise method_not_allowed(request.method)
        code, body, _ = write(cluster.registry, request, target)
        return code, body, _JSON
    if sub == "finalize" and kind == NAMESPACE and request.method == "PUT":
        code, body, _ = write(cluster.registry, request, target)
        return code, body, _JSON
    if sub == "scale" and kind.scale:
        return _scale(cluster, request, target)
    if kind == POD and sub == "log" and request.method == "GET":
        return _log(cluster, request, target)
    if kind == POD and sub == "binding" and request.method == "POST":
        return _bind(cluster, request, target)
    if kind == SERVICE_ACCOUNT and sub == "token" and request.method == "POST":
        return 201, dumps(cluster.tokens.request(cluster, target.namespace, target.name, request.data() or {})), _JSON
    if kind == POD and sub == "eviction" and request.method == "POST":
        cluster.registry.delete(POD, target.namespace, target.name, deletion(request))
        return (
            201,
            dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
            _JSON,
        )
    raise not_simulated(f"the subresource {target.resource} with {request.method}")


def _scale(cluster: Cluster, request: Request, target: Target) -> Answer:
    registry = cluster.registry
    entry = registry.entry(target.kind, target.namespace, target.name)
    if request.method == "GET":
        return 200, dumps(_scale_of(entry.obj)), _JSON
    if request.method == "PUT":
        given = request.data() or {}
    elif request.method == "PATCH":
        form = request.patch_form
        if form == "apply":
            raise not_simulated("apply on the subresource scale")
        given = (json_patch if form == "json" else merge_patch)(_scale_of(entry.obj), request.data())
    else:
        raise method_not_allowed(request.method)
    replicas = (given.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        raise bad_request(f"spec.replicas must be a whole number of at least 0, not {replicas!r}")

    def change(obj: Obj) -> None:
        obj["spec"]["replicas"] = replicas

    options = options_of(request, "scale")
    changed = registry.modify(target.kind, target.namespace, target.name, change, options)
    assert changed
    return 200, dumps(_scale_of(changed.obj)), _JSON


def _scale_of(obj: Obj) -> Obj:
    meta = obj["metadata"]
    labels = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: meta[k] for k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")},
        "spec": {"replicas": obj["spec"].get("replicas", 1)},
        "status": {
            "replicas": obj.get("status", {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def _bind(cluster: Cluster, request: Request, target: Target) -> Answer:
    """What a scheduler of one's own does."""
    node = ((request.data() or {}).get("target") or {}).get("name", "")
    if not node:
        raise bad_request("target.name: Required value")
    cluster.bind(target.namespace, target.name, node, Options(manager=request.manager, subresource="binding"))
    return 201, dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}), _JSON


def _log(cluster: Cluster, request: Request, target: Target) -> Answer:
    """Lines made up from what the pod went through; a container that has not started has none (400)."""
    pod = cluster.registry.entry(POD, target.namespace, target.name).obj
    names = [c["name"] for c in pod["spec"]["containers"]]
    container = request.query.get("container") or (names[0] if len(names) == 1 else "")
    if not container:
        raise bad_request(f"a container name must be specified for pod {name_of(pod)}, choose one of: {names}")
    rows = [
        *(pod["status"].get("containerStatuses") or []),
        *(pod["status"].get("initContainerStatuses") or []),
    ]
    row = next((r for r in rows if r["name"] == container), None)
    which = "lastState" if request.flag("previous") else "state"
    state = (row or {}).get(which) or {}
    running = state.get("running") or state.get("terminated")
    if not running:
        if request.flag("previous"):
            raise bad_request(f'previous terminated container "{container}" in pod "{name_of(pod)}" not found')
        reason = (state.get("waiting") or {}).get("reason", "ContainerCreating")
        raise bad_request(f'container "{container}" in pod "{name_of(pod)}" is waiting to start: {reason}')
    start = unix(running["startedAt"])
    end = unix(running["finishedAt"]) if "finishedAt" in running else cluster.registry.clock()
    lines = [(start, f"simulated container {container} of {namespace_of(pod)}/{name_of(pod)} ({uid_of(pod)})")]
    lines.append((start, f"image {(row or {}).get('image', '')}"))
    lines += [(at, f"alive for {int(at - start)} s") for at in _every(start, end, 10.0)][-500:]
    if "finishedAt" in running:
        lines.append((end, f"ended with exit code {running.get('exitCode', 0)} at {rfc3339(end)}"))
    tail = request.number("tailLines")
    if tail is not None:
        lines = lines[-tail:] if tail else []
    stamped = request.flag("timestamps")
    text = "".join(f"{rfc3339_micro(at) + ' ' if stamped else ''}{line}\n" for at, line in lines)
    return 200, text.encode(), "text/plain"


def _every(start: float, end: float, step: float) -> list[float]:
    return [start + step * n for n in range(1, int((end - start) / step) + 1)]
