"""The audit: services write :func:`record` in their own transaction, refusals are written after the rollback."""

import logging
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import DatabaseError, models, transaction

from portal.kernel.actors import Actor, current_request
from portal.kernel.models import AuditEvent

logger = logging.getLogger(__name__)

HIDDEN = "(hidden)"
READ_ACROSS = "system_scope"
"""The verb of a person's or token's reading across tenants: a platform page was opened."""
_SECRET = re.compile(
    r"password|passwd|secret|token|kubeconfig|ciphertext|digest|credential|private|pepper|api_?key", re.IGNORECASE
)


def record(
    verb: str,
    *,
    actor: Actor,
    tenant_id: UUID | None,
    object_kind: str,
    object_id: UUID | None,
    object_name: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    outcome: str = AuditEvent.Outcome.DONE,
    reason: str = "",
) -> None:
    """Add an event within the caller's transaction: it is kept if and only if the change is.

    Args:
        verb: what was done, as the service is named: ``deployment_apply``.
        tenant_id: whose event it is; ``None`` for the platform's.
        object_kind: ``deployment``, ``cluster``, ...
        before: values of the fields that changed; secrets are hidden by their names.
        after: as ``before``.
    """
    request = current_request()
    event = AuditEvent(
        tenant_id=tenant_id,
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_label=actor.label[:200],
        verb=verb,
        object_kind=object_kind,
        object_id=object_id,
        object_name=object_name[:253],
        before=None if before is None else redact(before),
        after=None if after is None else redact(after),
        outcome=outcome,
        reason=reason,
        request_id=request.request_id if request else "",
        remote_address=request.remote_address if request else "",
    )
    # Around the scoped manager on purpose: an event may be added from anywhere, reading stays within the scope.
    anywhere: models.QuerySet[AuditEvent] = models.QuerySet(AuditEvent)
    anywhere.bulk_create([event])


def refused(
    verb: str,
    *,
    actor: Actor,
    tenant_id: UUID | None,
    object_kind: str,
    object_id: UUID | None,
    object_name: str,
    reason: str,
) -> None:
    """Add a refusal. Call it where the refused transaction has been rolled back; it commits on its own.

    It never raises for the database's sake: a refusal stays a refusal even if it could not be written down.
    """
    try:
        with transaction.atomic():
            record(
                verb,
                actor=actor,
                tenant_id=tenant_id,
                object_kind=object_kind,
                object_id=object_id,
                object_name=object_name,
                outcome=AuditEvent.Outcome.REFUSED,
                reason=reason,
            )
    except DatabaseError:
        logger.exception("a refusal could not be written to the audit", extra={"verb": verb})


def refusal_of(refusal: Mapping[str, Any] | None) -> None:
    """Write down the refusal that a problem carries, if it carries one (``Problem.refusal``)."""
    if refusal is not None:
        refused(**refusal)


def system_scope_opened(reason: str) -> None:
    """Write down that a person or a token opened the system scope, once a request and reason."""
    request = current_request()
    if request is None or request.actor is None or reason in request.audited_reasons:
        return
    request.audited_reasons.add(reason)
    record(
        READ_ACROSS,
        actor=request.actor,
        tenant_id=None,
        object_kind="scope",
        object_id=None,
        object_name="",
        reason=reason,
    )


def redact(value: Any) -> Any:
    """A copy fit for the audit: JSON types only, values under secret-looking names hidden.

    Also ``{"name": "HF_TOKEN", "value": ...}``, as manifests write environment variables.
    """
    if isinstance(value, Mapping):
        if value.get("value") and isinstance(value.get("name"), str) and _SECRET.search(value["name"]):
            return {**redact({key: item for key, item in value.items() if key != "value"}), "value": HIDDEN}
        return {
            str(key): HIDDEN if _SECRET.search(str(key)) and item not in (None, "") else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return HIDDEN
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
