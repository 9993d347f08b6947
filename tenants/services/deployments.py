"""Changing what a tenant wants to run. Every change bumps ``generation``, is audited, and marks the deployment.

Apply accepts what is valid and answers before anything is placed; what does not fit waits, and says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from django.db import IntegrityError, transaction

from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.etag import etag
from portal.kernel.problems import Conflict, Invalid, NotFound, PreconditionFailed
from portal.kernel.scoping import tenant_scope
from tenants.manifest import Manifest, to_data, to_spec, to_yaml
from tenants.manifest.parsing import MAX_REPLICAS
from tenants.models import ModelDeployment, Tenant
from tenants.permissions import Perm, require
from tenants.services.events import event_add
from tenants.services.manifests import ManifestSource, manifest_accept, source_text
from tenants.services.previews import Preview, preview_manifest
from tenants.stored import manifest_of

Outcome = Literal["created", "configured", "unchanged"]
_FREE_NAME_TRIES = 3


@dataclass(frozen=True)
class Applied:
    """What applying did. ``preview`` is there where it was asked for: with ``dry_run``, and with ``admit_now``."""

    deployment: ModelDeployment
    outcome: Outcome
    preview: Preview | None = None

    @property
    def message(self) -> str:
        """As ``kubectl`` says it."""
        return f"modeldeployment/{self.deployment.name} {self.outcome}"


def deployment_etag(deployment: ModelDeployment) -> str:
    """The version of the wish, for ``If-Match``."""
    return etag(deployment.generation)


def deployment_apply(
    *,
    tenant: Tenant,
    manifest: ManifestSource,
    actor: Actor,
    admit_now: bool = False,
    if_match: str | None = None,
    create_only: bool = False,
    dry_run: bool = False,
) -> Applied:
    """Create or change a deployment by its manifest; the same manifest again changes nothing.

    Args:
        manifest: YAML or JSON text, data, or a manifest.
        admit_now: refuse unless every replica would get a place at this moment.
        if_match: the ETag that the deployment must still have; None: whatever it has.
        create_only: refuse where there is a deployment of that name already.
        dry_run: check everything and store nothing; ``deployment`` is then not saved.

    Raises:
        Invalid: the manifest is not valid; every fault is named.
        Conflict: the deployment is being deleted, or (``admit_now``) something does not fit: the reasons are in
            ``extra["reasons"]``.
        PreconditionFailed: it is not the version that was read.
    """
    require(actor, Perm.DEPLOYMENT_WRITE, tenant)
    wanted = manifest_accept(tenant, manifest)
    text = source_text(manifest, wanted)
    preview = preview_manifest(tenant, wanted) if admit_now or dry_run else None
    if admit_now and preview is not None and not preview.fits:
        raise Conflict(
            preview.summary,
            code=preview.reason,
            reasons=preview.as_json()["not_chosen"],
            quota=preview.as_json()["quota"],
        )
    for _ in range(_FREE_NAME_TRIES):
        try:
            with tenant_scope(tenant.pk):
                deployment, outcome = _apply(tenant, wanted, text, actor, if_match, create_only)
                if dry_run:
                    transaction.set_rollback(True)
            return Applied(deployment, outcome, preview)
        except IntegrityError:
            # Somebody created the name between our look and our insert: look again, it is a change now.
            continue
    raise Conflict(f"Deployment {wanted.name} is being changed by somebody else all the time. Try again.")


def deployment_scale(
    *, tenant: Tenant, name: str, replicas: int, actor: Actor, if_match: str | None = None
) -> ModelDeployment:
    """Ask for another number of replicas (0: nothing runs, nothing is held).

    Raises:
        NotFound, Conflict, PreconditionFailed: as :func:`deployment_apply`. Invalid: not 0 to 100.
    """
    if not 0 <= replicas <= MAX_REPLICAS:
        raise Invalid.field("/replicas", f"replicas is {replicas}; choose 0 to {MAX_REPLICAS}.")
    return _change(
        "deployment_scale",
        tenant,
        name,
        actor,
        if_match,
        lambda manifest: replace(manifest, replicas=replicas),
    )


def deployment_set_image(
    *,
    tenant: Tenant,
    name: str,
    image: str,
    actor: Actor,
    engine: str | None = None,
    if_match: str | None = None,
) -> ModelDeployment:
    """Run another image in the ``engine`` container: of one engine, or (None) of all.

    Raises:
        NotFound, Conflict, PreconditionFailed: as :func:`deployment_apply`.
        Invalid: no such engine, or the image is not well formed or not allowed.
    """

    def change(manifest: Manifest) -> Manifest:
        if engine is not None and all(one.name != engine for one in manifest.engines):
            raise Invalid.field("/engine", f"There is no engine {engine}; it has {_names(manifest)}.")
        data = manifest_with_image(manifest, image, engine)
        return manifest_accept(tenant, data)

    return _change("deployment_set_image", tenant, name, actor, if_match, change)


def deployment_delete(*, tenant: Tenant, name: str, actor: Actor, if_match: str | None = None) -> ModelDeployment:
    """Have a deployment deleted. It is gone only when each cluster answered 404 for every object of it.

    Asking again is no fault. Raises NotFound, PreconditionFailed.
    """
    require(actor, Perm.DEPLOYMENT_WRITE, tenant)
    with tenant_scope(tenant.pk):
        deployment = deployment_locked(tenant, name, if_match)
        if deployment.deleting_at is not None:
            return deployment
        deployment.deleting_at = deployment.updated_at = utcnow()
        deployment.generation += 1
        deployment.phase = "Deleting"
        deployment.save(update_fields=["deleting_at", "updated_at", "generation", "phase"])
        event_add(deployment, "DeletionRequested", f"{actor.label} asked for its deletion.")
        _record("deployment_delete", actor, deployment, before={"replicas": deployment.replicas}, after=None)
        return deployment


def manifest_with_image(manifest: Manifest, image: str, engine: str | None) -> dict[str, Any]:
    """The manifest as data with another image, so that it is read and checked like any other."""
    data = to_data(manifest)
    for one in data["spec"]["template"]["spec"]["engines"]:
        if engine is not None and one["name"] != engine:
            continue
        for member in one["members"]:
            for container in member["template"]["spec"]["containers"]:
                if container["name"] == "engine":
                    container["image"] = image
    return data


def deployment_locked(tenant: Tenant, name: str, if_match: str | None = None) -> ModelDeployment:
    """The live deployment of that name, its row locked until the transaction ends.

    Raises:
        NotFound: there is none. PreconditionFailed: it has another ETag.
    """
    row = _locked_or_none(tenant, name)
    if row is None:
        raise NotFound(f"Tenant {tenant.slug} has no deployment {name}.")
    _require_match(row, if_match)
    return row


def _locked_or_none(tenant: Tenant, name: str) -> ModelDeployment | None:
    rows = ModelDeployment.objects.select_for_update(of=("self",), no_key=True)
    return rows.filter(tenant=tenant, name=name, deleted_at__isnull=True).first()


def _require_match(deployment: ModelDeployment, if_match: str | None) -> None:
    if if_match is None or if_match.strip() == "*":
        return
    if deployment_etag(deployment) not in [tag.strip() for tag in if_match.split(",")]:
        raise PreconditionFailed(
            f"Deployment {deployment.name} was changed since you read it. Read it again, then repeat your change."
        )


def _apply(
    tenant: Tenant, wanted: Manifest, text: str, actor: Actor, if_match: str | None, create_only: bool
) -> tuple[ModelDeployment, Outcome]:
    existing = _locked_or_none(tenant, wanted.name)
    if existing is None:
        if if_match is not None and if_match.strip() != "*":
            raise PreconditionFailed(f"Deployment {wanted.name} is gone, or was never there.")
        return _create(tenant, wanted, text, actor), "created"
    if create_only:
        sentence = f"There is a deployment {wanted.name} already. Choose another name, or edit that one."
        raise Invalid.field("/metadata/name", sentence)
    _require_match(existing, if_match)
    _require_alive(existing)
    if not _update(existing, wanted, text, actor, "deployment_apply"):
        return existing, "unchanged"
    return existing, "configured"


def _create(tenant: Tenant, wanted: Manifest, text: str, actor: Actor) -> ModelDeployment:
    deployment = ModelDeployment(tenant=tenant, name=wanted.name, created_by=actor.label[:150])
    _fill(deployment, wanted, text, tenant)
    deployment.save(force_insert=True)
    deployment.refresh_from_db(fields=["created_at", "updated_at"])
    event_add(deployment, "Created", f"{actor.label} asked for {_replicas(wanted.replicas)}.")
    _record("deployment_apply", actor, deployment, before=None, after=_facts(wanted))
    return deployment


def _update(deployment: ModelDeployment, wanted: Manifest, text: str, actor: Actor, verb: str) -> bool:
    """Store another wish; False where it is the one that is stored."""
    old = manifest_of(deployment)
    same = to_spec(wanted) == deployment.spec and dict(wanted.labels) == deployment.labels
    if same:
        if text != deployment.source:
            deployment.source = text
            deployment.save(update_fields=["source"])
        return False
    _fill(deployment, wanted, text, deployment.tenant)
    deployment.generation += 1
    deployment.updated_at = utcnow()
    deployment.save()
    event_add(deployment, "Changed", f"{actor.label} changed {_what_changed(old, wanted)}.")
    _record(verb, actor, deployment, before=_facts(old), after=_facts(wanted))
    return True


def _fill(deployment: ModelDeployment, wanted: Manifest, text: str, tenant: Tenant) -> None:
    deployment.spec = to_spec(wanted)
    deployment.labels = dict(wanted.labels)
    deployment.source = text
    deployment.replicas = wanted.replicas
    deployment.cost_code = wanted.cost_code or tenant.cost_code


def _change(
    verb: str,
    tenant: Tenant,
    name: str,
    actor: Actor,
    if_match: str | None,
    change: Callable[[Manifest], Manifest],
) -> ModelDeployment:
    require(actor, Perm.DEPLOYMENT_WRITE, tenant)
    with tenant_scope(tenant.pk):
        deployment = deployment_locked(tenant, name, if_match)
        _require_alive(deployment)
        wanted = change(manifest_of(deployment))
        _update(deployment, wanted, to_yaml(wanted), actor, verb)
        return deployment


def _require_alive(deployment: ModelDeployment) -> None:
    if deployment.deleting_at is not None:
        raise Conflict(f"Deployment {deployment.name} is being deleted. Wait until it is gone, or choose another name.")


def _record(
    verb: str,
    actor: Actor,
    deployment: ModelDeployment,
    *,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    """The audit event and the mark: both belong to every change."""
    audit.record(
        verb,
        actor=actor,
        tenant_id=deployment.tenant_id,
        object_kind="deployment",
        object_id=deployment.pk,
        object_name=deployment.name,
        before=before,
        after=after,
    )
    workqueue.mark("deployment", deployment.pk, tenant_id=deployment.tenant_id)


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "replicas": manifest.replicas,
        "images": [member.template.engine.image for engine in manifest.engines for member in engine.members],
        "spec": to_spec(manifest),
    }


def _what_changed(old: Manifest, new: Manifest) -> str:
    parts: list[str] = []
    if old.replicas != new.replicas:
        parts.append(f"replicas from {old.replicas} to {new.replicas}")
    before, after = _images(old), _images(new)
    if before != after:
        parts.append(f"the image from {', '.join(before)} to {', '.join(after)}")
    if replace(old, replicas=0, engines=()) != replace(new, replicas=0, engines=()):
        parts.append("where it may run or how it is labelled")
    if not parts or (before == after and old.engines != new.engines):
        parts.append("the engines")
    return " and ".join(parts)


def _images(manifest: Manifest) -> list[str]:
    return sorted({member.template.engine.image for engine in manifest.engines for member in engine.members})


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _names(manifest: Manifest) -> str:
    return ", ".join(engine.name for engine in manifest.engines)
