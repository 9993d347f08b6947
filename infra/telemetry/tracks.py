"""Which series tell how busy a card was, what memory it had in use, and its energy."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from infra.dcgm.names import ENERGY, ENGINE_ACTIVE, FB_USED, GPU_UTIL
from infra.dcgm.reading import CardSeries
from infra.dcgm.workload import UNMAPPED, Workload
from infra.hami_metrics import HamiSeries
from infra.prometheus.types import Sample
from infra.telemetry.hours import Figure, Subject, Track


def tracks_of_cards(series: Iterable[CardSeries]) -> list[Track]:
    """Tracks of dcgm-exporter's series.

    A card's utilisation is ``GPU_UTIL`` where it has one, else (MIG instances, cards whose driver does not tell)
    ``GR_ENGINE_ACTIVE``, which is a ratio.
    """
    series = list(series)
    with_util = {
        (one.uuid, one.mig, one.scope)
        for one in series
        if one.metric == GPU_UTIL and any(value is not None for _, value in one.samples)
    }
    found = []
    for one in series:
        if one.metric == GPU_UTIL:
            found.append(_track(one, "busy_percent", one.samples))
        elif one.metric == ENGINE_ACTIVE and (one.uuid, one.mig, one.scope) not in with_util:
            percent = tuple((at, value * 100 if value is not None else None) for at, value in one.samples)
            found.append(_track(one, "busy_percent", percent))
        elif one.metric == FB_USED:
            found.append(_track(one, "memory_mib", one.samples))
        elif one.metric == ENERGY and one.scope == "card":
            found.append(_track(one, "energy_mj", one.samples))
    return found


def tracks_of_hami(series: Iterable[HamiSeries], cards: Collection[str]) -> list[Track]:
    """Tracks of HAMi's monitors: containers on shared cards; and cards themselves, of those that are not in ``cards``
    (which dcgm-exporter tells of already)."""
    found = []
    figures: dict[str, Figure] = {"busy_percent": "busy_percent", "memory_used_mib": "memory_mib"}
    for one in series:
        figure = figures.get(one.figure)
        if figure is None or (one.workload is None and one.uuid in cards):
            continue
        subject = _subject(one.uuid, "", "card" if one.workload is None else "pod", one.workload)
        found.append(Track(subject, figure, one.samples, one.node))
    return found


def _track(one: CardSeries, figure: Figure, samples: tuple[Sample, ...]) -> Track:
    instance, profile = one.mig or ("", "")
    return Track(_subject(one.uuid, instance, one.scope, one.workload), figure, samples, one.node, profile)


def _subject(uuid: str, instance: str, scope: str, workload: Workload | None) -> Subject:
    namespace, pod, container = workload if workload is not None and workload != UNMAPPED else ("", "", "")
    return Subject(uuid, instance, "pod" if scope == "pod" else "card", namespace, pod, container)
