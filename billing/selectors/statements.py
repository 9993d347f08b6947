"""What a tenant owes so far, as printable lines; and how far a period's bills are, for the platform."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db.models import Sum

from billing.drawing import Charges, draw
from billing.locks import last_usage_seq
from billing.models import Bill, BillingPeriod, CreditNote, Issuer
from billing.rating import Line
from billing.selectors.bills import clusters_behind, unmetered_pods
from billing.selectors.charges import charges_of, delimiters_of, issuer_of, tenants_billed_by
from billing.selectors.costs import Preview, bill_preview
from billing.selectors.periods import closes_at, periods_known, unsettled
from billing.selectors.usage import usage_final_until
from portal.kernel.clock import format_rfc3339, utcnow
from portal.kernel.money import exact_sum
from tenants.models import ModelDeployment, Tenant


@dataclass(frozen=True, slots=True)
class OpenPeriod:
    """A period of a tenant that is not closed, as its bill would be now."""

    period: BillingPeriod
    preview: Preview
    is_current: bool


@dataclass(frozen=True, slots=True)
class OpenLine:
    """A line of a preview. ``amount`` is rounded where its hour is final, else exact; None: it has no price.

    ``state``: ``final``, ``late`` (of an earlier, closed period), ``running`` (its hour is not final), ``unpriced``.
    ``until``: the end of what is known of it.
    """

    label: str
    line: Line
    amount: Decimal | None
    state: str
    until: datetime


def open_periods(tenant_id: UUID, *, now: datetime | None = None) -> list[OpenPeriod]:
    """The tenant's open periods that have lines, and the current one; the newest first. Within its scope."""
    now = now or utcnow()
    issuer = issuer_of(tenant_id)
    if issuer is None:
        return []
    found = []
    for period in reversed(unsettled(periods_known(issuer, now=now))):
        preview = bill_preview(tenant_id, now=period.starts_at)
        current = period.starts_at <= now < period.ends_at
        if preview is not None and (current or preview.drawn.lines or preview.drawn.unpriced or preview.running.lines):
            found.append(OpenPeriod(period, preview, current))
    return found


def open_lines(tenant_id: UUID, preview: Preview) -> list[OpenLine]:
    """The lines of a preview: late ones, final ones, those of open hours, and what has no price."""
    names = {
        str(pk): name for pk, name in ModelDeployment.objects.filter(tenant_id=tenant_id).values_list("pk", "name")
    }

    until = usage_final_until(tenant_id)

    def row(line: Line, amount: Decimal | None, state: str) -> OpenLine:
        subject = line.subject
        label = names.get(subject.deployment, subject.deployment) if subject.deployment else subject.namespace
        end = line.segment.end
        if state == "final" and until is not None:
            end = max(line.segment.start, min(end, until))
        return OpenLine(label, line, amount, state, end)

    lines = [
        row(one.line, one.amount, "late" if number < preview.late else "final")
        for number, one in enumerate(preview.drawn.lines)
    ]
    lines += [row(line, line.amount, "running") for line in preview.running.lines if line.is_priced]
    lines += [row(line, None, "unpriced") for line in preview.unpriced]
    return lines


@dataclass(frozen=True, slots=True)
class Share:
    """A deployment's (or namespace's) part of a preview; the amount is exact."""

    label: str
    amount: Decimal
    unpriced: bool


def shares_of(lines: list[OpenLine]) -> list[Share]:
    """What each deployment, or namespace, costs; the largest first."""
    together: dict[str, list[OpenLine]] = defaultdict(list)
    for line in lines:
        together[line.label].append(line)
    rows = [
        Share(
            label,
            exact_sum([one.amount for one in part if one.amount is not None]),
            any(one.amount is None for one in part),
        )
        for label, part in together.items()
    ]
    return sorted(rows, key=lambda row: (-row.amount, row.label))


def credited(bill: Bill) -> Decimal:
    """What was given back on a bill."""
    total: Decimal | None = CreditNote.objects.filter(bill=bill).aggregate(sum=Sum("amount"))["sum"]
    return total or Decimal(0)


@dataclass(frozen=True, slots=True)
class TenantStatement:
    """A tenant in a period: its bill, or what final hours cost so far. ``total`` is rounded; ``credit`` was given
    back; ``reasons``: why lines have no price.
    """

    tenant: Tenant
    bill: Bill | None
    total: Decimal
    credit: Decimal
    lines: int
    unpriced: int
    reasons: tuple[str, ...] = ()


def period_statements(period: BillingPeriod) -> list[TenantStatement]:
    """Every tenant of the issuer that has something in the period, by slug. Within a system scope."""
    if period.state == BillingPeriod.State.CLOSED:
        return _closed(period)
    bounds = delimiters_of(period, last_usage_seq())
    found = charges_of(period.issuer, bounds, tenant_ids=tenants_billed_by(period.issuer))
    tenants = {row.pk: row for row in Tenant.objects.filter(pk__in=list(found))}
    rows = [_running(tenants[pk], charges, period.issuer) for pk, charges in found.items() if charges.lines]
    return sorted(rows, key=lambda row: row.tenant.slug)


def _closed(period: BillingPeriod) -> list[TenantStatement]:
    bills = (
        Bill.objects.filter(period=period)
        .select_related("tenant", "period")
        .annotate(credit=Sum("credit_notes__amount"))
        .order_by("tenant__slug")
    )
    return [
        TenantStatement(bill.tenant, bill, bill.total, bill.credit or Decimal(0), 0, 0)
        for bill in bills
    ]  # fmt: skip


def _running(tenant: Tenant, charges: Charges, issuer: Issuer) -> TenantStatement:
    drawn = draw(charges, issuer.currency)
    reasons = tuple(sorted({line.reason for line in drawn.unpriced}))
    return TenantStatement(tenant, None, drawn.total, Decimal(0), len(drawn.lines), len(drawn.unpriced), reasons)


@dataclass(frozen=True, slots=True)
class Blocker:
    """What keeps a period from being closed: a sentence, and whether finance may accept it."""

    code: str
    sentence: str
    acceptable: bool = False


def period_blockers(
    period: BillingPeriod, *, unpriced: int, reasons: Iterable[str] = (), now: datetime | None = None
) -> list[Blocker]:
    """All that the close would refuse, in its order; empty: it can be closed.

    Args:
        unpriced: how many lines of the period have no price.
        reasons: why (:class:`TenantStatement`).
    """
    now = now or utcnow()
    issuer = period.issuer
    found = []
    at = closes_at(period, issuer)
    if now < at:
        grace = f" (the month ends at {format_rfc3339(period.ends_at)}, and {issuer.grace_hours} h are waited)"
        found.append(Blocker("TooEarly", f"It can be closed from {format_rfc3339(at)}{grace}."))
    found += [
        Blocker("EarlierOpen", f"Period {earlier} is still open. Close it first.")
        for earlier in unsettled(periods_known(issuer, now=now))
        if earlier.starts_at < period.starts_at
    ]
    later = BillingPeriod.objects.filter(
        issuer=issuer, starts_at__gt=period.starts_at, state=BillingPeriod.State.CLOSED
    )
    if later.exists():
        found.append(Blocker("LaterClosed", "A later period is closed: what is found now comes on the next bill."))
    behind = clusters_behind(period) if now >= period.ends_at else []
    if behind:
        sentence = (
            f"Usage is not final until the end of the month on {', '.join(behind)}. Wait for it, or accept that what "
            f"comes later is on the next bill."
        )
        found.append(Blocker("ClustersBehind", sentence, acceptable=True))
    if unpriced:
        have = "line has" if unpriced == 1 else "lines have"
        silent = next((reason for reason in reasons if "OpenCost" in reason), "")
        what = f"{silent}: wait for its answer, or set a fixed rate." if silent else "Set the rates that are missing."
        found.append(Blocker("Unpriced", f"{unpriced} {have} no price. {what}"))
    pods = unmetered_pods(before=period.ends_at)
    if pods:
        first = pods[0]
        more = f", and {len(pods) - 1} more" if len(pods) > 1 else ""
        found.append(
            Blocker(
                "Unmetered",
                f"Pod {first.namespace}/{first.pod} on {first.cluster} could not be metered{more}: {first.reason}",
            )
        )
    return found
