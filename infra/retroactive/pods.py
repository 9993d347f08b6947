"""What history says of one pod, gathered from any number of windows of time. Instants are ms since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

Amounts = tuple[tuple[str, str], ...]
"""Sorted pairs of a resource (``nvidia.com/gpu``) and its exact quantity as text."""


@dataclass(frozen=True, slots=True)
class PastContainer:
    """One container. ``kind``: ``main``, ``init`` or ``sidecar``; ``started``: the first start that was told."""

    name: str
    kind: str
    requests: Amounts = ()
    started: int | None = None


@dataclass(frozen=True, slots=True)
class PastGrant:
    """HAMi's scheduler: container ``index`` (init containers first) had MiB and percent of cores of a card."""

    index: int
    uuid: str
    memory_mib: int
    cores: int


@dataclass(frozen=True, slots=True)
class PastPod:
    """One pod, as far as history tells.

    ``uid``: Kubernetes' own; "" where the exporter is too old to tell it: then the pod is its namespace, its name and
    ``start_time``. ``first``, ``last``: the first and last scrape that has it (bound to ``node``); ``after``: the
    first scrape that would have had it and has not. ``alive``: the last scrape in which it had not finished;
    ``terminal``: the first in which it had (phase Succeeded or Failed). ``created``, ``scheduled``, ``start_time``
    (the kubelet accepted it) and ``completed`` (its last container ended) are told by metrics, and exact.
    ``init_seen``: the first scrape in which an init container ran or had run.
    """

    uid: str
    namespace: str
    name: str
    first: int
    last: int
    node: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    after: int | None = None
    alive: int | None = None
    terminal: int | None = None
    created: int | None = None
    scheduled: int | None = None
    start_time: int | None = None
    completed: int | None = None
    init_seen: int | None = None
    containers: tuple[PastContainer, ...] = ()
    grants: tuple[PastGrant, ...] = ()

    @property
    def key(self) -> str:
        """Its identity within a cluster."""
        return self.uid or f"{self.namespace}/{self.name}@{self.start_time or 0}"


_EARLIEST = ("first", "terminal", "created", "scheduled", "start_time", "init_seen")
_LATEST = ("last", "alive", "completed")


def merge(one: PastPod, other: PastPod) -> PastPod:
    """Both sights of a pod as one. Commutative, associative, idempotent. Raises ValueError for two pods."""
    if one.key != other.key:
        raise ValueError(f"{one.key} and {other.key} are two pods")
    if one.last != other.last:
        after = max(one, other, key=lambda pod: pod.last).after
    else:
        after = _least(one.after, other.after)
    # What should not differ, and is settled all the same: the later sight counts, then the greater text.
    latest = max(one, other, key=lambda pod: (pod.last, pod.node, pod.owner_kind, pod.owner_name))
    changes: dict[str, Any] = {
        **{name: _least(getattr(one, name), getattr(other, name)) for name in _EARLIEST},
        **{name: _most(getattr(one, name), getattr(other, name)) for name in _LATEST},
        "after": after,
        "node": latest.node or one.node or other.node,
        "containers": _containers(one, other),
        "grants": max(one.grants, other.grants, key=lambda grants: (len(grants), repr(grants))),
    }
    return replace(latest, **changes)


def gathered(sights: Mapping[str, PastPod], more: Mapping[str, PastPod]) -> dict[str, PastPod]:
    """Two collections by identity, merged."""
    found = dict(sights)
    for key, pod in more.items():
        found[key] = merge(found[key], pod) if key in found else pod
    return found


def _containers(one: PastPod, other: PastPod) -> tuple[PastContainer, ...]:
    found: dict[str, PastContainer] = {container.name: container for container in one.containers}
    for container in other.containers:
        known = found.get(container.name)
        found[container.name] = _container(known, container) if known else container
    return tuple(found[name] for name in sorted(found))


def _container(one: PastContainer, other: PastContainer) -> PastContainer:
    return PastContainer(
        one.name,
        # That an init container stays is told by a metric of its own, perhaps not in every window.
        "sidecar" if "sidecar" in (one.kind, other.kind) else max(one.kind, other.kind),
        _larger(one.requests, other.requests),
        _least(one.started, other.started),
    )


def _larger(one: Amounts, other: Amounts) -> Amounts:
    """Each resource once; of two amounts (resized in place) the larger."""
    if one == other:
        return one
    found = dict(one)
    for resource, text in other:
        found[resource] = max(found.get(resource, text), text, key=lambda amount: (Fraction(amount), amount))
    return tuple(sorted(found.items()))


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _most(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def dump_pod(pod: PastPod) -> dict[str, Any]:
    """As JSON, without what is empty."""
    found = {one.name: getattr(pod, one.name) for one in fields(pod) if getattr(pod, one.name) not in (None, "", ())}
    found["containers"] = [[one.name, one.kind, dict(one.requests), one.started] for one in pod.containers]
    found["grants"] = [[one.index, one.uuid, one.memory_mib, one.cores] for one in pod.grants]
    return {key: value for key, value in found.items() if value != []}


def load_pod(data: Mapping[str, Any]) -> PastPod:
    """The inverse of :func:`dump_pod`."""
    values: dict[str, Any] = {"uid": "", **data}
    values["containers"] = tuple(
        PastContainer(name, kind, tuple(sorted(requests.items())), started)
        for name, kind, requests, started in data.get("containers", ())
    )
    values["grants"] = tuple(PastGrant(*entry) for entry in data.get("grants", ()))
    return PastPod(**values)
