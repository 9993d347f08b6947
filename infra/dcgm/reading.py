"""Rows of the exporter → series of cards, each counted once.

What makes a naive sum wrong, and what is done about it (NVIDIA/dcgm-exporter, numbers are its issues):

- virtual GPUs copy the card's value for each pod that shares it (#587, #642), or give each pod a value of its own and
  keep the card's beside them (PR #594): the card's value is kept apart (``scope`` card) from the pods' (``scope`` pod);
- rows of MIG instances repeat the power, energy and XIDs of their card (#317): they become the card's, once;
- two Prometheus replicas give every row twice: rows that say the same are one, with the larger value.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from infra.dcgm.names import PER_PROCESS, is_of_instance
from infra.dcgm.values import believed
from infra.dcgm.workload import Workload, scrape_targets, workload_of
from infra.prometheus.types import Sample, Series

Scope = Literal["card", "pod"]
Mig = tuple[str, str]
"""Instance id and profile: ``("3", "1g.6gb")``."""


@dataclass(frozen=True)
class CardSeries:
    """One metric of a card or MIG instance over time, as far as one workload (or nobody) held it.

    ``scope`` card: the value is the card's (the instance's); all of these of a card never overlap in time. ``scope``
    pod: what one pod of several on the card did; ``None`` values where only the card's is known. ``node`` is empty
    where the rows' host label is no node's name.
    """

    node: str
    uuid: str
    mig: Mig | None
    workload: Workload | None
    metric: str
    samples: tuple[Sample, ...]
    scope: Scope = "card"
    pod_uid: str = ""


@dataclass(frozen=True)
class CardSample:
    """One value of a card: the newest of a :class:`CardSeries`. ``value`` ``None``: not known."""

    node: str
    uuid: str
    mig: Mig | None
    workload: Workload | None
    metric: str
    value: Decimal | None
    at_ms: int
    scope: Scope = "card"


@dataclass(frozen=True)
class CardFacts:
    """What the rows say of a card itself."""

    uuid: str
    node: str
    index: int
    model: str


@dataclass(frozen=True)
class HeldCard:
    """A pod was seen to hold a card or MIG instance. Labels come late and stay on, so the times are good to one or
    two intervals. ``shared``: others held it at the same time."""

    uuid: str
    mig: Mig | None
    workload: Workload
    pod_uid: str
    node: str
    first_ms: int
    last_ms: int
    shared: bool


@dataclass
class Reading:
    """What :func:`read_cards` found. ``dropped``: values by metric that could not be believed."""

    series: list[CardSeries] = field(default_factory=list)
    held: list[HeldCard] = field(default_factory=list)
    cards: dict[str, CardFacts] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class _Row:
    workload: Workload | None
    pod_uid: str
    node: str
    copy: bool
    samples: tuple[Sample, ...]


_Group = tuple[str, Mig | None, str]


def read_cards(rows: Iterable[Series], nodes: Collection[str] | None = None) -> Reading:
    """Read series of the exporter, from an API or its text.

    Args:
        nodes: the names of the cluster's nodes: the host label may be an exporter's pod or ``localhost``. ``None``:
            it is believed.
    """
    rows = [row for row in rows if row.name.startswith("DCGM_")]
    targets = scrape_targets(row.labels for row in rows)
    reading = Reading()
    groups: dict[_Group, list[_Row]] = defaultdict(list)
    for row in rows:
        labels, metric = row.labels, row.name
        uuid = labels.get("UUID") or labels.get("uuid") or labels.get("gpu_uuid") or ""
        if not uuid:
            continue
        node = node_of(labels, nodes)
        _note_card(reading, uuid, node, labels)
        mig, workload = mig_of(labels), workload_of(labels, targets)
        if mig is not None and not is_of_instance(metric):
            mig, workload = None, None
        samples = []
        for moment, value in row.samples:
            good = believed(metric, value)
            if good is None and value is not None:
                reading.dropped[metric] += 1
            samples.append((moment, good))
        pod_uid = labels.get("pod_uid", "") if workload else ""
        copy = bool(labels.get("vgpu")) and not (metric in PER_PROCESS and pod_uid)
        groups[uuid, mig, metric].append(_Row(workload, pod_uid, node, copy, tuple(samples)))
    held: dict[tuple[str, Mig | None, Workload, str], list[HeldCard]] = defaultdict(list)
    for (uuid, mig, metric), members in groups.items():
        reading.series += _resolved(uuid, mig, metric, members)
        _note_held(held, uuid, mig, members)
    reading.held = [_merged_held(found) for _, found in sorted(held.items(), key=lambda pair: repr(pair[0]))]
    return reading


def latest(series: Iterable[CardSeries]) -> list[CardSample]:
    """The newest value of each."""
    return [
        CardSample(
            one.node, one.uuid, one.mig, one.workload, one.metric, one.samples[-1][1], one.samples[-1][0], one.scope
        )
        for one in series
        if one.samples
    ]


def mig_of(labels: Mapping[str, str]) -> Mig | None:
    """The MIG instance of a row, by the exporter's labels or by those of a DRA claim."""
    if instance := labels.get("GPU_I_ID"):
        return instance, labels.get("GPU_I_PROFILE", "")
    if instance := labels.get("dra_mig_device_uuid"):
        return instance, labels.get("dra_mig_profile", "")
    return None


def node_of(labels: Mapping[str, str], nodes: Collection[str] | None) -> str:
    """The row's node; empty where no label names one of ``nodes``."""
    names = ("Hostname", "hostname", "exported_node", "node", "kubernetes_node", "nodename", "exported_instance")
    found = [labels[name] for name in names if labels.get(name)]
    if labels.get("instance"):
        found.append(labels["instance"].rpartition(":")[0] or labels["instance"])
    if nodes is None:
        return found[0] if found else ""
    return next((name for name in found if name in nodes), "")


# --- inside ----------------------------------------------------------------------------------------------------------


def _note_card(reading: Reading, uuid: str, node: str, labels: Mapping[str, str]) -> None:
    known = reading.cards.get(uuid)
    if known is not None and (known.node or not node):
        return
    index = labels.get("gpu", "")
    reading.cards[uuid] = CardFacts(
        uuid, node, int(index) if index.isdecimal() and len(index) < 5 else 0, labels.get("modelName", "")
    )


def _resolved(uuid: str, mig: Mig | None, metric: str, rows: list[_Row]) -> list[CardSeries]:
    node = next((row.node for row in rows if row.node), "")
    if len({row.workload for row in rows}) == 1:  # by far the most
        samples = rows[0].samples if len(rows) == 1 else _by_time(sample for row in rows for sample in row.samples)
        return [CardSeries(node, uuid, mig, rows[0].workload, metric, samples, "card", rows[0].pod_uid)]
    moments: dict[int, list[tuple[_Row, Decimal | None]]] = defaultdict(list)
    for row in rows:
        for moment, value in row.samples:
            moments[moment].append((row, value))
    card: dict[Workload | None, list[Sample]] = defaultdict(list)
    pods: dict[Workload, list[Sample]] = defaultdict(list)
    uids = {row.workload: row.pod_uid for row in rows if row.pod_uid}
    for moment, values in moments.items():
        workloads = {row.workload for row, _ in values}
        if len(workloads) == 1:
            card[next(iter(workloads))].append((moment, _largest(value for _, value in values)))
            continue
        plain = [value for row, value in values if row.workload is None]
        copies = [value for row, value in values if row.workload is not None]
        # The card's own row where there is one; copies repeat it. Values of single processes say nothing of the card.
        own = plain or ([] if metric in PER_PROCESS and not all(row.copy for row, _ in values) else copies)
        card[None].append((moment, _largest(own)))
        for row, value in values:
            if row.workload is not None:
                single = metric in PER_PROCESS and bool(row.pod_uid)
                pods[row.workload].append((moment, value if single else None))
    found = [
        CardSeries(node, uuid, mig, workload, metric, _by_time(samples), "card", uids.get(workload, ""))
        for workload, samples in card.items()
    ]
    found += [
        CardSeries(node, uuid, mig, workload, metric, _by_time(samples), "pod", uids.get(workload, ""))
        for workload, samples in pods.items()
    ]
    return found


def _by_time(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """In time's order; of two at the same instant the larger value."""
    found: dict[int, Decimal | None] = {}
    for moment, value in samples:
        known = found.get(moment)
        found[moment] = value if known is None else known if value is None else max(known, value)
    return tuple(sorted(found.items()))


def _largest(values: Iterable[Decimal | None]) -> Decimal | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def _note_held(
    held: dict[tuple[str, Mig | None, Workload, str], list[HeldCard]], uuid: str, mig: Mig | None, rows: list[_Row]
) -> None:
    holders: dict[int, set[tuple[str, str]]] = defaultdict(set)
    for row in rows:
        if row.workload is not None:
            for moment, _ in row.samples:
                holders[moment].add(row.workload[:2])
    for row in rows:
        if row.workload is None or not row.samples:
            continue
        shared = any(len(holders[moment]) > 1 for moment, _ in row.samples)
        first, last = row.samples[0][0], row.samples[-1][0]
        held[uuid, mig, row.workload, ""].append(
            HeldCard(uuid, mig, row.workload, row.pod_uid, row.node, first, last, shared)
        )


def _merged_held(found: list[HeldCard]) -> HeldCard:
    one = found[0]
    return HeldCard(
        one.uuid,
        one.mig,
        one.workload,
        next((each.pod_uid for each in found if each.pod_uid), ""),
        next((each.node for each in found if each.node), ""),
        min(each.first_ms for each in found),
        max(each.last_ms for each in found),
        any(each.shared for each in found),
    )
