"""Tenant clusters in tests: asked for by the product's services, made by the stand-in, looked at from all sides.

def test_something(standin, db):
    with tenant_estate(standin, "ml-team") as made:
        row = made.request("ml-team", cards=4)
        made.until(lambda: made.row(row).phase == "Ready", "Ready")
        made.inside(row, "GET", "/api/v1/pods")      # as the administrator of its API server
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F
from django.db.models.functions import Now

from infra.kube.client import KubeClient
from infra.kube.errors import KubeError
from infra.models import GPUType
from portal.kernel.models import WorkItem
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import run_item
from tenants.models import Tenant, TenantCluster
from tenants.reconcilers.tenantcluster import look_at_all
from tenants.services.tenantclusters import tenant_cluster_request
from tests.support.estate import ADMIN, Estate, estate
from tests.support.standin import RELEASES, StandIn, TenantServer
from tests.support.tenants import CARD, give_quota, make_tenant

KINDS = ("namespace", "tenantcluster", "isolation")
PATIENCE = 150.0
HOME = "aifactory-tenants"
SOURCES = "/apis/source.toolkit.fluxcd.io/v1/namespaces/{}/helmrepositories"


@dataclass
class TenantEstate:
    """A host cluster with the stand-in, and tenants that may use it."""

    estate: Estate
    standin: StandIn
    tenants: dict[str, Tenant] = field(default_factory=dict)
    servers: dict[str, TenantServer] = field(default_factory=dict)
    """By tenant: the API server in the role of its tenant cluster."""

    @property
    def host(self) -> KubeClient:
        """The portal's client of the host."""
        return self.estate.client(self.standin.host.name)

    def request(self, slug: str, *, cards: int = 4, quota: int = 8, version: str = "") -> TenantCluster:
        """Give the tenant a quota of H100s and ask for its tenant cluster; it gets the next free API server."""
        tenant = self.tenants[slug]
        gpu_type = GPUType.objects.get(slug__contains="h100")
        give_quota(tenant, gpu_type, quota)
        used = {server.name for server in self.servers.values()}
        self.servers[slug] = next(one for name, one in self.standin.tenants.items() if name not in used)
        return tenant_cluster_request(
            tenant=tenant,
            cluster=self.estate.clusters[self.standin.host.name],
            allotments={gpu_type.slug: cards * CARD},
            version=version,
            endpoint=self.servers[slug].server,
            actor=ADMIN,
        )

    def row(self, row: TenantCluster) -> TenantCluster:
        """The row as it is now."""
        with system_scope("test"):
            return TenantCluster.objects.select_related("tenant", "cluster").get(pk=row.pk)

    def inside(self, row: TenantCluster, method: str, path: str, body: Any = None, **rest: Any) -> Any:
        """Ask the tenant cluster's API server as its administrator; the answer, which must be a good one."""
        code, answer = self.servers[row.name].call(method, path, body, **rest)
        assert code < 300, (method, path, code, answer)
        return answer

    def until(self, done: Callable[[], Any], what: str, *, soon: bool = False) -> Any:
        """Let the reconcilers work until ``done`` is true; its value. ``soon``: what is settled is looked at, too."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if soon:  # as the tick does every minute
                look_at_all()
            look()
            if answer := done():
                return answer
            time.sleep(0.1)
        with system_scope("test"):
            rows = [(one.name, one.phase, one.conditions, one.leftovers) for one in TenantCluster.objects.all()]
        said = list(WorkItem.objects.filter(kind__in=KINDS).exclude(last_error="").values_list("kind", "last_error"))
        raise AssertionError(f"{what} did not come about; {rows}; {said}")


def look() -> None:
    """Run what is due, and what waits for its next look (tests don't wait for a back-off)."""
    items = WorkItem.objects.filter(kind__in=KINDS, next_attempt_at__isnull=False).exclude(lease_until__gt=Now())
    for pk in items.order_by("next_attempt_at", "id").values_list("pk", flat=True):
        WorkItem.objects.filter(pk=pk).update(next_attempt_at=F("marked_at"))
        run_item(pk)


@contextmanager
def tenant_estate(standin: StandIn, *slugs: str) -> Iterator[TenantEstate]:
    """Connect the host, and have these tenants there; what a test leaves on the host is taken away at its end."""
    with estate({standin.host.name: standin.host}, standin.host.name, slug=slugs[0], clear=False) as found:
        made = TenantEstate(found, standin)
        for slug in slugs:
            made.tenants[slug] = found.tenant if slug == found.tenant.slug else make_tenant(slug, sites=())
            if slug != found.tenant.slug:
                made.tenants[slug].site_rows.create(site=found.clusters[standin.host.name].site)
        try:
            yield made
        finally:
            _clear(made, slugs)


def _clear(made: TenantEstate, slugs: tuple[str, ...]) -> None:
    for slug in slugs:
        made.standin.host.call("DELETE", f"{RELEASES.format(HOME)}/{slug}")
        end = time.monotonic() + PATIENCE
        while made.standin.release(slug) is not None and time.monotonic() < end:
            time.sleep(0.1)
        made.standin.host.call("DELETE", f"{SOURCES.format(HOME)}/{slug}")
        with contextlib.suppress(KubeError):
            found = made.host.get("v1", "Namespace", f"vc-{slug}")
            made.host.delete("v1", "Namespace", f"vc-{slug}", uid=found["metadata"]["uid"])
            while time.monotonic() < end:
                made.host.get("v1", "Namespace", f"vc-{slug}")
                time.sleep(0.2)
