"""Which pod a row is about: the four ways in which exporter and Prometheus say so, or fail to.

==========================  ========================================================================================
``exported_pod`` …          Prometheus with ``honorLabels: false``: ``pod`` is then the exporter's own
``pod`` …                   the exporter's text, or Prometheus with ``honorLabels: true``
``pod=""``, no labels       nobody holds the card; or the exporter could not ask the kubelet (see ``unmapped``)
``pod`` of the exporter     nobody holds the card, and Prometheus filled the gap with the target's own labels
==========================  ========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple


class Workload(NamedTuple):
    """Who holds a card."""

    namespace: str
    pod: str
    container: str


UNMAPPED: Final = Workload("", "", "unmapped")
"""Stands in the place of a workload where the exporter could not tell: not known, which is not "nobody"."""

_EXPORTERS = ("dcgm-exporter", "hami-device-plugin", "hami-scheduler", "hami-vgpu-monitor", "vgpu-monitor")


def scrape_targets(rows: Iterable[Mapping[str, str]]) -> frozenset[tuple[str, str]]:
    """(namespace, pod) of the exporters themselves, where the rows give them away: beside ``exported_pod``."""
    return frozenset((row.get("namespace", ""), row["pod"]) for row in rows if row.get("exported_pod") and "pod" in row)


def workload_of(labels: Mapping[str, str], targets: frozenset[tuple[str, str]] = frozenset()) -> Workload | None:
    """Who holds the card of this row; ``None``: nobody is named.

    Args:
        targets: pods known to be exporters (:func:`scrape_targets`).
    """
    if pod := labels.get("exported_pod"):
        return Workload(labels.get("exported_namespace", ""), pod, labels.get("exported_container", ""))
    pod = labels.get("pod", "")
    if not pod or _is_target(labels, pod, targets):
        return None
    return Workload(labels.get("namespace", ""), pod, labels.get("container", ""))


def _is_target(labels: Mapping[str, str], pod: str, targets: frozenset[tuple[str, str]]) -> bool:
    if (labels.get("namespace", ""), pod) in targets:
        return True
    if "job" not in labels and "service" not in labels and "instance" not in labels:
        return False  # the exporter's own text: its labels are the workload's
    names = {labels.get("service", ""), labels.get("job", "").rpartition("/")[2], *_EXPORTERS} - {""}
    return any(pod == name or pod.startswith(f"{name}-") or f"-{name}-" in f"-{pod}-" for name in names)
