"""Faults of cards and nodes as they were told: what, since when, until when."""

from django.db import models

from infra.health import FaultClass
from infra.models.clusters import Cluster
from infra.models.hardware import Node
from portal.kernel.scoping import Global


class HealthEvent(Global):
    """A fault of a card (``device``, its UUID) or of a node (``device`` empty) from ``started_at`` on.

    Monotonic: a row is never taken back, and its end is set once. ``ended_at`` is empty while the fault lasts; what is
    only a moment (an application's XID) ends when it begins. The class is that of the day it was seen.
    """

    class Kind(models.TextChoices):
        XID = "xid", "XID"
        CONDITION = "condition", "condition of the node"
        HAMI = "hami", "HAMi"
        ALLOCATABLE = "allocatable", "cards not handed out"
        HEARTBEAT = "heartbeat", "no heartbeat"

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="health_events")
    device = models.CharField(max_length=80, blank=True)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    code = models.CharField(max_length=60, help_text="79, GpuMemWatch, …")
    fault_class = models.CharField(max_length=12, choices=[(one.value, one.value) for one in FaultClass])
    started_at = models.DateTimeField()
    not_before = models.DateTimeField(
        null=True, blank=True, help_text="The last sample without it: it began after that, and by started_at."
    )
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=200, blank=True)
    boot_id = models.CharField(max_length=64, blank=True, help_text="Of the node when it began.")
    source = models.CharField(max_length=40, help_text="Where it was read: metrics, node.")
    message = models.TextField(blank=True)
    affects = models.JSONField(default=list, blank=True, help_text="Pods on the card then: [namespace, pod, uid].")

    class Meta:
        ordering = ["-started_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "node", "device", "kind", "code", "started_at"], name="health_event_once"
            ),
            models.UniqueConstraint(
                fields=["cluster", "node", "device", "kind", "code"],
                condition=models.Q(ended_at__isnull=True),
                name="health_event_one_open",
            ),
            models.CheckConstraint(
                condition=models.Q(ended_at__isnull=True) | models.Q(ended_at__gte=models.F("started_at")),
                name="health_event_forward",
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "started_at"], name="health_event_by_time"),
            models.Index(fields=["node"], condition=models.Q(ended_at__isnull=True), name="health_event_open"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.code} on {self.device or self.node_id}"

    @property
    def title(self) -> str:
        """``XID 79``, ``GpuMemWatch``, ``HAMi: unhealthy``."""
        if self.kind == self.Kind.XID:
            return f"XID {self.code}"
        return self.code if self.kind == self.Kind.CONDITION else f"{self.get_kind_display()}: {self.code}"


class XidGauge(Global):
    """What a card's XID gauge last showed: without it, the first sample of a window would say nothing."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    device = models.CharField(max_length=80)
    xid = models.PositiveIntegerField()
    at_ms = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "device"], name="xid_gauge_unique")]
