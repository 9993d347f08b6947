"""Which product answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PROMETHEUS, THANOS, MIMIR, VICTORIA = "prometheus", "thanos", "mimir", "victoriametrics"


@dataclass(frozen=True)
class Product:
    """``name`` is ``prometheus``, ``thanos``, ``mimir`` or ``victoriametrics``; ``version`` may be empty."""

    name: str
    version: str


def product_of(build: Mapping[str, Any], headers: Mapping[str, str], *, has_stores: bool) -> Product:
    """From ``/api/v1/status/buildinfo`` and what is particular to each product.

    Mimir names itself in ``application``. VictoriaMetrics answers with a Prometheus version that Grafana likes and
    gives itself away by its header ``X-Server-Hostname`` (VictoriaMetrics, lib/httpserver). A Thanos querier alone
    has ``/api/v1/stores``.
    """
    version = str(build.get("version") or "")[:60]
    if "mimir" in str(build.get("application") or "").lower():
        return Product(MIMIR, version)
    if "x-server-hostname" in headers:
        return Product(VICTORIA, "")
    return Product(THANOS if has_stores else PROMETHEUS, version)
