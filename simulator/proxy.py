"""What stands behind the API server's proxy: dcgm-exporter and OpenCost."""

from __future__ import annotations

from simulator import metrics, opencost
from simulator.cluster import Cluster
from simulator.errors import ApiError, not_simulated, status
from simulator.kinds import NAMESPACE, NODE, POD, SERVICE
from simulator.objects import name_of
from simulator.reading import dumps
from simulator.request import Request, Target

EXPORTER, OPENCOST = "nvidia-dcgm-exporter", "opencost"
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"

Answer = tuple[int, bytes, str]


def answer(cluster: Cluster, target: Target, request: Request) -> Answer:
    """GET …/services/NAME:PORT/proxy/… or …/pods/NAME:PORT/proxy/…; raises ApiError 503 if nothing listens there.

    The exporter's Service answers for all nodes at once (a real one picks one pod); a pod answers for its node."""
    if request.method != "GET":
        raise not_simulated(f"{request.method} through a proxy")
    name, _, port = _parts(target.name)
    path = "/" + target.rest
    if target.kind == SERVICE:
        if cluster.store.get(SERVICE, target.namespace, name) is None:
            raise _unreachable(f'services "{name}" not found', 404)
        if name == EXPORTER and port in ("9400", "metrics", ""):
            return _exporter(cluster, path, metrics.exporting(cluster))
        if name == OPENCOST and port in ("9003", "http", ""):
            return _opencost(cluster, path, request.query)
        raise _unreachable(f'no endpoints available for service "{target.name}"')
    if target.kind == POD:
        pod = cluster.registry.entry(POD, target.namespace, name).obj
        node = pod["spec"].get("nodeName", "")
        if pod["status"].get("phase") != "Running" or cluster.broken.get(node) == "lost":
            raise _unreachable(f"error trying to reach service: dial tcp {name}:{port}: connect: connection refused")
        labels = pod["metadata"].get("labels") or {}
        app = labels.get("app.kubernetes.io/name") or labels.get("app")
        if app == EXPORTER and node in cluster.devices:
            return _exporter(cluster, path, [node])
        if app == OPENCOST:
            return _opencost(cluster, path, request.query)
        raise _unreachable(f"error trying to reach service: dial tcp {name}:{port}: connect: connection refused")
    raise not_simulated(f"a proxy of {target.kind.plural}")


def _parts(text: str) -> tuple[str, str, str]:
    """(name, scheme, port) of `name`, `name:port` or `scheme:name:port`."""
    pieces = text.split(":")
    if len(pieces) == 3:
        return pieces[1], pieces[0], pieces[2]
    return pieces[0], "", pieces[1] if len(pieces) == 2 else ""


def _unreachable(why: str, code: int = 503) -> ApiError:
    reason = "ServiceUnavailable" if code == 503 else "NotFound"
    return ApiError(code, status(code, reason, why, {}))


def _exporter(cluster: Cluster, path: str, nodes: list[str]) -> Answer:
    if path == "/health":
        return 200, b"KO" if not nodes else b"OK", "text/plain; charset=utf-8"
    if path != "/metrics":
        return 404, b"404 page not found\n", "text/plain; charset=utf-8"
    return 200, metrics.text(cluster, cluster.meter, nodes).encode(), PROMETHEUS_TEXT


def _opencost(cluster: Cluster, path: str, query: dict[str, str]) -> Answer:
    if path == "/healthz":
        return 200, b"", "text/plain; charset=utf-8"
    if path not in ("/allocation", "/allocation/compute", "/assets"):
        return 404, b"404 page not found\n", "text/plain; charset=utf-8"
    spec = cluster.spec
    try:
        question = opencost.Question.read(query, cluster.clock())
    except opencost.BadWindow as error:
        text = f"Invalid 'window' parameter: illegal window: {error}\n"
        body = {"code": 500, "status": "", "data": None, "message": "Error: illegal window: [nil, nil)"}
        return 400, text.encode() + dumps(body), "text/plain; charset=utf-8"
    nodes = cluster.store.objects(NODE)
    if path == "/assets":
        data: object = opencost.assets(nodes, question.start, question.end, spec.name, spec.prices)
    else:
        namespaces = {name_of(obj): obj for obj in cluster.store.objects(NAMESPACE)}
        runs = cluster.accounting.all()
        data = opencost.allocation(runs, question, spec.name, spec.prices, nodes, namespaces)
    return 200, dumps({"code": 200, "status": "success", "data": data}), "application/json"
