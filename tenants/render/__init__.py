"""From a placed replica to the objects of its cluster: pure, so that equal inputs give equal bytes."""

from tenants.render.facts import ReplicaFacts, engine_url, service_name
from tenants.render.replica import render_replica

__all__ = ["ReplicaFacts", "engine_url", "render_replica", "service_name"]
