"""The page of the work queue: what fails and why, when it is tried next, and trying it now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from infra.models import Cluster
from infra.selectors.work import WorkState, work_items
from infra.services.work import work_item_retry
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.forms import PortalForm
from portal.kernel.models import WorkItem
from portal.kernel.web import actor_of, platform_page, system_render
from portal.kernel.workqueue.registry import kinds
from tenants.models import ModelDeployment, ModelReplica, Tenant, TenantCluster, TenantNamespace

PAGE = 50


class WorkFilter(PortalForm):
    """What the list is narrowed to; it lives in the address."""

    state = forms.ChoiceField(required=False, label="State", choices=WorkState.choices)
    kind = forms.ChoiceField(required=False, label="Kind")
    cluster = forms.ModelChoiceField(
        Cluster.objects.none(), required=False, to_field_name="slug", empty_label="all clusters"
    )
    tenant = forms.ModelChoiceField(
        Tenant.objects.none(), required=False, to_field_name="slug", empty_label="all tenants"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        kind, cluster, tenant = self.fields["kind"], self.fields["cluster"], self.fields["tenant"]
        assert isinstance(kind, forms.ChoiceField)
        assert isinstance(cluster, forms.ModelChoiceField)
        assert isinstance(tenant, forms.ModelChoiceField)
        kind.choices = [("", "any kind"), *((name, name) for name in kinds())]
        cluster.queryset = Cluster.objects.order_by("slug")
        tenant.queryset = Tenant.objects.order_by("slug")


@require_safe
@platform_page()
def work(request: HttpRequest) -> HttpResponse:
    """What the workers have to look at: failing first, then waiting."""

    def context() -> dict[str, Any]:
        form = WorkFilter(request.GET)
        data = form.cleaned_data if form.is_valid() else {}
        cluster, tenant = data.get("cluster"), data.get("tenant")
        narrowed = {
            "kind": data.get("kind", ""),
            "cluster_id": cluster.pk if cluster else None,
            "tenant_id": tenant.pk if tenant else None,
        }
        rows = work_items(state=data.get("state") or WorkState.OPEN, **narrowed)
        text = request.GET.get("page", "")
        number = max(1, min(int(text), 10_000)) if text.isascii() and text.isdigit() and len(text) < 6 else 1
        found = list(rows[(number - 1) * PAGE : number * PAGE + 1])
        more, found = len(found) > PAGE, found[:PAGE]
        actor = actor_of(request)
        return {
            "form": form,
            "rows": found,
            "names": names_of(found),
            "stalled": work_items(state=WorkState.STALLED, **narrowed).count(),
            "waiting": work_items(state=WorkState.OPEN, **narrowed).count(),
            "number": number,
            "more": more,
            "query": urlencode([(name, value) for name, value in request.GET.items() if value and name != "page"]),
            "clusters": dict(Cluster.objects.values_list("pk", "slug")),
            "tenants": dict(Tenant.objects.values_list("pk", "slug")),
            "may_change": actor is not None and actor.is_platform(PLATFORM_ADMIN),
        }

    return system_render(request, "work queue", "home/work.html", context)


@require_POST
@platform_page(PLATFORM_ADMIN)
def work_retry(request: HttpRequest, item_id: UUID) -> HttpResponse:
    """Have an item looked at now, whatever its back-off says."""
    actor = actor_of(request)
    assert actor is not None  # platform_page has seen to it
    item = work_item_retry(item_id=item_id, actor=actor)
    messages.success(request, f"The {item.kind} is looked at now.")
    return HttpResponseRedirect(reverse("home:work"), status=303)


def names_of(items: Iterable[WorkItem]) -> dict[UUID, str]:
    """What the objects are called, by their id; none for one that is gone or of another kind. In a system scope."""
    by_kind: dict[str, set[UUID]] = {}
    for item in items:
        by_kind.setdefault(item.kind, set()).add(item.object_id)
    every = set().union(*by_kind.values()) if by_kind else set()
    # Of many kinds the object is a cluster (its probe, its metering, its metrics).
    found: dict[UUID, str] = dict(Cluster.objects.filter(pk__in=every).values_list("pk", "slug"))
    if ids := by_kind.get("deployment"):
        found |= dict(ModelDeployment.objects.filter(pk__in=ids).values_list("pk", "name"))
    if ids := by_kind.get("namespace"):
        found |= dict(TenantNamespace.objects.filter(pk__in=ids).values_list("pk", "name"))
    if ids := by_kind.get("tenantcluster"):
        there = TenantCluster.objects.filter(pk__in=ids).values_list("pk", "tenant__slug", "cluster__slug")
        found |= {pk: f"{tenant} on {cluster}" for pk, tenant, cluster in there}
    if ids := by_kind.get("replica"):
        rows = ModelReplica.objects.filter(pk__in=ids).values_list("pk", "deployment__name", "index")
        found |= {pk: f"{name}, replica {index}" for pk, name, index in rows}
    return found
