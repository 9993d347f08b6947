"""Credit notes: money given back on a closed bill."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from billing.models import Bill, BillLine, CreditNote
from billing.services.credits import credit_note_create
from billing.web.forms import CreditForm
from billing.web.rates import acting
from portal.kernel.actors import PLATFORM_FINANCE
from portal.kernel.problems import Invalid, NotFound, Problem
from portal.kernel.scoping import system_scope
from portal.kernel.submission import new_token, submit_once, token_of
from portal.kernel.web import platform_page, system_render

REASON = "platform pages: credit notes"


@require_http_methods(["GET", "HEAD", "POST"])
@platform_page(PLATFORM_FINANCE)
def credit(request: HttpRequest, bill_id: UUID) -> HttpResponse:
    """The bill, what was given back on it, and a form for more."""
    bill = _bill(bill_id)
    if request.method != "POST":
        initial = {"line": request.GET.get("line", "")}
        return _page(request, bill, CreditForm(initial=initial), new_token())
    form = CreditForm(request.POST)
    if form.is_valid():
        data = form.cleaned_data
        try:
            done = submit_once(request, lambda: _give(request, bill, data))
        except Problem as problem:
            form.add_problem(problem)
            return _page(request, bill, form, token_of(request), problem.status)
        messages.success(request, "It was sent before; one note was made." if done.again else "The note is made.")
        return HttpResponseRedirect(done.location, status=303)
    return _page(request, bill, form, token_of(request), 422)


def _give(request: HttpRequest, bill: Bill, data: dict[str, Any]) -> str:
    line = None
    if data["line"]:
        with system_scope(REASON):
            line = BillLine.objects.filter(bill=bill, position=data["line"]).first()
        if line is None:
            raise Invalid.field("/line", f"Bill {bill.number} has no line {data['line']}.")
    credit_note_create(bill=bill, line=line, amount=data["amount"], reason=data["reason"], actor=acting(request))
    return reverse("billing:credit", args=[bill.pk])


def _bill(bill_id: UUID) -> Bill:
    with system_scope(REASON):
        row = Bill.objects.select_related("tenant", "period__issuer").filter(pk=bill_id).first()
    if row is None:
        raise NotFound("There is no such bill.")
    return row


def _page(request: HttpRequest, bill: Bill, form: CreditForm, token: str, status: int = 200) -> HttpResponse:
    def context() -> dict[str, Any]:
        notes = list(CreditNote.objects.filter(bill=bill).select_related("line").order_by("created_at"))
        return {
            "bill": bill,
            "notes": notes,
            "left": bill.total - sum(note.amount for note in notes),
            "form": form,
            "token": token,
        }

    return system_render(request, REASON, "billing/credit.html", context, status)
