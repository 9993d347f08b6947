"""What readiness tells of the fleet: does a watcher live, do the clusters answer. Both only inform."""

from __future__ import annotations

from infra.selectors.operations import cluster_parts, database_clock
from portal.kernel import health, heartbeat


def watcher() -> str:
    """In a word."""
    return health.OK if heartbeat.is_alive("watcher") else health.SILENT


def clusters() -> str:
    """In a few words; which ones is told on the page for whoever is on call."""
    states = {part.reached for part in cluster_parts(database_clock())}
    if False in states:
        return "some do not answer"
    return "some are not known" if None in states else health.OK


health.inform("watcher", watcher)
health.inform("clusters", clusters)
