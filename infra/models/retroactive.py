"""How far a cluster's past has been rebuilt from the history in its Prometheus."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from infra.models.clusters import Cluster
from portal.kernel.scoping import Global


class Rebuild(Global):
    """One run through a cluster's history, from the watch's begin back to ``from_at``, window by window.

    Everything from ``cursor`` to ``until_at`` is rebuilt. ``searched_to``: nothing was scraped from there to
    ``cursor`` (equal where the last window held something). A window's evidence and the moved cursor are committed
    together, so a kill at any point repeats at most the window that was being read.
    """

    class State(models.TextChoices):
        PENDING = "pending", "waiting"
        RUNNING = "running", "running"
        PAUSED = "paused", "paused"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    ACTIVE = (State.PENDING, State.RUNNING, State.PAUSED)

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="rebuilds")
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    from_at = models.DateTimeField(help_text="As far back as was asked for; moved up to where the history begins.")
    until_at = models.DateTimeField(help_text="The watch's begin: from here on the watch proves everything.")
    cursor = models.DateTimeField()
    searched_to = models.DateTimeField()
    oldest_sample_at = models.DateTimeField(null=True, blank=True, help_text="How far the history reaches.")
    window_seconds = models.PositiveIntegerField(help_text="The next window's length; halved where it is too large.")
    step_seconds = models.PositiveIntegerField(help_text="Between two looks within a window.")

    windows_done = models.PositiveIntegerField(default=0)
    queries = models.PositiveBigIntegerField(default=0)
    pods = models.PositiveIntegerField(default=0, help_text="Rebuilt pods that asked for cards.")
    pods_proved = models.PositiveIntegerField(default=0, help_text="Of them, those that the Kubernetes API proves.")
    nodes = models.PositiveIntegerField(default=0)
    error_ms = models.PositiveBigIntegerField(
        default=0, help_text="Σ over pods: by how much their edges may be wrong, ms."
    )
    gaps = models.JSONField(default=list, help_text="[[from, until], …], RFC 3339: times without any scrape.")
    notes = models.JSONField(default=list, help_text="What could not be read, in sentences.")

    failures = models.PositiveIntegerField(default=0, help_text="In a row.")
    last_error = models.TextField(blank=True)
    requested_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster"],
                condition=models.Q(state__in=["pending", "running", "paused"]),
                name="rebuild_one_active",
            ),
            models.CheckConstraint(
                condition=models.Q(searched_to__lte=models.F("cursor")) & models.Q(cursor__lte=models.F("until_at")),
                name="rebuild_cursor",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.state}"

    @property
    def is_active(self) -> bool:
        """Whether it is, or may go, on."""
        return self.state in self.ACTIVE

    @property
    def progress(self) -> int:
        """Percent of the time asked for that was looked at, 0 to 100."""
        if self.state == self.State.DONE:
            return 100
        whole = (self.until_at - self.from_at).total_seconds()
        done = (self.until_at - self.searched_to).total_seconds()
        return min(100, int(100 * done / whole)) if whole > 0 else 0
