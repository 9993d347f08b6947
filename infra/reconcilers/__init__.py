"""What the work queue runs for the fleet; importing registers it."""

from infra.reconcilers import cluster

__all__ = ["cluster"]
