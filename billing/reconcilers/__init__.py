"""The meter as a reconciler, and the tick that reminds it that an hour has passed."""

from billing.reconcilers import metering

__all__ = ["metering"]
