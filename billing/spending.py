"""What a tenant has spent this month, as the cost book that pages of lower apps ask."""

from __future__ import annotations

from uuid import UUID

from billing.selectors.costs import bill_preview
from tenants.ports import MonthCost, register_cost_book


class OpenMonth:
    """The open period's bill as it would be now (:class:`tenants.ports.CostBook`)."""

    def month_to_date(self, tenant_id: UUID) -> MonthCost | None:
        """None where no issuer was set up."""
        preview = bill_preview(tenant_id)
        if preview is None:
            return None
        return MonthCost(
            amount=preview.total.amount,
            final=preview.recorded.amount,
            currency=preview.issuer.currency,
            start=preview.period.start,
            end=preview.period.end,
            unpriced=bool(preview.unpriced),
        )


def register() -> None:
    """Have lower apps ask the open bills."""
    register_cost_book(OpenMonth())
