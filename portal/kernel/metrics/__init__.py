"""``/metrics``, in Prometheus' text format: what this process counted, and gauges asked of the database at the scrape.

Each app registers a collector of its own (:func:`register`). What every web process tells of the database is the same,
so alert rules take the maximum over the processes. Names of tenants are left out unless ``AIF_METRICS_TENANTS`` is set.
"""

from portal.kernel.metrics.collect import gauge, register, scrape
from portal.kernel.metrics.instruments import HTTP_SECONDS, RECONCILE_SECONDS

__all__ = ["HTTP_SECONDS", "RECONCILE_SECONDS", "gauge", "register", "scrape"]
