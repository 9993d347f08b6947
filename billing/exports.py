"""Bills as CSV: made in memory as a whole (rows of a scope must not be streamed after it has closed)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.http import HttpResponse

from billing.models import Bill, BillingPeriod, BillLine
from billing.selectors.bills import bill_lines
from billing.selectors.lines import ESTIMATED, LineAllocation, bill_line_parts, estimated_hours, line_hours
from billing.selectors.past import PastMonth
from billing.selectors.statements import OpenLine, OpenPeriod, TenantStatement
from billing.selectors.usage import UsageRow
from portal.kernel.clock import HOUR, format_rfc3339

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

    def response(self) -> HttpResponse:
        """The file as a download."""
        response = HttpResponse(self.body, content_type=self.content_type)
        response["Content-Disposition"] = f'attachment; filename="{self.name}"'
        return response


def bill_csv(bill: Bill) -> Export:
    """The bill's lines; instants in UTC, numbers as plain decimals with a point. Within a scope of its tenant."""
    return _file(f"bill-{bill.number}", COLUMNS, (_bill_line(bill, line) for line in bill_lines(bill)))


def period_csv(period: BillingPeriod) -> Export:
    """The lines of all bills of a closed period, by tenant. Within a system scope."""
    lines = (
        BillLine.objects.filter(bill__period=period)
        .select_related("bill__tenant", "bill__period", "gpu_type")
        .order_by("bill__tenant__slug", "position")
    )
    return _file(f"bills-{period.issuer.slug}-{period}", COLUMNS, (_bill_line(line.bill, line) for line in lines))


def statements_csv(period: BillingPeriod, statements: Iterable[TenantStatement]) -> Export:
    """What final hours of an open period cost so far, by tenant."""
    columns = ("tenant", "period", "currency", "total", "lines", "lines_unpriced")
    rows = (
        (text(one.tenant.slug), str(period), period.issuer.currency, number(one.total), one.lines, one.unpriced)
        for one in statements
    )
    return _file(f"open-{period.issuer.slug}-{period}", columns, rows)


def running_csv(tenant: str, one: OpenPeriod, lines: Iterable[OpenLine]) -> Export:
    """An open period's lines. ``state``: see :class:`billing.selectors.statements.OpenLine`."""
    columns = (
        "tenant", "period", "currency", "state", "kind", "deployment_or_namespace", "cost_code", "what", "charge_start",
        "charge_end", "quantity", "unit", "unit_price", "amount",
    )  # fmt: skip
    rows = (
        (
            text(tenant), str(one.period), one.preview.issuer.currency, row.state, row.line.kind, text(row.label),
            text(row.line.subject.cost_code), text(str(row.line.key or "")), format_rfc3339(row.line.segment.start),
            format_rfc3339(row.until), number(row.line.quantity), row.line.unit,
            "" if row.line.unit_price is None else number(row.line.unit_price),
            "" if row.amount is None else number(row.amount),
        )
        for row in lines
    )  # fmt: skip
    return _file(f"open-{tenant}-{one.period}", columns, rows)


def usage_csv(tenant: str, currency: str, rows: Iterable[UsageRow]) -> Export:
    """A table of usage; what it is not grouped by is empty."""
    columns = (
        "day", "deployment", "deployment_or_namespace", "gpu_type", "sharing", "profile", "gpu_hours",
        "instance_hours", "amount", "currency", "partly_unpriced", "retroactive",
        "inner_namespace",
    )  # fmt: skip
    cells = (
        (
            row.key.day.isoformat() if row.key.day else "", row.key.deployment, text(row.key.label),
            text(row.key.gpu_type), row.key.sharing, text(row.key.profile), number(row.gpu_hours),
            number(row.instance_hours), "" if row.amount is None else number(row.amount), currency, _yes(row.unpriced),
            _yes(row.key.retroactive), text(row.key.inner_namespace),
        )
        for row in rows
    )  # fmt: skip
    return _file(f"usage-{tenant}", columns, cells)


def past_csv(statements: Iterable[tuple[str, PastMonth]], name: str) -> Export:
    """Months that were rebuilt from history: no bill, and owed by nobody. ``error``: by how much the quantity may be
    too small, in its unit; it is in no amount."""
    columns = (
        "tenant", "month", "currency", "source", "kind", "deployment_or_namespace", "cost_code", "what", "charge_start",
        "charge_end", "quantity", "error", "unit", "unit_price", "amount",
    )  # fmt: skip
    rows = (
        (
            text(tenant), month.month.label, month.total.currency, "retroactive", row.line.kind, text(row.label),
            text(row.line.subject.cost_code), text(str(row.line.key or "")), format_rfc3339(row.line.segment.start),
            format_rfc3339(row.line.segment.end), number(row.line.quantity), number(row.error), row.line.unit,
            "" if row.line.unit_price is None else number(row.line.unit_price),
            "" if row.amount is None else number(row.amount),
        )
        for tenant, month in statements
        for row in month.lines
    )  # fmt: skip
    return _file(name, columns, rows)


def line_csv(line: BillLine, parts: Iterable[LineAllocation]) -> Export:
    """The allocations behind a line. Σ of ``quantity`` is the line's quantity."""
    columns = (
        "bill", "line", "cluster", "namespace", "pod", "pod_uid", "resource", "ordinal", "node", "card", "share",
        "started", "ended", "seconds_in_line", "quantity", "unit", "unit_price", "end_inferred", "compute_uncapped",
        "charged_by_request", "ran_before_connected", "source", "revisions", "workload", "workload_known", "queue",
    )  # fmt: skip
    return _file(f"line-{line.bill.number}-{line.position}", columns, (_part(line, part) for part in parts))


def line_file(line: BillLine) -> Export:
    """What a line is made of: allocations, or (storage and network) the hours of OpenCost's costs. In its scope."""
    return line_hours_csv(line) if line.kind in ESTIMATED else line_csv(line, bill_line_parts(line).rows)


def line_hours_csv(line: BillLine) -> Export:
    """The hours of a line that OpenCost priced. Σ of ``amount_exact`` is the line's; of an estimate, Σ of ``quantity``
    is the line's quantity. Within a scope of its tenant."""
    columns = (
        "bill", "line", "cluster", "namespace", "start", "end", "quantity", "unit", "unit_cost", "unit_price",
        "amount_exact", "basis", "revision", "unit_cost_id",
    )  # fmt: skip
    head = (text(line.bill.number), line.position)
    rows: list[tuple[object, ...]] = [
        (
            *head, one.cluster.slug, text(line.namespace), format_rfc3339(one.charge_from),
            format_rfc3339(one.charge_to), number(one.quantity), line.unit, number(one.unit_cost.price),
            number(one.unit_price), number(one.amount_exact), one.unit_cost.basis, one.unit_cost.answer.revision,
            str(one.unit_cost_id),
        )
        for one in line_hours(line)
    ]  # fmt: skip
    rows += [
        (
            *head, est.cluster, text(est.namespace), format_rfc3339(est.hour), format_rfc3339(est.hour + HOUR),
            number(est.cost), line.unit, "", number(line.unit_price), number(est.cost * line.unit_price), "estimated",
            est.revisions - 1, "",
        )
        for est in estimated_hours(line)
    ]  # fmt: skip
    return _file(f"hours-{line.bill.number}-{line.position}", columns, rows)


def _part(line: BillLine, part: LineAllocation) -> tuple[object, ...]:
    one = part.allocation
    measured = (number(part.seconds), number(part.shown_quantity), line.unit, number(line.unit_price))
    if one is None:
        empty = ("",) * 6
        return (text(line.bill.number), line.position, *empty, text(part.node_name), "", "", "", "", *measured,
                "", "", "", "", "", part.revisions, "", "", "")  # fmt: skip
    return (
        text(line.bill.number), line.position, one.cluster.slug, text(one.namespace), text(one.pod_name), one.pod_uid,
        one.resource, one.ordinal, text(one.node.name if one.node else ""), one.device_uuid,
        number(Decimal(one.share).scaleb(-6)), format_rfc3339(one.started_at),
        format_rfc3339(one.ended_at) if one.ended_at else "", *measured, _yes(one.inferred), _yes(one.uncapped),
        _yes(one.by_request), _yes(one.first_day), one.source, part.revisions,
        text(part.workload), part.workload_known, text(part.queue),
    )  # fmt: skip


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _bill_line(bill: Bill, line: BillLine) -> tuple[object, ...]:
    return (
        text(bill.number), text(bill.tenant.slug), format_rfc3339(bill.period.starts_at),
        format_rfc3339(bill.period.ends_at), bill.currency, line.position, line.kind,
        _yes(line.correction), text(line.deployment_name), text(line.namespace),
        text(line.cost_code), text(line.gpu_type.slug if line.gpu_type else ""), line.sharing,
        text(line.profile), format_rfc3339(line.charge_from), format_rfc3339(line.charge_to),
        number(line.quantity), line.unit, number(line.unit_price), number(line.amount_exact),
        number(line.amount),
    )  # fmt: skip


def _file(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Export:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return Export(f"{name}.csv", "text/csv; charset=utf-8", buffer.getvalue().encode())


def text(value: str) -> str:
    """A cell that no spreadsheet takes for a formula: a tenant chooses names and cost codes."""
    return f"'{value}" if value.startswith(_FORMULA) else value


def number(value: Decimal) -> str:
    """A decimal without an exponent and without zeros that say nothing."""
    written = f"{value:f}"
    return written.rstrip("0").rstrip(".") if "." in written else written
