"""From GPU-seconds to a bill: allocations, usage, capacity, rates, periods, bills."""

from billing.models.bills import Bill, BillingPeriod, BillLine, CreditNote
from billing.models.metering import Bucket, CapacityHour, DeviceAllocation, MeterProgress, UsageRecord
from billing.models.rates import BillingAccount, Issuer, Rate, RateCard

__all__ = [
    "Bill",
    "BillLine",
    "BillingAccount",
    "BillingPeriod",
    "Bucket",
    "CapacityHour",
    "CreditNote",
    "DeviceAllocation",
    "Issuer",
    "MeterProgress",
    "Rate",
    "RateCard",
    "UsageRecord",
]
