"""Answers of one window → what was seen of pods, and when the source was scraped."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Protocol

from infra.retroactive.names import resource_of
from infra.retroactive.pods import Amounts, PastContainer, PastGrant, PastPod

MIB = 1024 * 1024


class Series(Protocol):
    """Labels, and samples in time's order: (ms since the epoch, value or None = no number)."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Among them, where the query kept it, ``__name__``."""
        ...

    @property
    def samples(self) -> Sequence[tuple[int, Decimal | None]]:
        """In time's order."""
        ...


Answers = Mapping[str, Sequence[Series]]
"""By the names of :mod:`infra.retroactive.questions`. What is missing was not answered with anything."""


@dataclass(frozen=True, slots=True)
class Scrapes:
    """When the source was scraped within a window.

    ``points``: the steps at which the latest scrape was fresh, with the time of that scrape; ascending.
    """

    points: tuple[tuple[int, int], ...] = ()

    @property
    def first(self) -> int | None:
        """The first step at which somebody was there to ask."""
        return self.points[0][0] if self.points else None

    def after(self, scrape: int) -> int | None:
        """The first step whose scrape came after this one: what was not in it then, was gone."""
        at = bisect_right(self.points, scrape, key=lambda point: point[1])
        return self.points[at][0] if at < len(self.points) else None

    def gaps(self, longest: int, end: int | None = None) -> list[tuple[int, int]]:
        """Stretches longer than ``longest`` ms without a scrape, between points and up to ``end``."""
        steps = [step for step, _ in self.points] + ([end] if end is not None else [])
        return [(left, right) for left, right in pairwise(steps) if right - left > longest]


def scrapes(series: Iterable[Series], step: int, *, end: int | None = None) -> Scrapes:
    """From the question ``scraped``; of several servers the freshest counts.

    A server's answer may be as old as its look-back (5 minutes): a step whose scrape is older than two steps is none.

    Args:
        step: ms between two steps.
        end: a moment at which everything is known by other means (the watch's first list).
    """
    latest: dict[int, int] = {}
    for one in series:
        for at, value in one.samples:
            if value is not None:
                latest[at] = max(latest.get(at, 0), _ms(value))
    fresh = [(at, scrape) for at, scrape in sorted(latest.items()) if at - scrape <= 2 * step]
    if end is not None:
        fresh = [(at, scrape) for at, scrape in fresh if at < end] + [(end, end)]
    return Scrapes(tuple(fresh))


def tells_uids(answers: Answers) -> bool:
    """Whether the exporter tells which pod is which; true also where there was none."""
    return all(one.labels.get("uid") for one in answers.get("first", ()))


def read_pods(answers: Answers, seen: Scrapes) -> dict[str, PastPod]:
    """The pods of a window by identity: those that ask for cards. Duplicates (two servers, two exporters) count
    once."""
    table = _Table(answers)
    found: dict[str, PastPod] = {}
    for name, lives in (_lives(table) if tells_uids(answers) else _lives_by_start(table)).items():
        for life in lives:
            pod = _completed(life, table, only=len(lives) == 1, name=name, seen=seen)
            if any(resource.startswith("nvidia.com/") for one in pod.containers for resource, _ in one.requests):
                found[pod.key] = pod
    return found


_Name = tuple[str, str]


class _Table:
    """The answers by question and by (namespace, name) of the pod that a series is about."""

    def __init__(self, answers: Answers) -> None:
        self._found: dict[str, dict[_Name, list[Series]]] = {}
        for question, series in answers.items():
            name_of = _hami_name if question.startswith("hami_") else _name
            rows: dict[_Name, list[Series]] = defaultdict(list)
            for one in series:
                rows[name_of(one)].append(one)
            self._found[question] = rows

    def names(self, question: str) -> Iterable[_Name]:
        """All that the answer is about."""
        return self._found.get(question, {}).keys()

    def of(self, question: str, name: _Name) -> Sequence[Series]:
        """What the answer says of that name."""
        return self._found.get(question, {}).get(name, ())

    def theirs(self, question: str, pod: PastPod, name: _Name, *, only: bool) -> Iterable[Series]:
        """This pod's: by uid, or by name where the series have none and no other pod had the name."""
        for one in self.of(question, name):
            uid = one.labels.get("uid", "")
            if (uid and uid == pod.uid) or (not uid and only):
                yield one


# --- identities ------------------------------------------------------------------------------------------------------


def _lives(table: _Table) -> dict[_Name, list[PastPod]]:
    """Namespace and name → the pods that had them."""
    lives: dict[_Name, list[PastPod]] = {}
    for name in table.names("first"):
        found: dict[str, PastPod] = {}
        for one in table.of("first", name):
            uid, first = one.labels["uid"], _value(one)
            if first is None:
                continue
            known = found.get(uid)
            lasts = [_value(row) or first for row in table.of("last", name) if row.labels.get("uid") == uid]
            found[uid] = PastPod(
                uid, *name, first=min(first, known.first) if known else first, last=max([first, *lasts]),
                node=max(known.node if known else "", one.labels.get("node", "")),
                owner_kind=_told(one.labels.get("created_by_kind", "")),
                owner_name=_told(one.labels.get("created_by_name", "")),
            )  # fmt: skip
        lives[name] = list(found.values())
    return lives


def _lives_by_start(table: _Table) -> dict[_Name, list[PastPod]]:
    """Without uids: a pod is its start time, seen at the steps at which it was told."""
    lives: dict[_Name, list[PastPod]] = {}
    for name in table.names("start_times"):
        starts: dict[int, list[int]] = defaultdict(list)
        for one in table.of("start_times", name):
            for at, value in one.samples:
                if value is not None:
                    starts[_ms(value)].append(at)
        lives[name] = [
            PastPod("", *name, first=min(steps), last=max(steps), start_time=start, node=_node_of(table, name, steps))
            for start, steps in sorted(starts.items())
        ]
    return lives


def _node_of(table: _Table, name: _Name, steps: Sequence[int]) -> str:
    """Where the pod of that name was at these steps: the node that it was seen on at most of them."""
    lasts = {one.labels.get("node", ""): _value(one) or 0 for one in table.of("last", name)}
    shared: dict[str, int] = {}
    for one in table.of("first", name):
        node, first = one.labels.get("node", ""), _value(one) or 0
        shared[node] = max(shared.get(node, 0), sum(first <= step <= lasts.get(node, 0) for step in steps) + 1)
    return max(shared, key=lambda node: (shared[node], node), default="")


# --- what belongs to them --------------------------------------------------------------------------------------------


def _completed(pod: PastPod, table: _Table, *, only: bool, name: _Name, seen: Scrapes) -> PastPod:
    """The pod with all that the other answers say of it. ``only``: no other pod had its name in this window."""

    def told(question: str) -> list[int]:
        return [v for one in table.theirs(question, pod, name, only=only) if (v := _value(one)) is not None]

    started: dict[str, int | None] = {}
    for one in table.theirs("started", pod, name, only=only):
        container, value = one.labels.get("container", ""), _value(one)
        started[container] = min(value or 0, started.get(container) or value or 0) or None
    values: dict[str, int | None] = {
        "created": min(told("created"), default=None),
        "scheduled": min(told("scheduled"), default=None),
        "start_time": pod.start_time or min(told("start_time"), default=None),
        "terminal": min(told("terminal"), default=None),
        "alive": max(told("alive"), default=None),
        "completed": max(told("completed"), default=None),
        "init_seen": min(told("init_seen"), default=None),
    }
    if not pod.uid:
        begun, values["completed"] = _by_start(pod, table, name)
        started = {"": begun} if begun else {}
        # Told of a pod once its containers have ended: under a name without a uid there is no better sign.
        values["terminal"] = pod.last if values["completed"] else None
        values["alive"] = None if values["completed"] else pod.last
    return PastPod(
        pod.uid, pod.namespace, pod.name, pod.first, pod.last, pod.node, pod.owner_kind, pod.owner_name,
        after=seen.after(pod.last), containers=_containers(table, pod, name, started),
        grants=_grants(table, pod, name) if only else (), **values,
    )  # fmt: skip


def _by_start(pod: PastPod, table: _Table, name: _Name) -> tuple[int | None, int | None]:
    """First start and last end of a pod without a uid: those that lie between its start time and the next pod's under
    its name."""

    def values(question: str) -> set[int]:
        return {_ms(value) for one in table.of(question, name) for _, value in one.samples if value}

    own = pod.start_time or 0
    until = min((start for start in values("start_times") if start > own), default=None)

    def within(question: str) -> list[int]:
        return [value for value in values(question) if value >= own and (until is None or value < until)]

    return min(within("start_values"), default=None), max(within("completed_values"), default=None)


def _containers(
    table: _Table, pod: PastPod, name: _Name, started: Mapping[str, int | None]
) -> tuple[PastContainer, ...]:
    sidecars = {one.labels.get("container", "") for one in table.theirs("sidecars", pod, name, only=True)}
    found: dict[str, tuple[str, Amounts]] = {}
    for kind, questions in (("main", ("requests", "host")), ("init", ("init_requests", "init_host"))):
        for question in questions:
            for one in table.theirs(question, pod, name, only=True):
                container, resource = one.labels.get("container", ""), resource_of(one.labels.get("resource", ""))
                amount = _exact(one)
                if not resource or not amount:
                    continue
                known = dict(found.get(container, ("", ()))[1])
                known[resource] = str(max(Fraction(known.get(resource, 0)), amount))
                this = "sidecar" if kind == "init" and container in sidecars else kind
                found[container] = (this, tuple(sorted(known.items())))
    # The start of a container that asks for nothing counts as well: the pod holds its cards from then.
    for container in started:
        found.setdefault(container, ("main", ()))
    return tuple(PastContainer(container, *found[container], started.get(container)) for container in sorted(found))


def _grants(table: _Table, pod: PastPod, name: _Name) -> tuple[PastGrant, ...]:
    """HAMi's scheduler names pods by name only: of a name that two pods had in one window nothing is concluded."""
    cores = {_hami(one): _exact(one) or Fraction(0) for one in table.of("hami_cores", name)}
    found = set()
    for one in table.of("hami_memory", name):
        index, card = _hami(one)
        amount = _exact(one)
        node = one.labels.get("node") or one.labels.get("nodename", "")
        if amount is not None and (not node or node == pod.node) and index.isdecimal() and card:
            found.add(PastGrant(int(index), card, int(amount) // MIB, int(cores.get((index, card), Fraction(0)))))
    return tuple(sorted(found, key=lambda grant: (grant.index, grant.uuid, grant.memory_mib)))


def _hami(one: Series) -> tuple[str, str]:
    """(container index, card) in the spelling of either generation of HAMi's metrics."""
    labels = one.labels
    return (
        labels.get("containeridx") or labels.get("container_index", ""),
        labels.get("deviceuuid") or labels.get("device_uuid", ""),
    )


def _hami_name(one: Series) -> _Name:
    labels = one.labels
    if "podname" in labels:
        return labels.get("podnamespace", ""), labels["podname"]
    return _name(one)


# --- values ----------------------------------------------------------------------------------------------------------


def _name(one: Series) -> _Name:
    """kube-state-metrics scraped with ``honorLabels: false`` has its pods in ``exported_…``."""
    labels = one.labels
    return (
        labels.get("exported_namespace") or labels.get("namespace", ""),
        labels.get("exported_pod") or labels.get("pod", ""),
    )


def _told(text: str) -> str:
    return "" if text == "<none>" else text


def _exact(one: Series) -> Fraction | None:
    value = one.samples[-1][1] if one.samples else None
    return None if value is None else Fraction(value)


def _value(one: Series) -> int | None:
    """A value in seconds since the epoch as ms."""
    value = one.samples[-1][1] if one.samples else None
    return None if value is None or value <= 0 else _ms(value)


def _ms(seconds: Decimal) -> int:
    return int(seconds * 1000)
