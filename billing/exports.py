"""A bill as CSV: made in memory as a whole (rows of a scope must not be streamed after it has closed)."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from decimal import Decimal

from billing.models import Bill
from billing.selectors.bills import bill_lines
from portal.kernel.clock import format_rfc3339

COLUMNS = (
    "bill", "tenant", "period_start", "period_end", "currency", "position", "kind", "correction", "deployment",
    "namespace", "cost_code", "gpu_type", "sharing", "profile", "charge_start", "charge_end", "quantity", "unit",
    "unit_price", "amount_exact", "amount",
)  # fmt: skip

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class Export:
    """A finished file."""

    name: str
    content_type: str
    body: bytes


def bill_csv(bill: Bill) -> Export:
    """The bill's lines; instants in UTC, numbers as plain decimals with a point. Within a scope of its tenant."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for line in bill_lines(bill):
        writer.writerow(
            [
                text(bill.number), text(bill.tenant.slug), format_rfc3339(bill.period.starts_at),
                format_rfc3339(bill.period.ends_at), bill.currency, line.position, line.kind,
                "yes" if line.correction else "no", text(line.deployment_name), text(line.namespace),
                text(line.cost_code), text(line.gpu_type.slug if line.gpu_type else ""), line.sharing,
                text(line.profile), format_rfc3339(line.charge_from), format_rfc3339(line.charge_to),
                number(line.quantity), line.unit, number(line.unit_price), number(line.amount_exact),
                number(line.amount),
            ]
        )  # fmt: skip
    return Export(f"bill-{bill.number}.csv", "text/csv; charset=utf-8", buffer.getvalue().encode())


def text(value: str) -> str:
    """A cell that no spreadsheet takes for a formula: a tenant chooses names and cost codes."""
    return f"'{value}" if value.startswith(_FORMULA) else value


def number(value: Decimal) -> str:
    """A decimal without an exponent and without zeros that say nothing."""
    written = f"{value:f}"
    return written.rstrip("0").rstrip(".") if "." in written else written
