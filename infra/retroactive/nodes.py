"""What nodes had in service, from their capacity at each step of a window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from infra.node_reading import NodeFacts, read_node
from infra.retroactive.names import node_labels_of, resource_of
from infra.retroactive.reading import Answers, Scrapes, Series

Amounts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NodeState:
    """What a node's object said at a moment: sorted pairs of resource and number."""

    capacity: Amounts
    allocatable: Amounts
    cordoned: bool = False
    ready: bool | None = True


@dataclass(frozen=True, slots=True)
class Piece:
    """From ``start`` to ``end`` (ms) a node was in that state. ``error_ms``: by how much its edges may be wrong."""

    node: str
    start: int
    end: int
    state: NodeState


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """The pieces of a window, and what is known of the nodes' cards: labels of GPU feature discovery, products that
    DCGM tells, cards that HAMi's scheduler lists."""

    pieces: tuple[Piece, ...]
    labels: Mapping[str, Mapping[str, str]]
    hami_cards: Mapping[str, tuple[tuple[str, int], ...]]


Holding = tuple[str, int, int]
"""A pod on a node from, and for certain until (ms)."""


def read_nodes(
    answers: Answers, seen: Scrapes, *, holdings: Iterable[Holding] = (), still_there: frozenset[str] = frozenset()
) -> NodeHistory:
    """The nodes with cards of a window.

    Between two steps at which a node was seen it was there; what it was at the earlier one it was until the later one,
    only that a node that is found lost was so since it was last seen well. A stretch without any scrape is bridged in
    the same way. A node that comes or goes between two steps was there when it was seen, and while a pod is known to
    have held its cards.

    Args:
        holdings: pods on nodes.
        still_there: names of nodes that are there at the last point, known by other means.
    """
    points = [step for step, _ in seen.points]
    states = _states(answers, frozenset(points))
    by_node: dict[str, list[Holding]] = defaultdict(list)
    for holding in holdings:
        by_node[holding[0]].append(holding)
    pieces: list[Piece] = []
    for name in sorted(states):
        at = states[name]
        if name in still_there and points and points[-1] not in at and at:
            at = at | {points[-1]: at[max(at)]}
        pieces += _joined(_pieces(name, points, at, by_node[name]))
    return NodeHistory(tuple(pieces), _labels(answers), _hami_cards(answers))


def facts_of(name: str, uid: str, state: NodeState, history: NodeHistory) -> NodeFacts:
    """What such a node was, read as a Node object is. Raises ValueError naming the node and what can't be read."""
    cards = history.hami_cards.get(name, ())
    labels = dict(history.labels.get(name, {}))
    if cards:
        labels["nvidia.com/gpu.count"] = str(len(cards))
        labels.pop("nvidia.com/gpu.replicas", None)
    ready = {True: "True", False: "False", None: "Unknown"}[state.ready]
    node: dict[str, Any] = {
        "metadata": {"name": name, "uid": uid, "labels": labels},
        "spec": {"unschedulable": state.cordoned},
        "status": {
            "capacity": dict(state.capacity),
            "allocatable": dict(state.allocatable),
            "conditions": [{"type": "Ready", "status": ready, "message": "by its condition in Prometheus"}],
        },
    }
    if cards:
        # HAMi's register itself is an annotation, which no metric shows; its scheduler lists the cards in it.
        node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": _register(cards, labels)}
    return read_node(node)


def _register(cards: Sequence[tuple[str, int]], labels: Mapping[str, str]) -> str:
    kind = "NVIDIA-" + labels.get("nvidia.com/gpu.product", "").removeprefix("NVIDIA-").replace("-", " ")
    kind = kind if kind != "NVIDIA-" else "NVIDIA"
    return "".join(f"{uuid},10,{mib},100,{kind},0,true:" for uuid, mib in cards)


def _states(answers: Answers, points: frozenset[int]) -> dict[str, dict[int, NodeState]]:
    capacity = _amounts(answers.get("capacity", ()), points)
    allocatable = _amounts(answers.get("allocatable", ()), points)
    flags = {name: _steps(answers.get(name, ()), points) for name in ("cordoned", "unknown", "not_ready")}
    found: dict[str, dict[int, NodeState]] = {}
    for name, steps in capacity.items():
        found[name] = {
            step: NodeState(
                tuple(sorted(amounts.items())),
                tuple(sorted(allocatable.get(name, {}).get(step, amounts).items())),
                step in flags["cordoned"].get(name, ()),
                None if step in flags["unknown"].get(name, ()) else step not in flags["not_ready"].get(name, ()),
            )
            for step, amounts in steps.items()
            if any(amount != "0" for amount in amounts.values())
        }
    return {name: steps for name, steps in found.items() if steps}


def _amounts(series: Iterable[Series], points: frozenset[int]) -> dict[str, dict[int, dict[str, str]]]:
    """Node → step → resource → amount; of duplicates the larger."""
    found: dict[str, dict[int, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for one in series:
        name, resource = one.labels.get("node", ""), resource_of(one.labels.get("resource", ""))
        if not name or not resource:
            continue
        for at, value in one.samples:
            if at in points and value is not None:
                amounts = found[name][at]
                amounts[resource] = str(max(int(amounts.get(resource, "0")), int(value)))
    return found


def _steps(series: Iterable[Series], points: frozenset[int]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for one in series:
        found[one.labels.get("node", "")] |= {at for at, value in one.samples if at in points and value}
    return found


def _pieces(
    name: str, points: Sequence[int], at: Mapping[int, NodeState], holdings: Sequence[Holding]
) -> Iterable[Piece]:
    for left, right in pairwise(points):
        before, after = at.get(left), at.get(right)
        if before is not None and after is not None:
            lost = after.ready is None and before.ready is not None
            yield Piece(name, left, right, after if lost else before)
        elif after is not None:
            since = min((start for _, start, end in holdings if left < start < right < end), default=right)
            yield Piece(name, since, right, after)
        elif before is not None:
            until = max((min(end, right) for _, start, end in holdings if start <= left < end), default=left)
            yield Piece(name, left, until, before)


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        if piece.start >= piece.end:
            continue
        if joined and joined[-1].end == piece.start and joined[-1].state == piece.state:
            joined[-1] = Piece(piece.node, joined[-1].start, piece.end, piece.state)
        else:
            joined.append(piece)
    return joined


def _labels(answers: Answers) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for one in answers.get("labels", ()):
        name = one.labels.get("node", "")
        found[name] = {**found.get(name, {}), **node_labels_of(dict(one.labels))}
    for one in answers.get("cards", ()):
        name, model = one.labels.get("Hostname") or one.labels.get("hostname", ""), one.labels.get("modelName", "")
        if name and model and "nvidia.com/gpu.product" not in found.get(name, {}):
            # GPU feature discovery writes the driver's name with dashes.
            found[name] = {**found.get(name, {}), "nvidia.com/gpu.product": model.replace(" ", "-")}
    return found


def _hami_cards(answers: Answers) -> dict[str, tuple[tuple[str, int], ...]]:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for one in answers.get("hami_cards", ()):
        name = one.labels.get("node") or one.labels.get("nodeid", "")
        uuid = one.labels.get("device_uuid") or one.labels.get("deviceuuid", "")
        value = one.samples[-1][1] if one.samples else None
        if name and uuid and value is not None:
            found[name][uuid] = max(found[name].get(uuid, 0), int(value) // (1024 * 1024))
    return {name: tuple(sorted(cards.items())) for name, cards in found.items()}
