"""Samples of a cluster's cards for a window of time: from its Prometheus, or from its exporters themselves."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from infra.dcgm.names import ENERGY, INGESTED
from infra.hami_metrics import USE_METRICS
from infra.kube.client import KubeClient
from infra.kube.errors import Forbidden, KubeError
from infra.prometheus import PrometheusClient, PrometheusError, Series, Window
from infra.prometheus.exposition import series_of_text
from portal.kernel.clock import epoch_ms

LOOK_BACK = timedelta(minutes=2)
"""Before a window: what its first samples stand for begins at the samples before them."""
QUERY_SECONDS = 10.0
"""A window takes two questions, and a task has 45 seconds in all."""

_EXPORTERS = ("app=nvidia-dcgm-exporter", "app.kubernetes.io/name=dcgm-exporter")
"""Labels of the exporter's pods: GPU operator, and the exporter's own chart."""
_LONGEST = {
    **dict.fromkeys(("UUID", "uuid", "gpu_uuid", "device_uuid", "deviceuuid", "GPU_I_ID", "dra_mig_device_uuid"), 80),
    **dict.fromkeys(("namespace", "exported_namespace", "podnamespace"), 63),
    **dict.fromkeys(("GPU_I_PROFILE", "dra_mig_profile"), 32),
    **dict.fromkeys(("pod", "exported_pod", "podname", "container", "exported_container", "ctrname", "ctridx"), 253),
    **dict.fromkeys(("node", "nodeid", "Hostname", "hostname"), 253),
    "pod_uid": 64,
}
"""Characters of a label's value."""
_PORT = 9400
_SCRAPE_BYTES = 8 * 1024 * 1024
_SCRAPE_SECONDS = 5.0
_ALL_SECONDS = 25.0
_AT_ONCE = 16


@dataclass(frozen=True)
class Batch:
    """What a source said of a window, with the samples shortly before it.

    ``partial``: a part of the source did not answer. ``failed``: sentences on exporters that did not.
    """

    window: Window
    cards: Sequence[Series] = ()
    hami: Sequence[Series] = ()
    partial: bool = False
    warnings: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    counters: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def prometheus_batch(client: PrometheusClient, window: Window, look_back: timedelta) -> Batch:
    """The raw samples of a window.

    Raises:
        PrometheusError: no usable answer.
    """
    cards = client.raw(client.selector(INGESTED), window.start - look_back, window.end, timeout=QUERY_SECONDS)
    partial, warnings = client.partial, client.warnings
    hami = client.raw(client.selector(USE_METRICS), window.start - look_back, window.end, timeout=QUERY_SECONDS)
    return Batch(window, fitting(cards), fitting(hami), partial or client.partial, (*warnings, *client.warnings))


def has_samples(client: PrometheusClient, window: Window) -> bool:
    """Whether any sample of a card was taken within the window.

    Raises:
        PrometheusError: no usable answer.
    """
    batch = prometheus_batch(client, window, timedelta())
    return any(series.samples for series in (*batch.cards, *batch.hami))


def fitting(rows: Sequence[Series]) -> list[Series]:
    """The rows whose labels can be what they say they are. Whatever is scraped may make up others, and one name that
    is too long would keep the whole window from being stored."""
    return [row for row in rows if all(len(row.labels.get(name, "")) <= most for name, most in _LONGEST.items())]


def exporter_batch(
    kube: KubeClient,
    since: datetime,
    now: datetime,
    counters: Mapping[str, Sequence[int]],
    teams: Collection[str] = (),
) -> Batch | None:
    """The exporters' text as it is now, one sample for the time since the scrape before. ``None``: there are none.

    The sample is dated a millisecond before ``now``, so that it is the last of the window ``[since, now)``.

    Args:
        since: when they were asked last.
        counters: energy as of then: card → (ms, mJ).
        teams: namespaces that are a team's. An exporter there is asked only where there is no other: what it says of
            cards and their faults would be the team's own word.

    Raises:
        KubeError: the pods can't be listed, or no exporter may be asked.
    """
    pods = _exporter_pods(kube)
    pods = [pod for pod in pods if pod[0] not in teams] or pods
    if not pods:
        return None
    until = time.monotonic() + _ALL_SECONDS
    with ThreadPoolExecutor(_AT_ONCE) as several:
        answers = list(several.map(lambda pod: _scraped(kube, pod, epoch_ms(now) - 1, until), pods))
    refused = [answer for answer in answers if isinstance(answer, Forbidden)]
    if refused and len(refused) == len(answers):
        raise refused[0]
    rows = [series for answer in answers if isinstance(answer, list) for series in answer]
    failed = tuple(str(answer) for answer in answers if not isinstance(answer, list))
    last = {
        uuid: (epoch_ms(now) - 1, int(series.samples[0][1]))
        for series in rows
        if series.name == ENERGY and series.samples[0][1] is not None and (uuid := _card(series))
    }
    cards = [_since(series, epoch_ms(since) - 1, counters) for series in fitting(rows) if series.name in INGESTED]
    return Batch(Window(since, now), cards, (), False, (), failed, last)


def _exporter_pods(kube: KubeClient) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for labels in _EXPORTERS:
        for pod in kube.list_all("v1", "Pod", label_selector=labels).items:
            if (pod.get("status") or {}).get("phase") == "Running":
                found[pod["metadata"]["namespace"], pod["metadata"]["name"]] = None
    return list(found)


def _scraped(kube: KubeClient, pod: tuple[str, str], now_ms: int, until: float) -> list[Series] | Exception:
    namespace, name = pod
    if time.monotonic() > until:
        return PrometheusError(f"There was no time left to ask exporter {namespace}/{name}; others were slow.", True)
    try:
        answer = kube.pod_proxy(
            namespace, name, _PORT, "/metrics", max_bytes=_SCRAPE_BYTES, read_timeout=_SCRAPE_SECONDS
        )
        if answer.status != 200 or not answer.complete:
            return PrometheusError(f"Exporter {namespace}/{name} answered with HTTP {answer.status}.", True)
        return series_of_text(answer.body.decode("utf-8", "replace"), now_ms)
    except (KubeError, PrometheusError) as error:
        return error


def _card(series: Series) -> str:
    return series.labels.get("UUID") or series.labels.get("uuid") or ""


def _since(series: Series, since_ms: int, counters: Mapping[str, Sequence[int]]) -> Series:
    """The series with the instant of the scrape before as a sample without a value (energy: with the value then)."""
    before: Any = None
    at = since_ms
    if series.name == ENERGY and (known := counters.get(_card(series))):
        at, before = int(known[0]), Decimal(int(known[1]))
    return Series(series.labels, ((at, before), *series.samples))
