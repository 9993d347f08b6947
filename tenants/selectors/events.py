"""The audit of one tenant, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q

from portal.kernel.models import AuditEvent
from portal.kernel.problems import BadRequest
from tenants.models import Tenant

PAGE_SIZE = 50


@dataclass(frozen=True)
class EventPage:
    """Some events, the newest first; ``next_cursor`` is "" on the last page."""

    events: tuple[AuditEvent, ...]
    next_cursor: str = ""


def tenant_events(
    *, tenant: Tenant, search: str = "", object_kind: str = "", outcome: str = "", cursor: str = ""
) -> EventPage:
    """A page of the tenant's own events, inside an open scope. One query.

    Args:
        search: part of who, what or the object's name.
        object_kind: exactly this kind of object.
        outcome: ``done`` or ``refused``.
        cursor: ``next_cursor`` of the page before.

    Raises:
        BadRequest: the cursor is none of ours.
    """
    rows = AuditEvent.objects.filter(tenant_id=tenant.pk)
    if search:
        rows = rows.filter(
            Q(actor_label__icontains=search) | Q(verb__icontains=search) | Q(object_name__icontains=search)
        )
    if object_kind:
        rows = rows.filter(object_kind=object_kind)
    if outcome:
        rows = rows.filter(outcome=outcome)
    if cursor:
        try:
            rows = rows.filter(id__lt=UUID(cursor))
        except ValueError as error:
            raise BadRequest("This is no cursor that a page of this list gave. Start from the first page.") from error
    found = list(rows.order_by("-id")[: PAGE_SIZE + 1])
    more, found = len(found) > PAGE_SIZE, found[:PAGE_SIZE]
    return EventPage(tuple(found), str(found[-1].pk) if more else "")
