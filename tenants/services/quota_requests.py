"""Asking for another quota: written by the tenant's owners, decided by a platform-admin who had no hand in it.

Order of locks: the request's row, then quota rows. Approving sets the quota in the same transaction.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from infra.models import GPUType
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.problems import Conflict, Forbidden, Invalid, NotFound
from portal.kernel.scoping import system_scope
from tenants.models import GPUQuota, QuotaComment, QuotaRequest, Tenant
from tenants.permissions import Perm, may, require
from tenants.services.allotments import cards, quota_locked
from tenants.services.quotas import LARGEST, quota_set

State = QuotaRequest.State
LOCK_REQUEST = True
"""Tests switch it off to see the race that the lock prevents. Nothing else may."""
LONGEST_TEXT = 4_000


def quota_request_create(
    *,
    tenant: Tenant,
    gpu_type: GPUType,
    limit: int,
    guaranteed: int = 0,
    starts_at: datetime | None = None,
    until: datetime | None = None,
    reason: str,
    submit: bool = False,
    actor: Actor,
) -> QuotaRequest:
    """Write a request (figures in millionths of a card); a draft, unless it is submitted at once.

    Raises:
        Invalid: a figure, time or the reason is none.
    """
    require(actor, Perm.QUOTA_REQUEST, tenant)
    _check(limit, guaranteed, starts_at, until, reason)
    with system_scope("quota_request_create"):
        row = QuotaRequest.objects.create(
            tenant=tenant,
            gpu_type=gpu_type,
            limit=limit,
            guaranteed=guaranteed,
            starts_at=starts_at,
            until=until,
            reason=reason.strip(),
            state=State.SUBMITTED if submit else State.DRAFT,
            submitted_at=utcnow() if submit else None,
            authors=_with(actor, []),
            created_by=actor.label,
        )
        _record("quota_request_create", row, actor, {}, _facts(row))
        return row


def quota_request_change(*, tenant: Tenant, request_id: UUID, actor: Actor, **values: Any) -> QuotaRequest:
    """Change a draft: ``limit``, ``guaranteed``, ``starts_at``, ``until``, ``reason``; what is left out stays."""
    require(actor, Perm.QUOTA_REQUEST, tenant)
    with system_scope("quota_request_change"):
        row = _locked(tenant, request_id, State.DRAFT, doing="changed")
        before = _facts(row)
        for name in ("limit", "guaranteed", "starts_at", "until", "reason"):
            if name in values:
                setattr(row, name, values[name])
        _check(row.limit, row.guaranteed, row.starts_at, row.until, row.reason)
        row.authors = _with(actor, row.authors)
        row.save(update_fields=["limit", "guaranteed", "starts_at", "until", "reason", "authors"])
        _record("quota_request_change", row, actor, before, _facts(row))
        return row


def quota_request_submit(*, tenant: Tenant, request_id: UUID, actor: Actor) -> QuotaRequest:
    """Hand a draft in."""
    require(actor, Perm.QUOTA_REQUEST, tenant)
    with system_scope("quota_request_submit"):
        row = _locked(tenant, request_id, State.DRAFT, doing="submitted")
        _check(row.limit, row.guaranteed, row.starts_at, row.until, row.reason)
        row.state, row.submitted_at, row.authors = State.SUBMITTED, utcnow(), _with(actor, row.authors)
        row.save(update_fields=["state", "submitted_at", "authors"])
        _record("quota_request_submit", row, actor, {"state": State.DRAFT}, {"state": row.state})
        return row


def quota_request_withdraw(*, tenant: Tenant, request_id: UUID, actor: Actor) -> QuotaRequest:
    """Take back what is not decided yet."""
    require(actor, Perm.QUOTA_REQUEST, tenant)
    with system_scope("quota_request_withdraw"):
        row = _locked(tenant, request_id, State.DRAFT, State.SUBMITTED, doing="withdrawn")
        before, row.state = row.state, State.WITHDRAWN
        row.save(update_fields=["state"])
        _record("quota_request_withdraw", row, actor, {"state": before}, {"state": row.state})
        return row


def quota_request_comment(*, tenant: Tenant, request_id: UUID, text: str, actor: Actor) -> QuotaComment:
    """Write to a request: its tenant's owners and platform-admins. A draft is its tenant's own affair."""
    if not may(actor, Perm.TENANT_MANAGE):
        require(actor, Perm.QUOTA_REQUEST, tenant)
    _check_text(text, "/text")
    with system_scope("quota_request_comment"):
        row = _found(QuotaRequest.objects.filter(tenant=tenant, pk=request_id))
        return QuotaComment.objects.create(tenant=tenant, request=row, author=actor.label, text=text.strip())


def quota_request_approve(*, tenant: Tenant, request_id: UUID, comment: str = "", actor: Actor) -> QuotaRequest:
    """Grant it. The quota is set in the same transaction, or by the tick where its time box begins later.

    Raises:
        Forbidden: the actor wrote it, whatever their roles.
        Conflict: it is not submitted (any more), its time has passed, or another time box of the type is in force.
    """
    with system_scope("quota_request_approve"):
        row = _deciding(tenant, request_id, actor, "approved")
        now = utcnow()
        if row.until is not None and row.until <= now:
            raise Conflict(f"Its time box ended at {row.until:%Y-%m-%d %H:%M} UTC. Deny it, or have it asked anew.")
        # With a row to lock, whoever decides another request of the type waits here and then sees this one.
        GPUQuota.objects.get_or_create(tenant=tenant, gpu_type=row.gpu_type)
        quota_locked(tenant.pk, [row.gpu_type_id])
        _refuse_second_box(row)
        _decide(row, State.APPROVED, actor, comment, now)
        if row.starts_at is None or row.starts_at <= now:
            _put_in_force(row, actor, now)
        return row


def quota_request_deny(*, tenant: Tenant, request_id: UUID, comment: str, actor: Actor) -> QuotaRequest:
    """Refuse it, and say why. Raises as :func:`quota_request_approve`."""
    with system_scope("quota_request_deny"):
        row = _deciding(tenant, request_id, actor, "denied")
        if not comment.strip():
            raise Invalid.field("/comment", "Say why it is denied: the team reads it.")
        _check_text(comment, "/comment")
        _decide(row, State.DENIED, actor, comment, utcnow())
        return row


def quota_requests_tick(now: datetime | None = None) -> int:
    """Put into force what begins, bring the former quota back where a time box has ended, and let undecided requests
    expire whose time has passed. Returns how many changed; each in a transaction of its own."""
    now = now or utcnow()
    begins = Q(state=State.APPROVED, in_force_since__isnull=True, starts_at__lte=now)
    ends = Q(state__in=(State.APPROVED, State.SUBMITTED, State.DRAFT), until__lte=now)
    with system_scope("quota requests"):
        due = list(QuotaRequest.objects.filter(begins | ends).order_by("until", "id").values_list("pk", flat=True))
    return sum(_tick_one(pk, now) for pk in due)


def _tick_one(pk: UUID, now: datetime) -> bool:
    with system_scope("quota request"):
        row = _rows().get(pk=pk)
        ended = row.until is not None and row.until <= now
        if row.state == State.APPROVED and row.in_force_since is not None and ended:
            _bring_back(row, now)
        elif row.state in (State.APPROVED, State.SUBMITTED, State.DRAFT) and ended:
            _expire(row, now, "Its time had passed before it came into force.")
        elif row.state == State.APPROVED and row.in_force_since is None and row.starts_at is not None:
            if row.starts_at > now:
                return False
            _put_in_force(row, Actor.system("quota requests"), now)
        else:
            return False
        return True


def _put_in_force(row: QuotaRequest, actor: Actor, now: datetime) -> None:
    quota = quota_locked(row.tenant_id, [row.gpu_type_id]).get(row.gpu_type_id)
    row.former_limit, row.former_guaranteed = (quota.limit, quota.guaranteed) if quota else (0, 0)
    done = quota_set(tenant=row.tenant, gpu_type=row.gpu_type, limit=row.limit, guaranteed=row.guaranteed, actor=actor)
    row.in_force_since, row.set_generation = now, done.quota.generation
    row.save(update_fields=["former_limit", "former_guaranteed", "in_force_since", "set_generation"])


def _bring_back(row: QuotaRequest, now: datetime) -> None:
    quota: GPUQuota | None = quota_locked(row.tenant_id, [row.gpu_type_id]).get(row.gpu_type_id)
    if quota is None or quota.generation != row.set_generation:
        _expire(row, now, "The quota was changed by somebody since it came into force: that stays.")
        return
    limit, guaranteed = row.former_limit or 0, row.former_guaranteed or 0
    quota_set(
        tenant=row.tenant,
        gpu_type=row.gpu_type,
        limit=limit,
        guaranteed=guaranteed,
        actor=Actor.system("quota requests"),
    )
    _expire(row, now, f"The former quota is back: limit {cards(limit)}, guaranteed {cards(guaranteed)} cards.")


def _expire(row: QuotaRequest, now: datetime, sentence: str) -> None:
    actor = Actor.system("quota requests")
    before, row.state, row.ended_at = row.state, State.EXPIRED, now
    row.save(update_fields=["state", "ended_at"])
    QuotaComment.objects.create(tenant_id=row.tenant_id, request=row, author=actor.label, text=sentence)
    _record("quota_request_expire", row, actor, {"state": before}, {"state": row.state})


def _refuse_second_box(row: QuotaRequest) -> None:
    """Two time boxes that overlap could not both bring the former quota back."""
    other = (
        QuotaRequest.objects.filter(
            tenant_id=row.tenant_id, gpu_type_id=row.gpu_type_id, state=State.APPROVED, until__isnull=False
        )
        .exclude(pk=row.pk)
        .first()
    )
    if other is not None:
        raise Conflict(
            f"Another grant of {row.gpu_type.slug} holds until {other.until:%Y-%m-%d %H:%M} UTC; then the former "
            "figures come back. Decide this one after that, or set the quota by hand."
        )


def _deciding(tenant: Tenant, request_id: UUID, actor: Actor, doing: str) -> QuotaRequest:
    require(actor, Perm.TENANT_MANAGE)
    row = _locked(tenant, request_id, State.SUBMITTED, doing=doing)
    if actor.user_id is None or str(actor.user_id) in row.authors:
        problem = Forbidden(
            f"{actor.label} had a hand in this request, so it is for another platform-admin to decide."
            if actor.user_id is not None
            else "A request is decided by a person."
        )
        problem.refusal = {
            "verb": "quota_request_decide",
            "actor": actor,
            "tenant_id": tenant.pk,
            "object_kind": "quota-request",
            "object_id": row.pk,
            "object_name": row.gpu_type.slug,
            "reason": problem.detail,
        }
        raise problem
    return row


def _decide(row: QuotaRequest, state: str, actor: Actor, comment: str, now: datetime) -> None:
    row.state, row.decided_by, row.decided_at = state, actor.label, now
    row.save(update_fields=["state", "decided_by", "decided_at"])
    if comment.strip():
        _check_text(comment, "/comment")
        QuotaComment.objects.create(tenant_id=row.tenant_id, request=row, author=actor.label, text=comment.strip())
    verb = "quota_request_approve" if state == State.APPROVED else "quota_request_deny"
    _record(verb, row, actor, {"state": State.SUBMITTED}, {**_facts(row), "comment": comment.strip()})


def _rows() -> QuerySet[QuotaRequest]:
    rows = QuotaRequest.objects.select_related("tenant", "gpu_type")
    return rows.select_for_update(of=("self",)) if LOCK_REQUEST else rows


def _locked(tenant: Tenant, request_id: UUID, *states: str, doing: str) -> QuotaRequest:
    """The tenant's request, locked, if it is in one of these states."""
    row = _found(_rows().filter(tenant=tenant, pk=request_id))
    if row.state not in states:
        raise Conflict(f"This request is {row.state}; only one that is {' or '.join(states)} can be {doing}.")
    return row


def _found(rows: QuerySet[QuotaRequest]) -> QuotaRequest:
    row = rows.first()
    if row is None:
        raise NotFound("There is no such quota request.")
    return row


def _with(actor: Actor, authors: list[str]) -> list[str]:
    return sorted({*authors, *([str(actor.user_id)] if actor.user_id else [])})


def _check(limit: int, guaranteed: int, starts_at: datetime | None, until: datetime | None, reason: str) -> None:
    errors = [
        {"pointer": pointer, "detail": "Give a number of cards from 0 to 1,000,000."}
        for pointer, value in (("/limit", limit), ("/guaranteed", guaranteed))
        if not 0 <= value <= LARGEST
    ]
    if not errors and guaranteed > limit:
        errors.append({"pointer": "/guaranteed", "detail": "Guaranteed can't be more than the limit."})
    if until is not None and until <= (starts_at or utcnow()):
        errors.append({"pointer": "/until", "detail": "The time box must end after it begins, and after now."})
    if not 0 < len(reason.strip()) <= LONGEST_TEXT:
        errors.append({"pointer": "/reason", "detail": f"Say what it is for, in 1 to {LONGEST_TEXT:,} characters."})
    if errors:
        raise Invalid(errors=errors)


def _check_text(text: str, pointer: str) -> None:
    if not 0 < len(text.strip()) <= LONGEST_TEXT:
        raise Invalid.field(pointer, f"Write 1 to {LONGEST_TEXT:,} characters.")


def _facts(row: QuotaRequest) -> dict[str, Any]:
    return {
        "limit": row.limit,
        "guaranteed": row.guaranteed,
        "starts_at": row.starts_at.isoformat() if row.starts_at else "",
        "until": row.until.isoformat() if row.until else "",
        "reason": row.reason,
        "state": row.state,
    }


def _record(verb: str, row: QuotaRequest, actor: Actor, before: dict[str, Any], after: dict[str, Any]) -> None:
    audit.record(
        verb,
        actor=actor,
        tenant_id=row.tenant_id,
        object_kind="quota-request",
        object_id=row.pk,
        object_name=row.gpu_type.slug,
        before=before,
        after=after,
    )
