"""The rate card: what has no price first, then the prices, and a new one from a date on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from billing.models import Issuer, Rate, RateCard
from billing.selectors.periods import issuer_named
from billing.selectors.ratecard import rate_state, rates_of, unpriced_keys
from billing.services.rates import closed_until, rate_end, rate_set
from billing.services.setup import issuer_ensure
from billing.web.forms import IssuerForm, RateEndForm, RateForm, instant
from billing.web.paging import page_of
from portal.kernel.actors import PLATFORM_FINANCE, Actor
from portal.kernel.clock import utcnow, zone
from portal.kernel.problems import Conflict, NotFound, Problem
from portal.kernel.web import actor_of, platform_page, system_render
from tenants.permissions import Perm, may, require

REASON = "platform pages: rates"
_FROM_LINK = ("resource", "gpu_type", "sharing", "profile")


def acting(request: HttpRequest) -> Actor:
    """Who is signed in."""
    actor = actor_of(request)
    assert actor is not None  # platform_page has seen to it
    return actor


def default_issuer() -> Issuer | None:
    """The default issuer, or the only one that there is."""
    return Issuer.objects.order_by("-is_default", "slug").first()


def to_rates(issuer: Issuer) -> HttpResponse:
    """Back to the issuer's card."""
    return HttpResponseRedirect(f"{reverse('billing:rates')}?issuer={issuer.slug}", status=303)


@require_http_methods(["GET", "HEAD", "POST"])
@platform_page()
def rates(request: HttpRequest) -> HttpResponse:
    """The card of an issuer (``?issuer=``); POST sets a price."""
    slug = request.GET.get("issuer", "")
    issuer = issuer_named(slug) if slug else default_issuer()
    if issuer is None:
        return system_render(request, REASON, "billing/no_issuer.html", lambda: _nobody(request, IssuerForm()))
    if request.method != "POST":
        return _page(request, issuer)
    require(acting(request), Perm.RATE_MANAGE)
    form = RateForm(request.POST, issuer=issuer)
    if form.is_valid():
        try:
            card = RateCard.objects.get(issuer=issuer)
            rate = rate_set(card=card, **form.arguments(), actor=acting(request))
        except Problem as problem:
            form.add_problem(problem, lambda pointer: _FIELDS.get(pointer, pointer.strip("/")))
        else:
            messages.success(request, f"The price is in the card: from {rate.valid_from:%Y-%m-%d %H:%M} UTC.")
            return to_rates(issuer)
    return _page(request, issuer, form, status=422)


_FIELDS = {"/valid_from": "date"}


def _nobody(request: HttpRequest, form: IssuerForm) -> dict[str, Any]:
    return {"form": form, "may_change": may(acting(request), Perm.RATE_MANAGE)}


def _page(
    request: HttpRequest, issuer: Issuer, form: RateForm | None = None, *, refusal: str = "", status: int = 200
) -> HttpResponse:
    def context() -> dict[str, Any]:
        now = utcnow()
        rows = [(rate, rate_state(rate, now)) for rate in rates_of(issuer)]
        current = [pair for pair in rows if pair[1] != "past"]
        past = [pair for pair in rows if pair[1] == "past"]
        local = now.astimezone(zone(issuer.time_zone))
        start = {name: request.GET[name] for name in _FROM_LINK if name in request.GET}
        initial = {"date": local.date() + timedelta(days=1), "resource": "gpu", "sharing": "whole", **start}
        return {
            "issuer": issuer,
            "issuers": Issuer.objects.order_by("slug"),
            "unpriced": unpriced_keys(issuer, now=now),
            "current": current,
            "page": page_of(request, past),
            "form": form or RateForm(issuer=issuer, initial=initial),
            "closed_until": closed_until(issuer),
            "may_change": may(acting(request), Perm.RATE_MANAGE),
            "refusal": refusal,
            "end_form": RateEndForm(initial={"date": local.date() + timedelta(days=1)}, auto_id=False),
        }

    return system_render(request, REASON, "billing/rates.html", context, status)


@require_POST
@platform_page(PLATFORM_FINANCE)
def rate_end_view(request: HttpRequest, rate_id: UUID) -> HttpResponse:
    """Let a rate end without another one."""
    rate = Rate.objects.select_related("card__issuer").filter(pk=rate_id).first()
    if rate is None:
        raise NotFound("There is no such rate.")
    issuer = rate.card.issuer
    form = RateEndForm(request.POST)
    if not form.is_valid():
        return _page(request, issuer, refusal="Say on which day the rate ends.", status=422)
    end = instant(form.cleaned_data["date"], issuer.time_zone, form.cleaned_data["time"])
    try:
        rate_end(rate=rate, valid_to=end, actor=acting(request))
    except Problem as problem:
        return _page(request, issuer, refusal=problem.detail, status=problem.status)
    messages.success(request, f"The rate ends at {end:%Y-%m-%d %H:%M} UTC. What is used afterwards has no price.")
    return to_rates(issuer)


@require_http_methods(["GET", "HEAD", "POST"])
@platform_page(PLATFORM_FINANCE)
def issuer_create(request: HttpRequest) -> HttpResponse:
    """Say who bills: its currency and time zone are for good."""
    form = IssuerForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            if Issuer.objects.filter(slug=data["slug"]).exists():
                raise Conflict(f"There is an issuer {data['slug']} already.")  # shown in the form
            first = default_issuer() is None
            issuer = issuer_ensure(**data, is_default=first, actor=acting(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, f"{issuer.name} bills in {issuer.currency}. Set its first prices now.")
            return to_rates(issuer)
    status = 422 if form.errors else 200
    return system_render(request, REASON, "billing/no_issuer.html", lambda: _nobody(request, form), status)
