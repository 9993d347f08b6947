"""What the work queue runs for the fleet; importing registers it."""

from infra.reconcilers import claim_rules, cluster, isolation, rebuild, telemetry, workloads

__all__ = ["claim_rules", "cluster", "isolation", "rebuild", "telemetry", "workloads"]
