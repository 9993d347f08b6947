"""From GPU-seconds to a bill: allocations, usage, capacity, rates, periods, bills."""

from billing.models.bills import Bill, BillingPeriod, BillLine, CreditNote
from billing.models.credits import FaultCredit
from billing.models.hours import BlockedHour, IdleHour
from billing.models.metering import Bucket, CapacityHour, DeviceAllocation, MeterProgress, UsageRecord
from billing.models.opencost import (
    BillLineHour,
    EstimatedCost,
    OpenCostAnswer,
    OpenCostRow,
    OpenCostSource,
    UnitCost,
)
from billing.models.rates import BillingAccount, Issuer, Rate, RateCard

__all__ = [
    "Bill",
    "BillLine",
    "BillLineHour",
    "BillingAccount",
    "BillingPeriod",
    "BlockedHour",
    "Bucket",
    "CapacityHour",
    "CreditNote",
    "DeviceAllocation",
    "EstimatedCost",
    "FaultCredit",
    "IdleHour",
    "Issuer",
    "MeterProgress",
    "OpenCostAnswer",
    "OpenCostRow",
    "OpenCostSource",
    "Rate",
    "RateCard",
    "UnitCost",
    "UsageRecord",
]
