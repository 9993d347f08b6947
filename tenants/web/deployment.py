"""A deployment's own pages: its state (kept up to date), its manifest, and the changes of one thing."""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from infra.selectors.health import told_of_deployment
from infra.selectors.telemetry import use_of_deployment
from portal.kernel.clock import HOUR, hour_start, utcnow
from portal.kernel.problems import NotFound, Problem
from portal.kernel.scoping import tenant_scope
from portal.kernel.submission import FIELD, new_token, submit_once, token_of
from tenants.manifest import to_yaml
from tenants.models import Tenant
from tenants.permissions import Perm
from tenants.placements import placement_from_json
from tenants.pricing import cost_per_hour
from tenants.selectors.deployments import deployment_detail, deployment_get
from tenants.services.deployments import deployment_delete
from tenants.stored import manifest_of
from tenants.web.figures import replica_lines
from tenants.web.forms import DeleteForm
from tenants.web.pages import TeamRequest, team_page, team_render

FAULTS_SHOWN = timedelta(days=7)
"""How long a fault of a card stays on the page of the deployment that held it."""
LIVE = "tenants/partials/live.html"


@require_safe
@team_page()
def deployment(request: TeamRequest, name: str) -> HttpResponse:
    """State, replicas, timeline, cost."""

    def context() -> dict[str, Any]:
        found = deployment_get(tenant=request.tenant, name=name)
        return {"deployment": found, "tab": "overview", **_live(request.tenant, name)}

    return team_render(request, "tenants/deployment.html", context)


@require_safe
@team_page()
def deployment_status(request: TeamRequest, name: str) -> HttpResponse:
    """The part that changes by itself; 204 where the page shows it already (``?seen=``).

    A 404 holds the last word on it: nothing asks again.
    """
    with tenant_scope(request.tenant.pk):
        try:
            live = _live(request.tenant, name)
        except NotFound:
            return team_render(request, "tenants/partials/gone.html", lambda: {"name": name}, status=404)
        if request.GET.get("seen") == live["seen"]:
            return HttpResponse(status=204)
    return team_render(request, LIVE, lambda: live | {"name": name})


def _live(tenant: Tenant, name: str) -> dict[str, Any]:
    """The changing part as text and what identifies it, within a scope: equal text is not sent again."""
    detail = deployment_detail(tenant=tenant, name=name)
    held = [placement_from_json(row.placement) for row in detail.replicas]
    body = render_to_string(
        "tenants/partials/live_body.html",
        {
            "tenant": tenant,
            "deployment": detail.deployment,
            "replicas": replica_lines(detail.replicas),
            "events": detail.events,
            "faults": told_of_deployment(detail.deployment.pk, utcnow() - FAULTS_SHOWN),
            "use": use_of_deployment(detail.deployment.pk, hour_start(utcnow()) - 24 * HOUR, utcnow()),
            "cost": cost_per_hour(held, utcnow()) if held else None,
            "settled": detail.deployment.observed_generation >= detail.deployment.generation,
        },
    )
    return {"live_body": body, "seen": hashlib.sha256(body.encode()).hexdigest()[:16], "name": name}


@require_safe
@team_page()
def deployment_yaml(request: TeamRequest, name: str) -> HttpResponse:
    """The manifest: as it is understood, and as it came. ``?download=1``: as a file."""
    with tenant_scope(request.tenant.pk):
        found = deployment_get(tenant=request.tenant, name=name)
        text = to_yaml(manifest_of(found))
    if request.GET.get("download"):
        response = HttpResponse(text, content_type="application/yaml; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{found.name}.yaml"'
        return response
    came = found.source if found.source.strip() != text.strip() else ""
    return team_render(
        request,
        "tenants/deployment_yaml.html",
        lambda: {"deployment": found, "tab": "yaml", "manifest": text, "came": came},
    )


@require_http_methods(["GET", "HEAD", "POST"])
@team_page(Perm.DEPLOYMENT_WRITE)
def delete(request: TeamRequest, name: str) -> HttpResponse:
    """Have it deleted, once its name has been typed."""
    with tenant_scope(request.tenant.pk):
        found = deployment_get(tenant=request.tenant, name=name)
    form = DeleteForm(request.POST or None, expected=found.name)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            address = reverse("tenants:deployment", args=[request.tenant.slug, found.name])

            def act() -> str:
                deployment_delete(tenant=request.tenant, name=found.name, actor=request.actor)
                return address

            try:
                submit_once(request, act)
            except Problem as problem:
                form.add_problem(problem)
            else:
                messages.success(request, "It is being deleted. It is gone when every cluster has said so.")
                return HttpResponseRedirect(address, status=303)

    def context() -> dict[str, Any]:
        replicas = replica_lines(deployment_detail(tenant=request.tenant, name=name, events=0).replicas)
        held: Counter[str] = Counter()
        for replica in replicas:
            held[replica.cluster] += replica.millionths
        return {
            "deployment": found,
            "form": form,
            "replicas": replicas,
            "held": sorted(held.items()),
            "submission_field": FIELD,
            "submission": token_of(request) if request.method == "POST" else new_token(),
        }

    return team_render(request, "tenants/deployment_delete.html", context, status)
