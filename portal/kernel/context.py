"""What every page's template may use."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest


def site(request: HttpRequest) -> dict[str, Any]:
    """``portal_version``, ``demo`` and ``actor`` (the signed-in person's, or ``None``)."""
    return {
        "portal_version": settings.VERSION,
        "demo": settings.AIF_DEMO,
        "actor": getattr(request, "actor", None),
        # The name that django-htmx's tags read; only a template that uses it puts a nonce into the policy.
        "csp_nonce": getattr(request, "csp_nonce", None),
    }
