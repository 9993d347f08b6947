"""Deploying a model, and editing what is deployed: form and manifest on one page, with what would happen."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from portal.kernel.problems import Conflict, Invalid, PreconditionFailed, Problem
from portal.kernel.scoping import tenant_scope
from portal.kernel.submission import FIELD, new_token, submit_once, token_of
from tenants.models import ModelDeployment
from tenants.permissions import Perm
from tenants.selectors.deployments import deployment_get
from tenants.services.deployments import deployment_apply, deployment_etag
from tenants.services.manifests import manifest_accept
from tenants.services.previews import Preview, deployment_preview
from tenants.stored import manifest_of
from tenants.web.drafts import TEXT, Draft, as_fields, as_text, draft_of, new_draft, read_draft
from tenants.web.pages import TeamRequest, team_page, team_render


@require_http_methods(["GET", "POST"])
@team_page(Perm.DEPLOYMENT_WRITE)
def deploy(request: TeamRequest) -> HttpResponse:
    """Deploy a model."""
    if request.method == "POST":
        return _posted(request, None)
    with tenant_scope(request.tenant.pk):
        draft = new_draft(request.tenant, request.GET.get("mode", ""))
    return _page(request, draft, None)


@require_http_methods(["GET", "POST"])
@team_page(Perm.DEPLOYMENT_WRITE)
def deployment_edit(request: TeamRequest, name: str) -> HttpResponse:
    """Change what is deployed; refused where somebody else changed it since the page was opened."""
    with tenant_scope(request.tenant.pk):
        deployment = deployment_get(tenant=request.tenant, name=name)
        draft = draft_of(request.tenant, manifest_of(deployment), deployment.source, request.GET.get("mode", ""))
    if request.method == "POST":
        return _posted(request, deployment)
    return _page(request, draft, deployment)


@require_POST
@team_page(Perm.DEPLOYMENT_WRITE)
def preview(request: TeamRequest) -> HttpResponse:
    """What the draft would do, for the pane beside it. Stores nothing."""
    draft, found = _draft_and_preview(request, request.POST.get("editing", ""))
    return team_render(request, "tenants/partials/preview.html", lambda: _outcome(request, draft, found))


def _posted(request: TeamRequest, existing: ModelDeployment | None) -> HttpResponse:
    action = request.POST.get("action", "deploy")
    editing = existing.name if existing else ""
    if action == "preview":
        draft, found = _draft_and_preview(request, editing)
        return _page(request, draft, existing, found, status=200 if found else 422)
    with tenant_scope(request.tenant.pk):
        draft = _read(request, editing)
        if action in ("yaml", "form"):
            fixed = existing is not None
            if action == "form":
                draft = as_fields(draft, request.tenant, fixed_name=fixed)
            elif draft.untouched and not fixed:
                draft = new_draft(request.tenant, TEXT)
            else:
                draft = as_text(draft)
            return _page(request, draft, existing)
    source = draft.source
    if source is None:
        return _page(request, draft, existing, status=422)
    tag = request.POST.get("etag") or None

    def act() -> str:
        applied = deployment_apply(
            tenant=request.tenant,
            manifest=source,
            actor=request.actor,
            create_only=existing is None,
            if_match=tag if existing else None,
        )
        return reverse("tenants:deployment", args=[request.tenant.slug, applied.deployment.name])

    try:
        sent = submit_once(request, act)
    except (Invalid, Conflict, PreconditionFailed) as problem:
        draft.refuse(problem)
        return _page(request, draft, existing, status=problem.status if existing else 422)
    if not sent.again:
        messages.success(request, "Saved. It is rolled out now." if existing else "Accepted. It is being placed now.")
    return HttpResponseRedirect(sent.location, status=303)


def _read(request: TeamRequest, editing: str) -> Draft:
    """The draft as sent; another name than that of the edited deployment is a fault of it."""
    draft = read_draft(request.tenant, request.POST, request.FILES.get("file"), fixed_name=bool(editing))
    if editing and draft.source is not None:
        name = manifest_accept(request.tenant, draft.source).name
        if name != editing:
            sentence = f"The name can't be changed: it is {editing}. Deploy {name} as a new one."
            draft.refuse(Invalid.field("/metadata/name", sentence))
    return draft


def _draft_and_preview(request: TeamRequest, editing: str) -> tuple[Draft, Preview | None]:
    with tenant_scope(request.tenant.pk):
        draft = _read(request, editing)
    if draft.source is None:
        return draft, None
    try:
        return draft, deployment_preview(tenant=request.tenant, manifest=draft.source, actor=request.actor)
    except Problem as problem:
        draft.refuse(problem)
        return draft, None


def _outcome(request: TeamRequest, draft: Draft, found: Preview | None) -> dict[str, Any]:
    taken = found is not None and found.change != "created" and not request.POST.get("editing")
    return {"draft": draft, "preview": found, "taken": taken, "show_manifest": draft.mode == "form"}


def _page(
    request: TeamRequest,
    draft: Draft,
    existing: ModelDeployment | None,
    found: Preview | None = None,
    status: int = 200,
) -> HttpResponse:
    def context() -> dict[str, Any]:
        tag = "" if existing is None else request.POST.get("etag") or deployment_etag(existing)
        return _outcome(request, draft, found) | {
            "deployment": existing,
            "etag": tag,
            "submission_field": FIELD,
            "submission": token_of(request) if request.method == "POST" else new_token(),
            "asked": found is not None,
        }

    return team_render(request, "tenants/deploy.html", context, status)
