"""The clock of quota requests: time boxes begin and end, undecided ones expire."""

from __future__ import annotations

from portal.kernel import ticks
from tenants.services.quota_requests import quota_requests_tick


@ticks.every(60, "tenants.quota_requests")
def quota_requests() -> int:
    """Do what is due; how many requests changed."""
    return quota_requests_tick()
