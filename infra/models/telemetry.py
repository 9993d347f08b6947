"""What metrics tell of cards: which pod was seen to hold which one, how busy they were, and how good the source is."""

from django.db import models

from infra.models.clusters import Cluster
from infra.models.evidence import EvidenceSource
from portal.kernel.scoping import Global


class TelemetrySource(Global):
    """How far a cluster's metrics are read, and how good they are. One a cluster; whoever reads them locks the row.

    ``unmapped`` and ``silent`` are names of nodes as of the last window: pods are known to hold cards there and no row
    names a pod; nothing came from a node that has cards. ``dropped`` counts values that could not be believed
    (``{"DCGM_FI_DEV_MEMORY_TEMP": 12}``), of the last window. ``counters`` is what a scrape needs of the one before:
    ``{card: [ms, mJ]}``.
    """

    class Kind(models.TextChoices):
        PROMETHEUS = "prometheus", "Prometheus"
        EXPORTER = "exporter", "dcgm-exporter itself"

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="telemetry")
    kind = models.CharField(max_length=12, choices=Kind.choices, default=Kind.PROMETHEUS)
    read_until = models.DateTimeField(null=True, blank=True, help_text="Everything before this instant is read.")
    interval_ms = models.PositiveIntegerField(default=30_000, help_text="Between two samples, as the source has them.")
    last_sample_at = models.DateTimeField(null=True, blank=True)
    unmapped = models.JSONField(default=list, blank=True)
    silent = models.JSONField(default=list, blank=True)
    dropped = models.JSONField(default=dict, blank=True)
    dropped_total = models.PositiveBigIntegerField(default=0)
    counters = models.JSONField(default=dict, blank=True)
    conditions = models.JSONField(default=list, blank=True)
    not_before = models.DateTimeField(null=True, blank=True, help_text="Not scraped again before.")

    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.kind}"


class TelemetryGap(Global):
    """From ``started_at`` to ``ended_at`` a node's metrics (``node`` empty: the whole source's) are missing, or do not
    say all. What a pod held is not touched by that; how busy it was is not known."""

    class Kind(models.TextChoices):
        SILENT = "silent", "no samples"
        UNMAPPED = "unmapped", "no pod names"
        PARTIAL = "partial", "partial answer"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="telemetry_gaps")
    node = models.CharField(max_length=253, blank=True)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()

    class Meta:
        ordering = ["-started_at", "node"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(ended_at__gt=models.F("started_at")), name="telemetry_gap_forward"
            ),
        ]
        indexes = [models.Index(fields=["cluster", "ended_at"], name="telemetry_gap_by_time")]


class DeviceSighting(Global):
    """A pod was seen to hold a card (or a MIG instance of it) from ``first_seen`` to ``last_seen``, merged
    monotonically: the span only grows.

    ``pod_uid`` is empty until the name is known to be that of one pod. Labels of the exporter come one or two
    intervals late and stay on as long, so the times prove identity and no duration. ``changed_seq`` (as in
    PodObservation) is drawn when metering has something new to bind.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    namespace = models.CharField(max_length=63)
    pod = models.CharField(max_length=253)
    pod_uid = models.CharField(max_length=64, blank=True)
    container = models.CharField(max_length=253, blank=True)
    node = models.CharField(max_length=253, blank=True)
    uuid = models.CharField(max_length=80, help_text="The physical card, also of a MIG instance.")
    mig_instance = models.CharField(max_length=80, blank=True)
    mig_profile = models.CharField(max_length=32, blank=True)
    shared = models.BooleanField(default=False, help_text="Others held it at the same time.")
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    source = models.CharField(max_length=12, choices=EvidenceSource.choices, default=EvidenceSource.WATCH)
    changed_seq = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "pod_uid", "container", "uuid", "mig_instance"],
                condition=~models.Q(pod_uid=""),
                name="device_sighting_unique",
            ),
            models.CheckConstraint(
                condition=models.Q(last_seen__gte=models.F("first_seen")), name="device_sighting_forward"
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "changed_seq"], name="device_sighting_changed"),
            models.Index(fields=["cluster", "namespace", "pod"], name="device_sighting_by_name"),
            models.Index(fields=["cluster", "uuid", "last_seen"], name="device_sighting_by_card"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod} on {self.uuid}"


class TelemetryHour(Global):
    """What one card, MIG instance or pod on a shared card did in an hour, as far as it was observed.

    ``scope`` ``card``: the card's (instance's) own figures, on the account of the pod that held it alone (empty: nobody
    was named, or several). Rows of this scope add up to the card. ``pod``: what one of several pods on the card did;
    never to be added to the former.

    Unknown is NULL: ``busy_ms`` out of ``observed_ms`` that are known; what no sample stands for is in neither. A MIG
    card's energy is in a row of the card itself (``mig_instance`` empty).
    """

    class Scope(models.TextChoices):
        CARD = "card", "card"
        POD = "pod", "pod on a shared card"

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    hour = models.DateTimeField()
    node = models.CharField(max_length=253, blank=True)
    uuid = models.CharField(max_length=80)
    mig_instance = models.CharField(max_length=80, blank=True)
    mig_profile = models.CharField(max_length=32, blank=True)
    scope = models.CharField(max_length=4, choices=Scope.choices)
    namespace = models.CharField(max_length=63, blank=True)
    pod = models.CharField(max_length=253, blank=True)
    container = models.CharField(max_length=253, blank=True)
    busy_ms = models.BigIntegerField(null=True, help_text="Utilisation × time, milliseconds.")
    observed_ms = models.BigIntegerField(null=True, help_text="Time for which the utilisation is known.")
    memory_mib_ms = models.DecimalField(max_digits=24, decimal_places=0, null=True, help_text="MiB × milliseconds.")
    memory_observed_ms = models.BigIntegerField(null=True)
    memory_max_mib = models.BigIntegerField(null=True)
    energy_mj = models.BigIntegerField(null=True, help_text="Energy, millijoule.")
    source = models.CharField(max_length=12, choices=EvidenceSource.choices, default=EvidenceSource.WATCH)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "hour", "uuid", "mig_instance", "scope", "namespace", "pod", "container"],
                name="telemetry_hour_unique",
            )
        ]
        indexes = [models.Index(fields=["cluster", "namespace", "hour"], name="telemetry_hour_namespace")]

    @property
    def memory_avg_mib(self) -> int | None:
        """Mean memory in use while it was known, MiB."""
        if self.memory_mib_ms is None or not self.memory_observed_ms:
            return None
        return int(self.memory_mib_ms / self.memory_observed_ms)
