"""The platform's bills: months with how far they are, what blocks a close, and the close."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from billing import exports
from billing.models import BillingPeriod, Issuer
from billing.selectors.bills import period_states
from billing.selectors.periods import closes_at, issuer_named, period_named
from billing.selectors.statements import period_blockers, period_statements
from billing.services.close import period_close
from billing.services.periods import period_ensure
from billing.web.forms import CloseForm
from billing.web.paging import page_of
from billing.web.rates import acting, default_issuer
from portal.kernel.actors import PLATFORM_FINANCE
from portal.kernel.clock import utcnow
from portal.kernel.problems import Problem
from portal.kernel.scoping import system_scope
from portal.kernel.web import platform_page, system_render
from tenants.permissions import Perm, may

REASON = "platform pages: bills"


@require_safe
@platform_page()
def periods(request: HttpRequest) -> HttpResponse:
    """All months of an issuer (``?issuer=``), the latest first."""
    slug = request.GET.get("issuer", "")
    issuer = issuer_named(slug) if slug else default_issuer()

    def context() -> dict[str, Any]:
        if issuer is None:
            return {"issuer": None}
        now = utcnow()
        rows = [
            (state, phase_of(state.period), closes_at(state.period, issuer), now >= state.period.ends_at)
            for state in period_states(issuer)
        ]
        return {"issuer": issuer, "issuers": Issuer.objects.order_by("slug"), "page": page_of(request, rows)}

    return system_render(request, REASON, "billing/periods.html", context)


def phase_of(period: BillingPeriod) -> str:
    """``running`` while the month lasts, then ``open`` until it is closed."""
    if period.state == BillingPeriod.State.OPEN and utcnow() < period.ends_at:
        return "running"
    return period.state


@require_safe
@platform_page()
def period(request: HttpRequest, issuer: str, period: str) -> HttpResponse:
    """One month: every tenant's bill or running total, and what keeps it from being closed."""
    row = period_named(issuer_named(issuer), period)
    return _page(request, row, CloseForm(expected=str(row)))


def _page(request: HttpRequest, row: BillingPeriod, form: CloseForm, status: int = 200) -> HttpResponse:
    def context() -> dict[str, Any]:
        statements = period_statements(row)
        closed = row.state == BillingPeriod.State.CLOSED
        reasons = sorted({reason for one in statements for reason in one.reasons})
        unpriced = sum(one.unpriced for one in statements)
        blockers = [] if closed else period_blockers(row, unpriced=unpriced, reasons=reasons)
        return {
            "issuer": row.issuer,
            "period": row,
            "phase": phase_of(row),
            "closes_at": closes_at(row, row.issuer),
            "page": page_of(request, statements),
            "total": sum(one.total for one in statements),
            "credit": sum(one.credit for one in statements),
            "blockers": blockers,
            "only_acceptable": all(one.acceptable for one in blockers),
            "acceptable": any(one.acceptable for one in blockers),
            "form": form,
            "may_close": may(acting(request), Perm.BILL_CLOSE),
        }

    return system_render(request, REASON, "billing/period.html", context, status)


@require_POST
@platform_page(PLATFORM_FINANCE)
def close(request: HttpRequest, issuer: str, period: str) -> HttpResponse:
    """Close the month, after its name was typed. Sending it twice makes one bill a tenant."""
    row = period_named(issuer_named(issuer), period)
    form = CloseForm(request.POST, expected=str(row))
    if form.is_valid():
        try:
            stored = period_ensure(row.issuer, row.starts_at)
            done = period_close(period=stored, actor=acting(request), accept_behind=form.cleaned_data["accept_behind"])
        except Problem as problem:
            form.add_problem(problem)
            return _page(request, period_named(row.issuer, period), form, problem.status)
        bills = "1 bill was" if done.made == 1 else f"{done.made} bills were"
        made = f"{bills} made." if done.made else "Nothing was changed."
        messages.success(request, f"{row} is closed. {made}")
        return HttpResponseRedirect(reverse("billing:period", args=[issuer, period]), status=303)
    return _page(request, row, form, 422)


@require_safe
@platform_page()
def period_csv(request: HttpRequest, issuer: str, period: str) -> HttpResponse:
    """A closed month's lines of all tenants; of an open one, what final hours cost so far, by tenant."""
    row = period_named(issuer_named(issuer), period)
    with system_scope(REASON):
        if row.state == BillingPeriod.State.CLOSED:
            export = exports.period_csv(row)
        else:
            export = exports.statements_csv(row, period_statements(row))
    return export.response()
