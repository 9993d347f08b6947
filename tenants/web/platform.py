"""The platform's pages about tenants: who there is, what they may hold, whose namespaces are."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from infra.models import NamespaceClaim
from infra.selectors.claims import unmapped_namespaces
from infra.selectors.clusters import cluster_list
from infra.services.claims import namespace_claim_end, namespace_claim_set
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.clock import utcnow
from portal.kernel.problems import NotFound, Problem
from portal.kernel.web import person_of, platform_page, system_render
from tenants.models import Member, ModelDeployment, Tenant, TenantNamespace, Zone
from tenants.selectors.members import members_of
from tenants.selectors.quota import quota_lines
from tenants.services.members import member_set
from tenants.services.profile_quotas import quota_profiles_set
from tenants.services.quotas import quota_set
from tenants.services.rules import tenant_rules_set
from tenants.services.sharing import tenant_sharing_set
from tenants.services.tenants import (
    tenant_create,
    tenant_set_state,
    tenant_update,
)
from tenants.services.zones import tenant_set_zone, zone_create
from tenants.web.forms import MemberForm
from tenants.web.parts import parts_context
from tenants.web.platform_forms import (
    ClaimForm,
    MoveForm,
    ProfilesForm,
    QuotaForm,
    SharingForm,
    TenantChangeForm,
    TenantForm,
    ZoneForm,
)
from tenants.web.zone_forms import RulesForm

REASON = "platform pages: tenants"


def _tenant(slug: str) -> Tenant:
    row = Tenant.objects.select_related("zone").filter(slug=slug).first()
    if row is None:
        raise NotFound(f"There is no tenant {slug}.")
    return row


def _to(name: str, *args: str) -> HttpResponse:
    return HttpResponseRedirect(reverse(f"tenants:{name}", args=args), status=303)


@require_safe
@platform_page()
def tenants(request: HttpRequest) -> HttpResponse:
    """All tenants with their quotas."""
    return _tenants_page(request)


def _tenants_page(request: HttpRequest, status: int = 200, **more: Any) -> HttpResponse:
    def context() -> dict[str, Any]:
        rows = Tenant.objects.select_related("zone").prefetch_related("sites").order_by("slug")
        return {
            "rows": [(row, quota_lines(row)) for row in rows],
            "zones": Zone.objects.order_by("slug"),
            "form": TenantForm(),
            "zone_form": ZoneForm(prefix="zone"),
            "may_change": person_of(request).is_platform(PLATFORM_ADMIN),
            **more,
        }

    return system_render(request, REASON, "tenants/platform_tenants.html", context, status)


@require_POST
@platform_page(PLATFORM_ADMIN)
def create(request: HttpRequest) -> HttpResponse:
    """Make a tenant."""
    form = TenantForm(request.POST)
    if form.is_valid():
        try:
            row = tenant_create(**form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, f"Tenant {row.slug} is there. Give it a quota and an owner.")
            return _to("platform-tenant", row.slug)
    return _tenants_page(request, 422, form=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def create_zone(request: HttpRequest) -> HttpResponse:
    """Make a trust zone."""
    form = ZoneForm(request.POST, prefix="zone")
    if form.is_valid():
        try:
            zone = zone_create(**form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, f"Zone {zone.slug} is there now.")
            return _to("platform-tenants")
    return _tenants_page(request, 422, zone_form=form)


@require_safe
@platform_page()
def tenant(request: HttpRequest, slug: str) -> HttpResponse:
    """One tenant as the platform sees it."""
    return _tenant_page(request, _tenant(slug))


def _tenant_page(request: HttpRequest, row: Tenant, status: int = 200, **more: Any) -> HttpResponse:
    def context() -> dict[str, Any]:
        described = {
            "name": row.name,
            "sites": row.sites.all(),
            "cost_code": row.cost_code,
            "cost_code_required": row.cost_code_required,
        }
        return {
            "row": row,
            "lines": quota_lines(row),
            "members": members_of(row),
            "namespaces": TenantNamespace.objects.filter(tenant=row)
            .select_related("cluster")
            .order_by("cluster__slug"),
            "claims": NamespaceClaim.objects.filter(tenant_id=row.pk, valid_to__isnull=True)
            .select_related("cluster")
            .order_by("cluster__slug", "namespace"),
            "deployments": ModelDeployment.objects.filter(tenant=row, deleted_at__isnull=True).count(),
            "described": TenantChangeForm(initial=described),
            "move": MoveForm(initial={"zone": row.zone.slug}),
            "rules_form": RulesForm.of(row),
            "quota_form": QuotaForm(),
            "member_form": MemberForm(initial={"role": Member.Role.OWNER}),
            **parts_context(row),
            "may_change": person_of(request).is_platform(PLATFORM_ADMIN),
            **more,
        }

    return system_render(request, REASON, "tenants/platform_tenant.html", context, status)


@require_POST
@platform_page(PLATFORM_ADMIN)
def change(request: HttpRequest, slug: str) -> HttpResponse:
    """Name, sites, cost code."""
    row, form = _tenant(slug), TenantChangeForm(request.POST)
    if form.is_valid():
        try:
            tenant_update(tenant=row, **form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, "Stored.")
            return _to("platform-tenant", slug)
    return _tenant_page(request, row, 422, described=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def move(request: HttpRequest, slug: str) -> HttpResponse:
    """Another trust zone."""
    row, form = _tenant(slug), MoveForm(request.POST)
    if form.is_valid():
        try:
            tenant_set_zone(tenant=row, zone=form.cleaned_data["zone"], actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, f"{slug} is in zone {form.cleaned_data['zone'].slug} now.")
            return _to("platform-tenant", slug)
    return _tenant_page(request, row, 422, move=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def set_rules(request: HttpRequest, slug: str) -> HttpResponse:
    """Which images it may run, and whether code of models' repositories."""
    row, form = _tenant(slug), RulesForm(request.POST)
    if form.is_valid():
        try:
            done = tenant_rules_set(tenant=row, **form.rules(), actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            (messages.warning if done.broken else messages.success)(request, done.sentence)
            return _to("platform-tenant", slug)
    return _tenant_page(request, row, 422, rules_form=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def set_state(request: HttpRequest, slug: str) -> HttpResponse:
    """Suspend, or make active."""
    tenant_set_state(tenant=_tenant(slug), state=request.POST.get("state", ""), actor=person_of(request))
    return _to("platform-tenant", slug)


@require_POST
@platform_page(PLATFORM_ADMIN)
def set_quota(request: HttpRequest, slug: str) -> HttpResponse:
    """A quota on one GPU type."""
    row, form = _tenant(slug), QuotaForm(request.POST)
    if form.is_valid():
        try:
            done = quota_set(
                tenant=row,
                gpu_type=form.cleaned_data["gpu_type"],
                limit=form.millionths("limit"),
                guaranteed=form.millionths("guaranteed"),
                actor=person_of(request),
            )
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, done.sentence)
            return _to("platform-tenant", slug)
    return _tenant_page(request, row, 422, quota_form=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def set_sharing(request: HttpRequest, slug: str) -> HttpResponse:
    """Which shares of cards it may ask for, and more limits of its namespaces."""
    row, form = _tenant(slug), SharingForm(request.POST)
    if form.is_valid():
        try:
            tenant_sharing_set(tenant=row, **form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, "Stored.")
            return _to("platform-tenant", slug)
    return _tenant_page(request, row, 422, sharing_form=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def set_profiles(request: HttpRequest, slug: str) -> HttpResponse:
    """MIG slices by profile of one GPU type."""
    row, form = _tenant(slug), ProfilesForm(request.POST)
    if form.is_valid():
        try:
            quota = quota_profiles_set(tenant=row, **form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            said = ", ".join(f"{count} of {profile}" for profile, count in quota.profiles.items())
            messages.success(request, f"MIG slices of {quota.gpu_type.slug}: {said or 'limited by cards alone'}.")
            return _to("platform-tenant", slug)
    return _tenant_page(request, row, 422, profiles_form=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def add_member(request: HttpRequest, slug: str) -> HttpResponse:
    """A person for the tenant (its first owner, for one)."""
    row, form = _tenant(slug), MemberForm(request.POST)
    if form.is_valid():
        try:
            member_set(
                tenant=row,
                username=form.cleaned_data["username"].strip().lower(),
                role=form.cleaned_data["role"],
                actor=person_of(request),
            )
        except Problem as problem:
            form.add_problem(problem)
        else:
            return _to("platform-tenant", slug)
    return _tenant_page(request, row, 422, member_form=form)


@require_http_methods(["GET", "HEAD", "POST"])
@platform_page()
def namespaces(request: HttpRequest) -> HttpResponse:
    """Whose namespaces are, and which are nobody's; a platform-admin gives them to tenants (POST)."""
    actor, status = person_of(request), 200
    wanted = {name: request.GET[name] for name in ("cluster", "namespace") if name in request.GET}
    form = ClaimForm(request.POST or None, initial={"valid_from": utcnow().strftime("%Y-%m-01 00:00"), **wanted})
    if request.method == "POST":
        status = 422
        if form.is_valid():
            body = form.cleaned_data
            try:
                namespace_claim_set(
                    cluster=body["cluster"],
                    namespace=body["namespace"],
                    tenant_id=body["tenant"].pk,
                    valid_from=body["valid_from"],
                    cost_code=body["cost_code"] or body["tenant"].cost_code,
                    actor=actor,
                )
            except Problem as problem:
                form.add_problem(problem)
            else:
                messages.success(request, f"{body['namespace']} is {body['tenant'].slug}'s now.")
                return _to("namespaces")

    def context() -> dict[str, Any]:
        slugs = dict(Tenant.objects.values_list("pk", "slug"))
        claims = NamespaceClaim.objects.select_related("cluster").order_by("cluster__slug", "namespace", "-valid_from")
        return {
            "form": form,
            "unmapped": unmapped_namespaces(list(cluster_list())),
            "claims": [(claim, slugs.get(claim.tenant_id, "–")) for claim in claims],
            "may_change": actor.is_platform(PLATFORM_ADMIN),
        }

    return system_render(request, REASON, "tenants/platform_namespaces.html", context, status)


@require_POST
@platform_page(PLATFORM_ADMIN)
def end_claim(request: HttpRequest, claim_id: UUID) -> HttpResponse:
    """The namespace is nobody's from now on."""
    claim = NamespaceClaim.objects.select_related("cluster").filter(pk=claim_id).first()
    if claim is None:
        raise NotFound("There is no such claim.")
    namespace_claim_end(claim=claim, valid_to=utcnow(), actor=person_of(request))
    messages.success(request, f"{claim.namespace} is nobody's from now on.")
    return _to("namespaces")
