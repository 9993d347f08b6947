"""The meter and the reader of OpenCost as reconcilers, and the ticks that remind them that an hour has passed."""

from billing.reconcilers import fault_credits, metering, opencost

__all__ = ["fault_credits", "metering", "opencost"]
