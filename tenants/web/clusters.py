"""A team's tenant clusters: asking for one, its state, ways in, upgrade, pause, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.problems import Conflict, NotFound, Problem
from portal.kernel.scoping import tenant_scope
from portal.kernel.web import platform_page, system_render
from tenants.models import GPUQuota, Robot, TenantCluster
from tenants.permissions import Perm, may
from tenants.selectors.tenantclusters import (
    hosts_for,
    robots_of,
    tenant_cluster_gone,
    tenant_cluster_on,
    tenant_cluster_parts,
    tenant_clusters,
)
from tenants.services.tenantcluster_access import (
    robot_create,
    robot_delete,
    robot_token,
    tenant_cluster_kubeconfig,
)
from tenants.services.tenantclusters import (
    may_request,
    tenant_cluster_delete,
    tenant_cluster_pause,
    tenant_cluster_request,
    tenant_cluster_resume,
    tenant_cluster_retry,
    tenant_cluster_upgrade,
)
from tenants.tenantclusters.profile import next_versions, versions
from tenants.web.cluster_forms import DeleteClusterForm, RequestForm, RobotForm, TokenForm, UpgradeForm
from tenants.web.pages import TeamRequest, team_page, team_render

ACTIONS: dict[str, tuple[Callable[..., TenantCluster], str]] = {
    "pause": (tenant_cluster_pause, "It is being paused."),
    "resume": (tenant_cluster_resume, "It is being started again."),
    "retry": (tenant_cluster_retry, "It is tried again."),
}
REFUSALS = (409, 422, 429, 503)
"""Problems that are shown on the page; others are pages of their own."""


@require_http_methods(["GET", "HEAD", "POST"])
@team_page()
def clusters(request: TeamRequest) -> HttpResponse:
    """The team's tenant clusters, and the form to ask for one (POST)."""
    if request.method != "POST":
        return _list_page(request)
    form = _request_form(request, request.POST)
    if form.is_valid():
        with tenant_scope(request.tenant.pk):
            host = hosts_for(request.tenant).filter(slug=form.cleaned_data["cluster"]).first()
        try:
            if host is None:
                raise Conflict("That cluster can't be chosen any more. Look again.")
            row = tenant_cluster_request(
                tenant=request.tenant,
                cluster=host,
                allotments=form.allotments,
                version=form.cleaned_data["version"],
                endpoint=form.cleaned_data.get("endpoint", ""),
                actor=request.actor,
            )
        except Problem as problem:
            if problem.status not in REFUSALS:
                raise
            form.add_problem(problem, form.field_of)
        else:
            messages.success(request, f"Asked for a tenant cluster on {host.slug}. It takes a few minutes.")
            return _to(request, "tenant-cluster", row.cluster.slug)
    return _list_page(request, form, 422)


def _request_form(request: TeamRequest, data: Any = None) -> RequestForm:
    with tenant_scope(request.tenant.pk):
        quotas = GPUQuota.objects.filter(tenant=request.tenant, limit__gt=0).select_related("gpu_type")
        return RequestForm(
            data,
            hosts=list(hosts_for(request.tenant).values_list("slug", flat=True)),
            versions=versions(),
            types=[quota.gpu_type for quota in quotas.order_by("gpu_type__slug")],
            may_name_endpoint=may(request.actor, Perm.TENANT_MANAGE),
        )


def _list_page(request: TeamRequest, form: RequestForm | None = None, status: int = 200) -> HttpResponse:
    asks = may_request(request.actor, request.tenant)
    form = form or (_request_form(request) if asks else None)

    def context() -> dict[str, Any]:
        rows = list(tenant_clusters(request.tenant))
        return {
            "rows": [(row, list(tenant_cluster_parts(row))) for row in rows],
            "form": form,
            "may_request": asks,
        }

    return team_render(request, "tenants/clusters.html", context, status)


@require_safe
@team_page()
def cluster(request: TeamRequest, cluster: str) -> HttpResponse:
    """One tenant cluster: state and conditions in words, what it was given, ways in.

    One that is gone leads to the list: whoever watched it being deleted reads that it is.
    """
    try:
        return _page(request, cluster)
    except NotFound:
        with tenant_scope(request.tenant.pk):
            gone = tenant_cluster_gone(request.tenant, cluster)
        if gone is None:
            raise
    left = (
        f"its host was given up. Left there: {'; '.join(gone.leftovers)}."
        if gone.leftovers
        else "nothing is left of it."
    )
    messages.info(request, f"The tenant cluster on {cluster} is gone; {left}")
    return HttpResponseRedirect(reverse("tenants:clusters", args=[request.tenant.slug]))


def _page(request: TeamRequest, slug: str, status: int = 200, **more: Any) -> HttpResponse:
    def context() -> dict[str, Any]:
        row = tenant_cluster_on(request.tenant, slug)
        ahead = next_versions(row.kubernetes_version, row.chart_version)
        return {
            "row": row,
            "parts": list(tenant_cluster_parts(row)),
            "robots": list(robots_of(row)),
            "upgrade_form": UpgradeForm(versions=ahead) if ahead else None,
            "robot_form": RobotForm(),
            "token_form": TokenForm(),
            "may_request": may_request(request.actor, request.tenant),
            "running": row.desired == TenantCluster.Desired.RUNNING,
            **more,
        }

    return team_render(request, "tenants/tenant_cluster.html", context, status)


@require_POST
@team_page(Perm.CLUSTER_MANAGE)
def act(request: TeamRequest, cluster: str, action: str) -> HttpResponse:
    """Pause, resume, or have it tried again."""
    row = _row(request, cluster)
    if action not in ACTIONS:
        raise NotFound("There is nothing at this address.")
    service, done = ACTIONS[action]
    return _answer(request, cluster, lambda: service(row=row, actor=request.actor), done)


@require_POST
@team_page(Perm.CLUSTER_MANAGE)
def upgrade(request: TeamRequest, cluster: str) -> HttpResponse:
    """Have it run the next version."""
    row, version = _row(request, cluster), request.POST.get("version", "")
    return _answer(
        request,
        cluster,
        lambda: tenant_cluster_upgrade(row=row, version=version, actor=request.actor),
        f"It is being upgraded to Kubernetes {version}.",
    )


@require_http_methods(["GET", "HEAD", "POST"])
@team_page(Perm.CLUSTER_MANAGE)
def delete(request: TeamRequest, cluster: str) -> HttpResponse:
    """The last question: type the name."""
    row = _row(request, cluster)
    form = DeleteClusterForm(request.POST or None, row=row)
    if request.method == "POST" and form.is_valid():
        try:
            tenant_cluster_delete(row=row, actor=request.actor)
        except Problem as problem:
            if problem.status not in (*REFUSALS, 403):
                raise
            form.add_problem(problem)
        else:
            messages.success(request, "It is being deleted. It is gone when the host has nothing of it any more.")
            return _to(request, "tenant-cluster", cluster)

    def context() -> dict[str, Any]:
        return {"row": row, "form": form, "parts": list(tenant_cluster_parts(row))}

    status = 422 if request.method == "POST" else 200
    return team_render(request, "tenants/tenant_cluster_delete.html", context, status)


@require_POST
@never_cache
@team_page(Perm.CLUSTER_USE)
def kubeconfig(request: TeamRequest, cluster: str) -> HttpResponse:
    """The kubeconfig as a file. It holds no secret; each one that is fetched is audited."""
    row = _row(request, cluster)
    try:
        text = tenant_cluster_kubeconfig(row=row, actor=request.actor)
    except Problem as problem:
        if problem.status not in REFUSALS:
            raise
        return _page(request, cluster, problem.status, refusal=problem.detail)
    answer = HttpResponse(text, content_type="application/yaml")
    answer["Content-Disposition"] = f'attachment; filename="{row.name}-{row.cluster.slug}.yaml"'
    return answer


@require_POST
@team_page(Perm.CLUSTER_MANAGE)
def robots(request: TeamRequest, cluster: str) -> HttpResponse:
    """Make a robot."""
    row, form = _row(request, cluster), RobotForm(request.POST)
    if form.is_valid():
        try:
            robot_create(row=row, **form.cleaned_data, actor=request.actor)
        except Problem as problem:
            if problem.status not in REFUSALS:
                raise
            form.add_problem(problem)
        else:
            messages.success(request, f"Robot {form.cleaned_data['name']} is being made.")
            return _to(request, "tenant-cluster", cluster)
    return _page(request, cluster, 422, robot_form=form)


@require_POST
@never_cache
@team_page(Perm.CLUSTER_MANAGE)
def token(request: TeamRequest, cluster: str, robot: str) -> HttpResponse:
    """Ask for a robot's token and show it, this once."""
    row, found, form = _row(request, cluster), _robot(request, cluster, robot), TokenForm(request.POST)
    if not form.is_valid():
        return _page(request, cluster, 422, token_form=form, token_robot=robot)
    try:
        issued = robot_token(robot=found, actor=request.actor, seconds=form.cleaned_data["minutes"] * 60)
    except Problem as problem:
        if problem.status not in REFUSALS:
            raise
        return _page(request, cluster, problem.status, refusal=problem.detail, token_form=form, token_robot=robot)
    return team_render(request, "tenants/robot_token.html", lambda: {"row": row, "robot": found, "issued": issued})


@require_POST
@team_page(Perm.CLUSTER_MANAGE)
def remove_robot(request: TeamRequest, cluster: str, robot: str) -> HttpResponse:
    """Take a robot's access away."""
    found = _robot(request, cluster, robot)
    return _answer(
        request,
        cluster,
        lambda: robot_delete(robot=found, actor=request.actor),
        f"Robot {robot} is being removed; its tokens end with it.",
    )


@require_safe
@platform_page()
def platform_clusters(request: HttpRequest) -> HttpResponse:
    """All tenant clusters, those that need somebody first."""

    def context() -> dict[str, Any]:
        rows = list(tenant_clusters())
        calm = (TenantCluster.Phase.READY, TenantCluster.Phase.PAUSED)
        actor: Actor = request.actor  # type: ignore[attr-defined]  # set by ActorMiddleware
        return {
            "rows": sorted(rows, key=lambda row: row.phase in calm),
            "may_change": actor.is_platform(PLATFORM_ADMIN),
        }

    return system_render(request, "platform pages: tenant clusters", "tenants/platform_clusters.html", context)


def _row(request: TeamRequest, slug: str) -> TenantCluster:
    with tenant_scope(request.tenant.pk):
        return tenant_cluster_on(request.tenant, slug)


def _robot(request: TeamRequest, slug: str, name: str) -> Robot:
    with tenant_scope(request.tenant.pk):
        found = robots_of(tenant_cluster_on(request.tenant, slug)).filter(name=name).first()
    if found is None:
        raise NotFound(f"There is no robot {name} on this tenant cluster.")
    return found


def _answer(request: TeamRequest, slug: str, service: Callable[[], object], done: str) -> HttpResponse:
    try:
        service()
    except Problem as problem:
        if problem.status not in REFUSALS:
            raise
        return _page(request, slug, problem.status, refusal=problem.detail)
    messages.success(request, done)
    return _to(request, "tenant-cluster", slug)


def _to(request: TeamRequest, name: str, *args: str) -> HttpResponse:
    return HttpResponseRedirect(reverse(f"tenants:{name}", args=[request.tenant.slug, *args]), status=303)
