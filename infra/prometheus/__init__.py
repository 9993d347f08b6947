"""The HTTP API of Prometheus, as Thanos, Mimir and VictoriaMetrics speak it too."""

from infra.prometheus.client import PrometheusClient
from infra.prometheus.errors import PrometheusError
from infra.prometheus.product import Product
from infra.prometheus.selector import selector
from infra.prometheus.types import Series
from infra.prometheus.windows import Window, windows

__all__ = ["Product", "PrometheusClient", "PrometheusError", "Series", "Window", "selector", "windows"]
