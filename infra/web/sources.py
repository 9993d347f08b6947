"""Where a cluster's metrics and costs come from: its endpoints, and how good what they say is."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from infra.models import Cluster, ClusterEndpoint
from infra.selectors import telemetry as selectors
from infra.selectors.clusters import cluster_by_slug
from infra.services import endpoints as services
from infra.web.forms import _pairs
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.clock import utcnow
from portal.kernel.forms import PortalForm
from portal.kernel.problems import NotFound, Problem
from portal.kernel.web import person_of, platform_page

_SECRETS = ("token", "username", "password", "client_cert", "client_key")
_PEM = {"rows": 4, "class": "manifest", "autocomplete": "off", "spellcheck": "false"}


class EndpointForm(PortalForm):
    """A Prometheus or OpenCost of a cluster. Secrets go in and are never shown; left empty, the stored ones stay."""

    via = forms.ChoiceField(choices=ClusterEndpoint.Via.choices, label="Reached")
    url = forms.CharField(
        max_length=400, required=False, label="Address",
        help_text="Directly: https://prometheus.example.org, with any prefix (Mimir: …/prometheus).",
    )  # fmt: skip
    service = forms.CharField(
        max_length=200, required=False, label="Service",
        help_text="Through the API server: namespace/service:port, as monitoring/prometheus-operated:9090.",
    )  # fmt: skip
    path_prefix = forms.CharField(max_length=200, required=False, label="Prefix", help_text="Of the service's paths.")
    auth = forms.ChoiceField(choices=ClusterEndpoint.Auth.choices, label="Credentials")
    token = forms.CharField(
        max_length=8000, required=False, label="Bearer token", widget=forms.PasswordInput(attrs={"autocomplete": "off"})
    )
    username = forms.CharField(max_length=200, required=False, label="User name")
    password = forms.CharField(
        max_length=1000, required=False, label="Password", widget=forms.PasswordInput(attrs={"autocomplete": "off"})
    )
    client_cert = forms.CharField(
        max_length=20_000, required=False, label="Client certificate (PEM)", widget=forms.Textarea(attrs=_PEM)
    )
    client_key = forms.CharField(
        max_length=20_000, required=False, label="Its key (PEM)", widget=forms.Textarea(attrs=_PEM)
    )
    ca_data = forms.CharField(
        max_length=100_000, required=False, label="Authority (PEM)", widget=forms.Textarea(attrs=_PEM),
        help_text="Of an address whose certificate the system's authorities did not sign.",
    )  # fmt: skip
    tenant_header = forms.CharField(
        max_length=60, required=False, label="Tenant header", help_text="Multi-tenant stores: X-Scope-OrgID."
    )
    tenant_value = forms.CharField(max_length=120, required=False, label="Tenant")
    matchers = forms.CharField(
        max_length=2000, required=False, label="Labels of this cluster",
        help_text="In a store of several clusters: cluster=gpu-fra-1. They are put into every question.",
    )  # fmt: skip

    def clean_matchers(self) -> dict[str, str]:
        """As a mapping."""
        return _pairs(self.cleaned_data["matchers"], "Labels")

    def arguments(self) -> dict[str, Any]:
        """For the service."""
        values = dict(self.cleaned_data)
        secret = {name: values.pop(name) for name in _SECRETS}
        return {**values, "secret": secret}

    def add_problem(self, problem: Problem, field_of: Any = None) -> None:
        """A refusal at its field; that of a secret at its own."""

        def field(pointer: str) -> str | None:
            name = pointer.strip("/").removeprefix("secret/")
            return name if name in self.fields else "auth" if name == "secret" else None

        super().add_problem(problem, field_of or field)


@require_safe
@platform_page()
def sources(request: HttpRequest, slug: str) -> HttpResponse:
    """The endpoints with their state; lag, gaps, and nodes that name no pods."""
    return _page(request, cluster_by_slug(slug))


@require_POST
@platform_page(PLATFORM_ADMIN)
def source_set(request: HttpRequest, slug: str, role: str) -> HttpResponse:
    """Store an endpoint, after it has answered."""
    cluster, form = cluster_by_slug(slug), EndpointForm(request.POST, prefix=role)
    if form.is_valid():
        try:
            row = services.endpoint_set(cluster=cluster, role=role, **form.arguments(), actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            what = f"{row.product} {row.version}".strip()
            messages.success(request, f"It answers ({what}) and is stored. Reading begins within a minute.")
            return _back(slug)
    return _page(request, cluster, 422, form=form, role=role)


@require_POST
@platform_page(PLATFORM_ADMIN)
def source_act(request: HttpRequest, slug: str, role: str, action: str) -> HttpResponse:
    """Test, pause, resume, remove."""
    cluster, actor = cluster_by_slug(slug), person_of(request)
    endpoint = selectors.endpoints_of(cluster).filter(role=role).first()
    if endpoint is None:
        raise NotFound(f"No {role} is set for cluster {slug}.")
    try:
        if action == "test":
            row = services.endpoint_test(endpoint=endpoint, actor=actor)
            messages.success(request, f"It answers: {row.product} {row.version}".strip() + ".")
        elif action == "remove":
            services.endpoint_remove(endpoint=endpoint, actor=actor)
            messages.success(request, "It is removed. What was read from it stays.")
        else:
            services.endpoint_pause(endpoint=endpoint, paused=action == "pause", actor=actor)
            messages.success(request, "It is paused." if action == "pause" else "It is read again.")
    except Problem as problem:
        return _page(request, cluster, problem.status, refusal=problem.detail)
    return _back(slug)


def _page(
    request: HttpRequest, cluster: Cluster, status: int = 200, *, form: EndpointForm | None = None, role: str = "",
    refusal: str = "",
) -> HttpResponse:  # fmt: skip
    rows = {row.role: row for row in selectors.endpoints_of(cluster)}
    source = selectors.source_of(cluster)
    gaps = selectors.gaps_of(cluster)
    shown = {value: _form(value, rows.get(value)) for value in ClusterEndpoint.Role.values}
    if form is not None:
        shown[role] = form
    context = {
        "cluster": cluster,
        "roles": [(value, label, rows.get(value), shown[value]) for value, label in ClusterEndpoint.Role.choices],
        "source": source,
        "age": round((utcnow() - source.last_sample_at).total_seconds()) if source and source.last_sample_at else None,
        "gaps": gaps[: selectors.GAPS],
        "more_gaps": max(0, gaps.count() - selectors.GAPS),
        "may_change": person_of(request).is_platform(PLATFORM_ADMIN) and cluster.abandoned_at is None,
        "refusal": refusal,
    }
    return render(request, "infra/sources.html", context, status=status)


def _form(role: str, row: ClusterEndpoint | None) -> EndpointForm:
    names = ("via", "url", "service", "path_prefix", "auth", "ca_data", "tenant_header", "tenant_value")
    known: dict[str, Any] = {name: getattr(row, name) for name in names} if row else {}
    if row:
        known["matchers"] = " ".join(f"{key}={value}" for key, value in sorted(row.matchers.items()))
    return EndpointForm(prefix=role, initial=known)


def _back(slug: str) -> HttpResponse:
    return HttpResponseRedirect(reverse("infra:cluster-sources", args=[slug]), status=303)
