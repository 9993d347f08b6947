"""The fleet's pages, for platform roles. Reading is for all of them, changing for platform-admins."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from infra.models import Cluster, GPUType, NamespaceClaim, Node, Site
from infra.rights import RightsReport
from infra.selectors.claims import unmapped_namespaces
from infra.selectors.clusters import cluster_by_slug, cluster_list, pool_by_name
from infra.selectors.health import faults_now
from infra.selectors.history import history_of
from infra.selectors.inventory import left_on
from infra.selectors.overview import live_pods_by_cluster, pool_figures
from infra.services import clusters as services
from infra.services.classes import inference_class_apply, inference_cluster_apply
from infra.services.overcommit import pool_overcommit_set
from infra.web.forms import AbandonForm, ClusterDescription, ConnectForm, KubeconfigForm, ManifestForm, SiteForm
from infra.web.history import HistoryForm
from infra.web.manifests import manifest_documents
from infra.web.rights import rights_context
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.problems import Invalid, Problem
from portal.kernel.web import person_of, platform_page


def _to_cluster(slug: str) -> HttpResponse:
    return HttpResponseRedirect(reverse("infra:cluster", args=[slug]), status=303)


@require_safe
@platform_page()
def clusters(request: HttpRequest) -> HttpResponse:
    """All clusters with their pools."""
    rows = list(cluster_list(abandoned=True).prefetch_related("watch_targets"))
    pods = live_pods_by_cluster()
    context = {
        "rows": [(cluster, pods[cluster.pk]) for cluster in rows],
        "pools": pool_figures([cluster for cluster in rows if cluster.abandoned_at is None]),
        "sites": Site.objects.order_by("slug"),
        "gpu_types": GPUType.objects.order_by("slug"),
        "may_change": person_of(request).is_platform(PLATFORM_ADMIN),
    }
    return render(request, "infra/clusters.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@platform_page(PLATFORM_ADMIN)
def connect(request: HttpRequest) -> HttpResponse:
    """Connect a cluster: it is asked for its version, its identity and our rights before anything is stored."""
    form = ConnectForm(request.POST or None, initial={"mode": request.GET.get("mode", Cluster.Mode.OBSERVE)})
    report: RightsReport | None = None
    if request.method == "POST" and form.is_valid():
        try:
            cluster = services.cluster_connect(**form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
            report = RightsReport.load(problem.extra.get("rights") or {})
        else:
            messages.success(request, f"{cluster.slug} is connected. Its nodes and pods appear within seconds.")
            if cluster.mode == Cluster.Mode.OBSERVE:
                return HttpResponseRedirect(reverse("billing:adoption", args=[cluster.slug]), status=303)
            return _to_cluster(cluster.slug)
    status = 422 if form.is_bound and form.errors else 200
    context = {"form": form, "site_form": SiteForm(prefix="site"), **rights_context(report)}
    return render(request, "infra/connect.html", context, status=status)


@require_POST
@platform_page(PLATFORM_ADMIN)
def site_create(request: HttpRequest) -> HttpResponse:
    """Make a site."""
    form = SiteForm(request.POST, prefix="site")
    if form.is_valid():
        try:
            site = services.site_create(**form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, f"Site {site.slug} is there now.")
            return HttpResponseRedirect(reverse("infra:connect"), status=303)
    return render(request, "infra/connect.html", {"form": ConnectForm(), "site_form": form}, status=422)


@require_safe
@platform_page()
def cluster(request: HttpRequest, slug: str) -> HttpResponse:
    """One cluster: state, watches, pools, nodes, namespaces."""
    return _cluster_page(request, cluster_by_slug(slug))


def _cluster_page(request: HttpRequest, row: Cluster, status: int = 200, **more: Any) -> HttpResponse:
    described = {
        "name": row.name,
        "site": row.site.slug,
        "labels": " ".join(f"{key}={value}" for key, value in sorted(row.labels.items())),
        "system_namespaces": " ".join(row.system_namespaces),
    }
    context = {
        "cluster": row,
        "watches": row.watch_targets.order_by("resource"),
        "pools": pool_figures([row]),
        "nodes": Node.objects.filter(cluster=row, gone_at__isnull=True).select_related("pool").order_by("name"),
        "claims": NamespaceClaim.objects.filter(cluster=row, valid_to__isnull=True).order_by("namespace"),
        "unmapped": [] if row.abandoned_at else unmapped_namespaces([row]),
        "leftovers": left_on(row.pk) if row.abandoned_at else [],
        "may_change": person_of(request).is_platform(PLATFORM_ADMIN) and row.abandoned_at is None,
        "described": ClusterDescription(initial=described),
        "faults": [] if row.abandoned_at else faults_now([row.pk]),
        "history": history_of(row),
        "history_form": HistoryForm(),
        "kubeconfig": KubeconfigForm(),
        "abandon": AbandonForm(),
        **more,
    }
    return render(request, "infra/cluster.html", context, status=status)


@require_POST
@platform_page(PLATFORM_ADMIN)
def cluster_update(request: HttpRequest, slug: str) -> HttpResponse:
    """Change what is ours to say about it."""
    row, form = cluster_by_slug(slug), ClusterDescription(request.POST)
    if form.is_valid():
        try:
            services.cluster_update(cluster=row, **form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, "Stored.")
            return _to_cluster(slug)
    return _cluster_page(request, row, 422, described=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def pool_overcommit(request: HttpRequest, slug: str, name: str) -> HttpResponse:
    """Declare how much memory a HAMi pool hands out of each card."""
    row = cluster_by_slug(slug)
    pool = pool_by_name(row, name)
    text = request.POST.get("percent", "").strip()
    try:
        if text and not (text.isdecimal() and len(text) <= 6):
            raise Invalid.field("/percent", f"{text[:32]!r} is no whole number of percent.")
        pool_overcommit_set(pool=pool, percent=int(text) if text else None, actor=person_of(request))
    except Problem as problem:
        if not problem.errors:
            return _cluster_page(request, row, problem.status, refusal=[problem.detail])
        errors = [error["detail"] for error in problem.errors]
        return _cluster_page(
            request, row, 422, overcommit_errors=errors, overcommit_pool=name, overcommit_text=text[:32]
        )
    messages.success(request, "Stored. Pods that are bound from now on are priced by it.")
    return _to_cluster(slug)


@require_POST
@platform_page(PLATFORM_ADMIN)
def cluster_act(request: HttpRequest, slug: str, action: str) -> HttpResponse:
    """Pause, resume, observe, manage."""
    row, actor = cluster_by_slug(slug), person_of(request)
    try:
        if action == "pause":
            services.cluster_pause(cluster=row, actor=actor)
        elif action == "resume":
            services.cluster_resume(cluster=row, actor=actor)
        else:
            services.cluster_set_mode(cluster=row, mode=action, actor=actor)
    except Problem as problem:
        lines = [problem.detail, *(error["detail"] for error in problem.errors)]
        return _cluster_page(request, row, problem.status, refusal=list(dict.fromkeys(lines)))
    messages.success(request, "Done.")
    return _to_cluster(slug)


@require_POST
@platform_page(PLATFORM_ADMIN)
def cluster_kubeconfig(request: HttpRequest, slug: str) -> HttpResponse:
    """Take new credentials of the same cluster."""
    row, form = cluster_by_slug(slug), KubeconfigForm(request.POST)
    if form.is_valid():
        try:
            services.cluster_rotate_kubeconfig(cluster=row, **form.cleaned_data, actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, "The new credentials are in use.")
            return _to_cluster(slug)
    return _cluster_page(request, row, 422, kubeconfig=form)


@require_POST
@platform_page(PLATFORM_ADMIN)
def cluster_abandon(request: HttpRequest, slug: str) -> HttpResponse:
    """Give it up, after its name was typed and a reason given."""
    row, form = cluster_by_slug(slug), AbandonForm(request.POST)
    if form.is_valid() and form.cleaned_data["confirm"] != slug:
        form.add_error("confirm", f"Type {slug} to say that you mean this cluster.")
    if form.is_valid():
        try:
            services.cluster_abandon(cluster=row, reason=form.cleaned_data["reason"], actor=person_of(request))
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, f"{slug} is given up. What was left on it is listed below.")
            return _to_cluster(slug)
    return _cluster_page(request, row, 422, abandon=form)


@require_http_methods(["GET", "HEAD", "POST"])
@platform_page(PLATFORM_ADMIN)
def manifests(request: HttpRequest) -> HttpResponse:
    """Apply InferenceClass and InferenceCluster manifests."""
    form = ManifestForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            for document in manifest_documents(form.cleaned_data["manifest"]):
                apply = inference_class_apply if document.get("kind") == "InferenceClass" else inference_cluster_apply
                done = apply(manifest=document, actor=person_of(request))
                for note in getattr(done, "notes", ()):
                    messages.warning(request, note)
        except Problem as problem:
            form.add_problem(problem)
        else:
            messages.success(request, "Applied.")
            return HttpResponseRedirect(reverse("infra:clusters"), status=303)
    return render(request, "infra/manifests.html", {"form": form}, status=422 if form.errors else 200)
