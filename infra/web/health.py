"""Faults of cards and nodes for the platform: the list, and a person's word that one is over."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from infra.health import MEANINGS, FaultClass
from infra.models import Cluster, HealthEvent
from infra.selectors.health import faults_now, health_events
from infra.services.health import health_event_end
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.forms import PortalForm
from portal.kernel.problems import NotFound, Problem
from portal.kernel.web import actor_of, platform_page

PAGE = 100
_CLASSES = [("", "any class"), *((one.value, one.value) for one in FaultClass)]


class HealthForm(PortalForm):
    """What the list is narrowed to; it lives in the address."""

    cluster = forms.ModelChoiceField(
        Cluster.objects.none(), required=False, to_field_name="slug", empty_label="all clusters"
    )
    fault_class = forms.ChoiceField(required=False, label="Class", choices=_CLASSES)
    kind = forms.ChoiceField(required=False, label="Told by", choices=[("", "anything"), *HealthEvent.Kind.choices])
    q = forms.CharField(required=False, label="Node, card or code", max_length=100)
    lasting = forms.BooleanField(required=False, label="Only what lasts")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["cluster"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = Cluster.objects.order_by("slug")


@require_safe
@platform_page()
def health(request: HttpRequest) -> HttpResponse:
    """What is at fault now, then all events."""
    form = HealthForm(request.GET)
    data = form.cleaned_data if form.is_valid() else {}
    cluster = data.get("cluster")
    rows = health_events(
        cluster_id=cluster.pk if cluster else None, fault_class=data.get("fault_class", ""), kind=data.get("kind", ""),
        lasting=bool(data.get("lasting")), text=data.get("q", "").strip(),
    )  # fmt: skip
    text = request.GET.get("page", "")
    number = max(1, min(int(text), 10_000)) if text.isascii() and text.isdigit() and len(text) < 6 else 1
    found = list(rows[(number - 1) * PAGE : number * PAGE + 1])
    actor = actor_of(request)
    return render(
        request,
        "infra/health.html",
        {
            "form": form,
            "rows": found[:PAGE],
            "number": number,
            "more": len(found) > PAGE,
            "query": urlencode([(name, value) for name, value in request.GET.items() if value and name != "page"]),
            "now": faults_now([cluster.pk] if cluster else None),
            "meanings": [(one.value, MEANINGS[one]) for one in FaultClass],
            "may_change": actor is not None and actor.is_platform(PLATFORM_ADMIN),
        },
    )


@require_POST
@platform_page(PLATFORM_ADMIN)
def health_end(request: HttpRequest, event_id: UUID) -> HttpResponse:
    """A fault is over: the card was reset, or changed."""
    event = HealthEvent.objects.filter(pk=event_id).first()
    if event is None:
        raise NotFound("There is no such event.")
    actor = actor_of(request)
    assert actor is not None  # platform_page has seen to it
    try:
        health_event_end(event=event, reason=request.POST.get("reason", ""), actor=actor)
    except Problem as problem:
        messages.error(request, "; ".join(error["detail"] for error in problem.errors) or problem.detail)
    else:
        messages.success(request, f"{event.title} is over.")
    return HttpResponseRedirect(reverse("infra:health"), status=303)
