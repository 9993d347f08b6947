"""The platform's first pages: overview, audit."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from infra.models import Cluster
from infra.selectors.claims import unmapped_namespaces
from infra.selectors.clusters import cluster_list
from infra.selectors.health import faults_now
from infra.selectors.operations import credential_states
from infra.selectors.overview import pool_figures
from portal.kernel.actors import PLATFORM_VIEWER
from portal.kernel.audit import READ_ACROSS
from portal.kernel.conditions import get_condition
from portal.kernel.models import AuditEvent, Heartbeat, WorkItem
from portal.kernel.problems import BadRequest
from portal.kernel.web import platform_page, system_render
from tenants.models import ModelDeployment, Tenant

PAGE = 50


@require_safe
@platform_page()
def overview(request: HttpRequest) -> HttpResponse:
    """What needs attention, then what there is."""

    def context() -> dict[str, Any]:
        clusters = list(cluster_list())
        waiting = ModelDeployment.objects.filter(waiting_since__isnull=False, deleted_at__isnull=True)
        return {
            "attention": _attention(clusters),
            "pools": pool_figures(clusters),
            "clusters": clusters,
            "tenants": Tenant.objects.count(),
            "deployments": ModelDeployment.objects.filter(deleted_at__isnull=True).count(),
            "waiting": waiting.select_related("tenant").defer("spec", "source").order_by("created_at")[:10],
            "heartbeats": Heartbeat.objects.order_by("kind", "instance"),
        }

    return system_render(request, "platform overview", "home/platform.html", context)


def _attention(clusters: list[Cluster]) -> list[tuple[str, str]]:
    """(sentence, address) of each thing that somebody should look at."""
    found: list[tuple[str, str]] = []
    for one in credential_states(timezone.now()):
        if one.state in ("expired", "soon"):
            ends = f"{one.cluster.credential_expires_at:%Y-%m-%d %H:%M} UTC"
            word = "ended" if one.state == "expired" else "end"
            found.append((f"{one.cluster.slug}: its credentials {word} at {ends}.", reverse("infra:operations")))
    for cluster in clusters:
        address = reverse("infra:cluster", args=[cluster.slug])
        for kind in (
            "Reachable", "CredentialsValid", "RightsComplete", "PodsWatched", "NodesWatched", "NamespacesWatched",
        ):  # fmt: skip
            condition = get_condition(cluster.conditions, kind)
            if condition is not None and condition.status == "False":
                found.append((f"{cluster.slug}: {condition.message or condition.reason}", address))
        if cluster.paused:
            found.append((f"{cluster.slug} is paused: nothing is written to it.", address))
    found += [
        (
            f"Namespace {row.namespace} on {row.cluster} holds cards in {row.live} pods and is nobody's.",
            reverse("tenants:namespaces"),
        )
        for row in unmapped_namespaces(clusters)[:5]
        if row.live
    ]
    found += [(fault.sentence, reverse("infra:health")) for fault in faults_now([one.pk for one in clusters], 8)]
    stalled = WorkItem.objects.filter(stalled_at__isnull=False).count()
    if stalled:
        address = f"{reverse('home:work')}?state=stalled"
        found.append((f"{stalled} items of the work queue fail again and again.", address))
    return found


@require_safe
@platform_page(PLATFORM_VIEWER)
def audit(request: HttpRequest) -> HttpResponse:
    """Who did what, everywhere, the newest first; the reading of platform pages only on demand, for there is much."""
    search, outcome, reads, cursor = (request.GET.get(name, "").strip() for name in ("q", "outcome", "reads", "cursor"))
    chosen = {name: value for name, value in (("q", search), ("outcome", outcome), ("reads", reads)) if value}

    def context() -> dict[str, Any]:
        rows = AuditEvent.objects.all() if reads else AuditEvent.objects.exclude(verb=READ_ACROSS)
        if search:
            rows = rows.filter(
                Q(actor_label__icontains=search)
                | Q(verb__icontains=search)
                | Q(object_name__icontains=search)
                | Q(request_id=search)
            )
        if outcome:
            rows = rows.filter(outcome=outcome)
        if cursor:
            try:
                rows = rows.filter(id__lt=UUID(cursor))
            except ValueError as error:
                raise BadRequest(
                    "This is no cursor that a page of this list gave. Start from the first page."
                ) from error
        found = list(rows.order_by("-id")[: PAGE + 1])
        more, found = len(found) > PAGE, found[:PAGE]
        return {
            "rows": [(event, _told(event)) for event in found],
            "tenants": dict(Tenant.objects.values_list("pk", "slug")),
            "search": search,
            "outcome": outcome,
            "reads": reads,
            "outcomes": AuditEvent.Outcome.choices,
            "next_query": urlencode(chosen | {"cursor": str(found[-1].pk)}) if more else "",
        }

    return system_render(request, "platform audit", "home/audit.html", context)


def _told(event: AuditEvent) -> str:
    """Before and after as text, for the page."""
    facts = {name: value for name, value in (("before", event.before), ("after", event.after)) if value is not None}
    return json.dumps(facts, indent=1, ensure_ascii=False) if facts else ""
