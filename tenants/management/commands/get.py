"""``manage.py get deployments``: a tenant's deployments as a table, or one of them with all it says of itself."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from portal.kernel.scoping import tenant_scope
from tenants.commanding import actor_named, tenant_named
from tenants.manifest import to_yaml
from tenants.models import ModelDeployment, Tenant
from tenants.permissions import Perm, require
from tenants.selectors.deployments import DeploymentRow, deployment_detail, deployments_page
from tenants.stored import manifest_of

COLUMNS = ("NAME", "READY", "PHASE", "CLUSTERS", "WAITING")


class Command(BaseCommand):
    help = "Show deployments of a tenant."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("kind", choices=["deployments", "deployment"])
        parser.add_argument("name", nargs="?")
        parser.add_argument("-n", "--tenant", required=True, help="slug of the tenant")
        parser.add_argument("--as", dest="user", help="the user who asks; else the command line itself")
        parser.add_argument("-o", "--output", choices=["table", "yaml", "json"], default="table")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        require(actor_named(options["user"]), Perm.TENANT_READ, tenant)
        with tenant_scope(tenant.pk):
            if options["name"]:
                self._one(tenant, options["name"], options["output"])
            else:
                self._all(tenant, options["output"])

    def _one(self, tenant: Tenant, name: str, output: str) -> None:
        detail = deployment_detail(tenant=tenant, name=name)
        if output == "yaml":
            self.stdout.write(to_yaml(manifest_of(detail.deployment)))
            return
        if output == "json":
            self.stdout.write(json.dumps(_status(detail.deployment), indent=2))
            return
        self._table([_row(detail.deployment, {replica.cluster.slug for replica in detail.replicas})])
        for replica in detail.replicas:
            self.stdout.write(f"  replica {replica.index} on {replica.cluster.slug}: {replica.phase} {replica.message}")
        for event in reversed(detail.events):
            times = f" ({event.count} times)" if event.count > 1 else ""
            self.stdout.write(f"  {event.last_at:%Y-%m-%d %H:%M:%S}Z {event.reason}: {event.message}{times}")

    def _all(self, tenant: Tenant, output: str) -> None:
        rows: list[DeploymentRow] = []
        cursor = ""
        while True:
            page = deployments_page(tenant=tenant, cursor=cursor, limit=200)
            rows += page.rows
            cursor = page.next_cursor
            if not cursor:
                break
        if output == "json":
            self.stdout.write(json.dumps([_status(row.deployment) for row in rows], indent=2))
        elif output == "yaml":
            manifests = [to_yaml(manifest_of(row.deployment)) for row in rows]
            self.stdout.write("---\n".join(manifests))
        else:
            self._table([_row(row.deployment, set(row.clusters)) for row in rows])

    def _table(self, rows: list[tuple[str, ...]]) -> None:
        widths = [max(len(row[column]) for row in [COLUMNS, *rows]) for column in range(len(COLUMNS))]
        for row in [COLUMNS, *rows]:
            self.stdout.write("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _row(deployment: ModelDeployment, clusters: set[str]) -> tuple[str, ...]:
    ready = f"{deployment.ready_replicas}/{deployment.replicas}"
    return (deployment.name, ready, deployment.phase, ",".join(sorted(clusters)) or "-", deployment.waiting or "-")


def _status(deployment: ModelDeployment) -> dict[str, Any]:
    return {
        "name": deployment.name,
        "generation": deployment.generation,
        "observedGeneration": deployment.observed_generation,
        "replicas": deployment.replicas,
        "readyReplicas": deployment.ready_replicas,
        "phase": deployment.phase,
        "waiting": deployment.waiting,
        "conditions": deployment.conditions,
    }
