"""What is said of a cluster's metrics, as conditions with a sentence."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from infra.services.endpoints import ANSWERS
from infra.services.telemetry_sources import Batch
from portal.kernel.conditions import Condition

FRESH = "Fresh"
MAPPED = "Mapped"
COMPLETE = "Complete"
SEEN = "CardsSeen"

STALE_AFTER = timedelta(minutes=5)
_NAMED = 5


def answered() -> Condition:
    """It answered."""
    return Condition(ANSWERS, "True", "Answered")


def not_answered(sentence: str) -> Condition:
    """Nothing usable came back."""
    return Condition(ANSWERS, "False", "NoAnswer", sentence)


def no_exporter() -> Condition:
    """Neither a Prometheus was set, nor is there an exporter that could be asked."""
    return Condition(
        ANSWERS,
        "Unknown",
        "NoSource",
        "No Prometheus is set for this cluster, and no dcgm-exporter runs there that could be asked. How busy its "
        "cards are, and which card a pod has, is not known.",
    )


def fresh(newest: datetime | None, now: datetime) -> Condition:
    """How old the newest sample is."""
    if newest is None:
        return Condition(FRESH, "Unknown", "NoSamples", "No sample of a card was seen yet.")
    age = now - newest
    text = f"The newest sample is {round(age.total_seconds())} s old."
    if age > STALE_AFTER:
        return Condition(FRESH, "False", "Behind", f"{text} Check that it still scrapes the exporters.")
    return Condition(FRESH, "True", "UpToDate", text)


def complete(batch: Batch) -> Condition:
    """Whether all of the source answered."""
    if batch.partial:
        return Condition(COMPLETE, "False", "PartialAnswer", f"A part of it did not answer: {batch.warnings[0]}")
    if batch.failed:
        more = f" (and {len(batch.failed) - 1} more)" if len(batch.failed) > 1 else ""
        return Condition(COMPLETE, "False", "ExportersFailed", f"{batch.failed[0]}{more}")
    return Condition(COMPLETE, "True", "AllAnswered")


def mapped(unmapped: Collection[str]) -> Condition:
    """Whether exporters name the pods that hold cards."""
    if not unmapped:
        return Condition(MAPPED, "True", "PodsNamed")
    return Condition(
        MAPPED,
        "False",
        "PodsNotNamed",
        f"On {_names(unmapped)} pods hold cards, but the exporter names none. What they hold is metered all the same; "
        "how busy they keep it is not known. Check that the exporter runs with DCGM_EXPORTER_KUBERNETES=true and can "
        "read the kubelet's pod-resources socket.",
    )


def seen(any_series: bool, silent: Collection[str]) -> Condition:
    """Whether there are rows of cards at all, and of all nodes."""
    if not any_series:
        return Condition(
            SEEN,
            "False",
            "NoSeries",
            "It has no series of dcgm-exporter or HAMi for this cluster. Check that it scrapes the exporters, and the "
            "labels that pick this cluster out.",
        )
    if silent:
        return Condition(
            SEEN, "False", "NodesSilent", f"Nothing comes from {_names(silent)}. Check the exporter there."
        )
    return Condition(SEEN, "True", "AllNodes")


def _names(nodes: Collection[str]) -> str:
    first = ", ".join(sorted(nodes)[:_NAMED])
    rest = len(nodes) - _NAMED
    return f"{first} and {rest} more nodes" if rest > 0 else first
