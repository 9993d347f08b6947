"""What the platform's pages tell beside their own content."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from infra.selectors.operations import Stopped, write_stop
from portal.kernel.web import actor_of


def writing(request: HttpRequest) -> dict[str, Any]:
    """Context processor: ``writes_stopped``, for platform roles; asked of the database only where a page shows it."""

    def stopped() -> Stopped | None:
        actor = actor_of(request)
        return write_stop() if actor is not None and actor.is_platform() else None

    return {"writes_stopped": SimpleLazyObject(stopped)}
