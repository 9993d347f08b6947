"""The page ``/metrics``, and the middleware that counts requests."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from portal.kernel.metrics.access import may_read
from portal.kernel.metrics.collect import scrape
from portal.kernel.metrics.instruments import HTTP_SECONDS
from portal.kernel.problems import NotFound

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics. Who may not read them gets the answer of an address that does not exist."""
    if not may_read(request.headers.get("Authorization", ""), request.META.get("REMOTE_ADDR", "")):
        raise NotFound("There is nothing at this address, or it is not yours to see.")
    return HttpResponse(scrape(), content_type=CONTENT_TYPE_LATEST, headers={"Cache-Control": "no-store"})


class MetricsMiddleware:
    """Counts and times each request under its address's pattern: what stands in its place is nobody's business here."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began = time.perf_counter()
        response = self.get_response(request)
        match = request.resolver_match
        HTTP_SECONDS.labels(
            method=request.method if request.method in _METHODS else "other",
            route=match.route if match is not None else "none",
            status=f"{response.status_code // 100}xx",
        ).observe(time.perf_counter() - began)
        return response
