"""What a tenant may run: registries, pinned digests, code of models' repositories. Set by platform-admins.

The same rules hold twice: when a manifest is handed in (:mod:`tenants.manifest.rules`), and by the clusters themselves
for every pod of the tenant's namespaces (:mod:`infra.adapters.admission`), whoever made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.problems import Invalid
from portal.kernel.scoping import system_scope
from tenants.manifest import broken_rules
from tenants.models import ModelDeployment, Tenant, TenantNamespace
from tenants.permissions import Perm, require
from tenants.services.manifests import rules_of
from tenants.stored import manifest_of

MOST_REGISTRIES = 50
_REGISTRY = re.compile(r"(?P<host>[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?)(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")


@dataclass(frozen=True)
class RulesSet:
    """The tenant with its new rules, and its live deployments whose pods they refuse from now on."""

    tenant: Tenant
    broken: list[str]

    @property
    def sentence(self) -> str:
        """What a page says after the change."""
        if not self.broken:
            return "Stored. The clusters follow within moments."
        return (
            f"Stored. These deployments break the new rules: {', '.join(self.broken)}. Their pods run on, but none "
            "is made again: give them an image that is allowed."
        )


def tenant_rules_set(
    *,
    tenant: Tenant,
    image_registries: Iterable[str] | None,
    pin_image_digests: bool,
    allow_remote_code: bool,
    actor: Actor,
) -> RulesSet:
    """Set what a tenant may run. Its namespaces are told at once; what runs is not ended.

    Args:
        image_registries: registries or repositories (``ghcr.io``, ``docker.io/vllm``); None: any, empty: none at all.

    Raises:
        Invalid: an entry is no registry; each is named.
    """
    require(actor, Perm.TENANT_MANAGE)
    registries = None if image_registries is None else checked_registries(image_registries)
    with system_scope("tenant_rules_set"):
        row = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        before = _facts(row)
        row.image_registries = registries
        row.pin_image_digests, row.allow_remote_code = pin_image_digests, allow_remote_code
        after = _facts(row)
        if after != before:
            row.generation += 1
            row.save(update_fields=["image_registries", "pin_image_digests", "allow_remote_code", "generation"])
            audit.record(
                "tenant_rules_set", actor=actor, tenant_id=row.pk, object_kind="tenant", object_id=row.pk,
                object_name=row.slug, before=before, after=after,
            )  # fmt: skip
            spaces = TenantNamespace.objects.filter(tenant=row).order_by("pk")
            workqueue.mark_many([workqueue.Mark("namespace", space.pk, space.cluster_id, row.pk) for space in spaces])
        return RulesSet(row, _broken(row))


def checked_registries(values: Iterable[str]) -> list[str]:
    """Registries as they are stored: without white space, a slash at the end, or twice the same.

    Raises:
        Invalid: one is none.
    """
    found = list(dict.fromkeys(value.strip().rstrip("/") for value in values if value.strip()))
    errors = []
    for number, value in enumerate(found):
        match = _REGISTRY.fullmatch(value)
        host = match["host"] if match else ""
        if not match or not ("." in host or ":" in host or host == "localhost"):
            detail = (
                f"{value} is no registry: write ghcr.io, registry.example.com:5000/team or docker.io/vllm, without "
            )
            errors.append({"pointer": f"/image_registries/{number}", "detail": detail + "https:// and without a tag."})
    if errors:
        raise Invalid(errors=errors)
    if len(found) > MOST_REGISTRIES:
        raise Invalid.field("/image_registries", f"Name at most {MOST_REGISTRIES}.")
    return found


def _broken(row: Tenant) -> list[str]:
    rules = rules_of(row)
    live = ModelDeployment.objects.filter(tenant=row, deleted_at__isnull=True).order_by("name")
    return [one.name for one in live if broken_rules(manifest_of(one), rules)]


def _facts(row: Tenant) -> dict[str, object]:
    return {
        "image_registries": row.image_registries,
        "pin_image_digests": row.pin_image_digests,
        "allow_remote_code": row.allow_remote_code,
    }
