"""Proof of when we were watching. A span goes on across reconnects that lost nothing, and ends at a relist."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from infra.models import WatchSpan, WatchTarget


def settle_time() -> timedelta:
    """How long after an instant kubelets may still report what happened then: the watermark stays behind by it."""
    return timedelta(seconds=settings.AIF_WATCH_SETTLE_SECONDS)


def open_span(target: WatchTarget) -> WatchSpan | None:
    """The target's running span."""
    return WatchSpan.objects.filter(target=target, closed_reason="").first()


def restart(target: WatchTarget, *, at: datetime, reason: str) -> datetime | None:
    """A list was taken at ``at``: what happened since the last proof was not seen. Answers that last proof."""
    span = open_span(target)
    if span is not None:
        span.closed_reason = reason
        span.save(update_fields=["closed_reason"])
    WatchSpan.objects.create(target=target, started_at=at, proved_until=at)
    return None if span is None else span.proved_until


def prove(target: WatchTarget, until: datetime) -> None:
    """Everything until then has been read."""
    WatchSpan.objects.filter(target=target, closed_reason="", proved_until__lt=until).update(proved_until=until)
    watermark = until - settle_time()
    if target.watermark is None or target.watermark < watermark:
        target.watermark = watermark
