"""Credits for faults follow the evidence: looked at every few minutes."""

from __future__ import annotations

from billing.services.fault_credits import fault_credits_update
from portal.kernel import ticks


@ticks.every(300, "billing.fault_credits")
def update() -> None:
    """Propose, settle, and approve what is below the limit."""
    fault_credits_update()
