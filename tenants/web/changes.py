"""Scale, and a new image: what would happen first, then yes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_http_methods

from portal.kernel.actors import Actor
from portal.kernel.forms import PortalForm
from portal.kernel.problems import Problem
from portal.kernel.scoping import tenant_scope
from portal.kernel.submission import FIELD, new_token, submit_once, token_of
from portal.kernel.web import is_htmx
from tenants.manifest import Manifest
from tenants.models import ModelDeployment, Tenant
from tenants.permissions import Perm
from tenants.selectors.deployments import deployment_get
from tenants.services.deployments import (
    deployment_etag,
    deployment_scale,
    deployment_set_image,
    manifest_with_image,
)
from tenants.services.manifests import ManifestSource
from tenants.services.previews import Preview, deployment_preview
from tenants.stored import manifest_of
from tenants.web.forms import ImageForm, ScaleForm
from tenants.web.pages import TeamRequest, team_page, team_render


@dataclass(frozen=True)
class Change:
    """One way of changing a deployment: its form, what it makes of the manifest, and the service that does it."""

    title: str
    field: str
    form: type[PortalForm]
    now: Callable[[Manifest], Any]
    draft: Callable[[Manifest, Any], ManifestSource]
    apply: Callable[[Tenant, str, Any, Actor, str], ModelDeployment]
    done: str


SCALE = Change(
    title="Scale",
    field="replicas",
    form=ScaleForm,
    now=lambda manifest: manifest.replicas,
    draft=lambda manifest, value: replace(manifest, replicas=value),
    apply=lambda tenant, name, value, actor, tag: deployment_scale(
        tenant=tenant, name=name, replicas=value, actor=actor, if_match=tag
    ),
    done="Its number of replicas is changed.",
)
IMAGE = Change(
    title="New image",
    field="image",
    form=ImageForm,
    now=lambda manifest: manifest.engines[0].members[0].template.engine.image,
    draft=lambda manifest, value: manifest_with_image(manifest, value, None),
    apply=lambda tenant, name, value, actor, tag: deployment_set_image(
        tenant=tenant, name=name, image=value, actor=actor, if_match=tag
    ),
    done="The new image is rolled out now.",
)


@require_http_methods(["GET", "HEAD", "POST"])
@team_page(Perm.DEPLOYMENT_WRITE)
def scale(request: TeamRequest, name: str) -> HttpResponse:
    """Another number of replicas."""
    return _change(request, name, SCALE)


@require_http_methods(["GET", "HEAD", "POST"])
@team_page(Perm.DEPLOYMENT_WRITE)
def image(request: TeamRequest, name: str) -> HttpResponse:
    """Another image."""
    return _change(request, name, IMAGE)


def _change(request: TeamRequest, name: str, change: Change) -> HttpResponse:
    tenant = request.tenant
    with tenant_scope(tenant.pk):
        deployment = deployment_get(tenant=tenant, name=name)
    manifest = manifest_of(deployment)
    form = change.form(_data(request, change), initial={change.field: change.now(manifest)})
    found: Preview | None = None
    status = 200
    if request.method == "POST" and request.POST.get("action") != "preview":
        answer = _apply(request, deployment, change, form)
        if answer is not None:
            return answer
        status = 422
    elif form.is_bound and form.is_valid():
        try:
            draft = change.draft(manifest, form.cleaned_data[change.field])
            found = deployment_preview(tenant=tenant, manifest=draft, actor=request.actor)
        except Problem as problem:
            form.add_problem(problem, lambda pointer: change.field)
    if form.is_bound and form.errors:
        status = 422

    def context() -> dict[str, Any]:
        return {
            "deployment": deployment,
            "change": change,
            "form": form,
            "field": form[change.field],
            "preview": found,
            "etag": request.POST.get("etag") or deployment_etag(deployment),
            "submission_field": FIELD,
            "submission": token_of(request) if request.method == "POST" else new_token(),
            "problems": [error for errors in form.errors.values() for error in errors],
        }

    if is_htmx(request):
        response = team_render(request, "tenants/partials/change_preview.html", context)
    else:
        response = team_render(request, "tenants/deployment_change.html", context, status)
    patch_vary_headers(response, ["HX-Request"])
    return response


def _data(request: TeamRequest, change: Change) -> QueryDict | None:
    if request.method == "POST":
        return request.POST
    return request.GET if change.field in request.GET else None


def _apply(request: TeamRequest, deployment: ModelDeployment, change: Change, form: PortalForm) -> HttpResponse | None:
    """Do it; None where the form has to be shown again."""
    if not form.is_valid():
        return None
    value, name = form.cleaned_data[change.field], deployment.name
    address = reverse("tenants:deployment", args=[request.tenant.slug, name])

    def act() -> str:
        change.apply(request.tenant, name, value, request.actor, request.POST.get("etag", ""))
        return address

    try:
        sent = submit_once(request, act)
    except Problem as problem:
        form.add_problem(problem, lambda pointer: change.field)
        return None
    if not sent.again:
        messages.success(request, change.done)
    return HttpResponseRedirect(sent.location, status=303)
