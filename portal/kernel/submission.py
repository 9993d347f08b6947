"""A form that is sent twice acts once: the token that its page was made with is kept with what came of it.

The row is written in the transaction of the change. A second submission waits on the unique key until the first has
committed and then finds its result; if the first was rolled back, the second acts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_urlsafe

from django.db import IntegrityError, transaction
from django.http import HttpRequest

from portal.kernel.models import IdempotencyRecord
from portal.kernel.problems import BadRequest
from portal.kernel.web import actor_of

FIELD = "submission"
"""The name of the hidden input that holds the token."""
_SHORTEST, _LONGEST = 16, 64


@dataclass(frozen=True, slots=True)
class Submitted:
    """Where to go now. ``again``: the form had been sent before, and nothing was done this time."""

    location: str
    again: bool


def new_token() -> str:
    """The token of a form that is about to be shown."""
    return token_urlsafe(24)


def token_of(request: HttpRequest) -> str:
    """The token that was sent, to be put into the form again where it is shown with errors."""
    return request.POST.get(FIELD, "") or new_token()


def submit_once(request: HttpRequest, act: Callable[[], str]) -> Submitted:
    """Run ``act`` unless this person has sent the form before; ``act`` returns the address to go to.

    Raises:
        BadRequest: the form carries no token.
    """
    token = request.POST.get(FIELD, "")
    actor = actor_of(request)
    if not _SHORTEST <= len(token) <= _LONGEST or actor is None:
        raise BadRequest("The form came without its token. Load the page again, then send it once more.")
    known = {"principal": f"form:{actor.id}", "route": f"POST {request.path}"[:400], "key": token}
    try:
        with transaction.atomic():
            row = IdempotencyRecord.objects.create(
                **known, body_digest="", state=IdempotencyRecord.State.DONE, status=303
            )
            location = act()
            row.headers = {"Location": location}
            row.save(update_fields=["headers"])
            return Submitted(location, again=False)
    except IntegrityError:
        first = IdempotencyRecord.objects.filter(**known).first()
        if first is None:
            raise
        return Submitted(str(first.headers.get("Location", "/")), again=True)
