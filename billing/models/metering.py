"""What was held by whom (allocations), the same cut into hours (usage), and where each card's hour went.

Units everywhere: time in whole milliseconds, a share of a card in millionths ("share"), and their product in
millionths·milliseconds ("charged", "physical"). 3,600,000,000,000 of them are one card for one hour.
"""

from fractions import Fraction

from django.db import models
from django.db.models.expressions import Func, Value
from django.db.models.functions import Now

from infra.models import Cluster, GPUType, Node
from infra.models.evidence import EvidenceSource
from infra.models.hardware import SharingMode
from portal.kernel.scoping import Global, TenantOwned


class Bucket(models.TextChoices):
    """Where a card's time goes. The six together are the time that the card was in service."""

    TENANTS = "tenants", "tenants"
    IDLE = "idle", "idle"
    STARTING = "starting", "starting"
    OVERHEAD = "overhead", "overhead (system)"
    UNAVAILABLE = "unavailable", "unavailable"
    UNATTRIBUTED = "unattributed", "unattributed"


class DeviceAllocation(TenantOwned):
    """One pod had one device from ``started_at`` to ``ended_at`` with a share, on one tenant's account.

    The key is (cluster, pod uid, resource, ordinal); ``segment`` counts the stretches of one key that belong to
    one tenant and one bucket (a claim changed hands, a node was lost in between, a start was slow). The card is
    written beside it once it is known, and never part of the key. A row never changes its tenant; a stretch that
    later evidence took back is kept with ``ended_at = started_at``.

    ``tenant`` is empty where nobody has claimed the namespace (``unattributed``) and for system namespaces
    (``overhead``): only the system sees those rows. ``ended_at`` is empty while the pod holds the device.
    ``bucket`` is ``tenants`` (charged), ``starting`` (bound, not yet running: not charged), ``overhead`` or
    ``unattributed``. All instants are whole milliseconds.
    """

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, null=True, related_name="+")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    pod_uid = models.CharField(max_length=64)
    resource = models.CharField(max_length=120, help_text="nvidia.com/gpu, nvidia.com/mig-1g.10gb, …")
    ordinal = models.PositiveIntegerField(help_text="Which of the pod's devices of that resource, from 0.")
    bucket = models.CharField(max_length=12, choices=Bucket.choices)
    segment = models.PositiveIntegerField(default=0)

    namespace = models.CharField(max_length=63)
    pod_name = models.CharField(max_length=253)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, null=True, related_name="+")
    deployment_id = models.UUIDField(null=True, blank=True)
    cost_code = models.CharField(max_length=60, blank=True)
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, related_name="+")
    sharing = models.CharField(max_length=10, choices=SharingMode.choices)
    profile = models.CharField(max_length=32, blank=True, help_text="MIG profile, such as 1g.10gb.")
    device_uuid = models.CharField(max_length=80, blank=True, help_text="The card, when it is known.")
    mig_instance = models.CharField(max_length=80, blank=True, default="", help_text="The instance of a MIG card.")

    memory_mib = models.PositiveBigIntegerField(null=True, help_text="Requested memory of the card, MiB.")
    card_memory_mib = models.PositiveBigIntegerField(null=True, help_text="The card's physical memory, MiB.")
    cores = models.PositiveIntegerField(null=True, help_text="Requested compute, percent of the card.")
    slices = models.PositiveIntegerField(null=True, help_text="MIG compute slices of the profile.")
    card_slices = models.PositiveIntegerField(null=True, help_text="MIG compute slices of the full card.")
    share = models.PositiveBigIntegerField(help_text="Charged share, millionths of a card (floor).")
    cpu_millicores = models.PositiveBigIntegerField(default=0, help_text="This device's part of the pod's CPU.")
    host_memory_mib = models.PositiveBigIntegerField(default=0, help_text="Its part of the pod's memory, MiB.")

    bound_at = models.DateTimeField(help_text="The pod was bound to its node.")
    running_at = models.DateTimeField(null=True, help_text="The pod's first container started.")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    inferred = models.BooleanField(default=False, help_text="Its end was concluded, not seen.")
    uncapped = models.BooleanField(default=False, help_text="HAMi without a limit on cores.")
    first_day = models.BooleanField(default=False, help_text="Ran already when the cluster was connected.")
    source = models.CharField(max_length=12, choices=EvidenceSource.choices, default=EvidenceSource.WATCH)
    proved_by_api = models.BooleanField(
        default=False, help_text="Retroactive: the pod's own status in the Kubernetes API proves it."
    )
    start_error_ms = models.BigIntegerField(default=0, help_text="Retroactive: it may have begun so much earlier.")
    end_error_ms = models.BigIntegerField(default=0, help_text="Retroactive: it may have ended so much later.")
    evidence_seq = models.BigIntegerField(help_text="changed_seq of the observation that it was made from.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "cluster", "pod_uid", "resource", "ordinal", "bucket", "segment"],
                nulls_distinct=False,
                name="device_allocation_unique",
            ),
            models.CheckConstraint(
                condition=models.Q(ended_at__isnull=True) | models.Q(ended_at__gte=models.F("started_at")),
                name="device_allocation_forward",
            ),
            models.CheckConstraint(
                condition=models.Q(bucket__in=[Bucket.STARTING, Bucket.UNATTRIBUTED])
                | models.Q(bucket=Bucket.TENANTS, tenant__isnull=False)
                | models.Q(bucket=Bucket.OVERHEAD, tenant__isnull=True),
                name="device_allocation_bucket_tenant",
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "pod_uid"], name="device_allocation_pod"),
            models.Index(fields=["cluster"], condition=models.Q(ended_at__isnull=True), name="device_allocation_open"),
            models.Index(fields=["cluster", "ended_at"], name="device_allocation_ended"),
            models.Index(fields=["tenant", "started_at"], name="device_allocation_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod_name} {self.resource}#{self.ordinal}"

    @property
    def by_request(self) -> bool:
        """Whether it is a HAMi share of an unknown card: HAMi's record is missing or not believed, and what the pod
        asked for is charged."""
        return self.sharing == SharingMode.HAMI and not self.device_uuid

    @property
    def exact_share(self) -> Fraction:
        """The share before it was floored to a millionth (checks and comparisons; money uses ``share``)."""
        if self.slices is not None and self.card_slices:
            return Fraction(self.slices, self.card_slices)
        parts = []
        if self.memory_mib is not None and self.card_memory_mib:
            parts.append(Fraction(self.memory_mib, self.card_memory_mib))
        if self.cores is not None:
            parts.append(Fraction(self.cores, 100))
        return min(max(parts), Fraction(1)) if parts else Fraction(1)


class UsageRecord(TenantOwned):
    """An allocation's part of one hour. Append-only, and partitioned by the month of ``hour``.

    Rows add up: what an allocation had in a slot is the *sum* of its rows. Later evidence adds a row with a higher
    ``revision`` and signed figures; nothing is ever changed. ``seq`` (one sequence for the table) is what bills
    are delimited by: see ``billing.services.close``.

    ``slot`` is the start of the piece: the hour itself, unless a rate or a period begins inside the hour, which
    cuts it. ``bucket`` ``tenants`` is charged; ``idle`` (without an allocation) is the idle rest of cards that
    only this tenant's zone may use, and is charged, too; the others have no price.
    ``allocation_id`` has no foreign key in the database: allocations are never deleted, and the table is large.
    """

    id = None  # type: ignore[assignment]  # the key is (hour, seq): a partitioned table's key holds its range
    pk = models.CompositePrimaryKey("hour", "seq")
    hour = models.DateTimeField()
    seq = models.BigIntegerField(
        db_default=Func(Value("billing_usagerecord_seq"), function="nextval", output_field=models.BigIntegerField())
    )
    slot = models.DateTimeField()
    revision = models.PositiveIntegerField(default=0)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, null=True, related_name="+")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, db_constraint=False, related_name="+")
    allocation_id = models.UUIDField(null=True)
    node_id = models.UUIDField(null=True)
    namespace = models.CharField(max_length=63)
    deployment_id = models.UUIDField(null=True)
    cost_code = models.CharField(max_length=60, blank=True)
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, db_constraint=False, related_name="+")
    sharing = models.CharField(max_length=10, choices=SharingMode.choices)
    profile = models.CharField(max_length=32, blank=True)
    bucket = models.CharField(max_length=12, choices=Bucket.choices)

    share = models.BigIntegerField(help_text="Charged share, millionths of a card (idle: 1,000,000).")
    memory_mib = models.BigIntegerField(null=True, help_text="Requested memory of the card, MiB.")
    cores = models.IntegerField(null=True, help_text="Requested compute, percent of the card.")
    slices = models.IntegerField(null=True, help_text="Requested MIG compute slices.")
    cpu_millicores = models.BigIntegerField(default=0)
    host_memory_mib = models.BigIntegerField(default=0)

    milliseconds = models.BigIntegerField(help_text="Signed. For idle: millionths of card-milliseconds ÷ 1e6.")
    charged = models.BigIntegerField(help_text="Signed: share × milliseconds.")
    physical = models.BigIntegerField(help_text="Signed: charged ÷ max(1, what the card was charged in all).")
    source = models.CharField(max_length=12, choices=EvidenceSource.choices, default=EvidenceSource.WATCH)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "hour"], name="usage_record_tenant"),
            models.Index(fields=["cluster", "hour"], name="usage_record_cluster"),
        ]


class CapacityHour(Global):
    """Where the cards of one node, type and mode were in one hour: six buckets, and what was in service.

    Millionths·milliseconds of cards. ``in_service`` is summed from the capacity alone; a difference between it and
    the six buckets is an error that the conservation page shows. So are ``overbooked`` (more was held than was in
    service; it was scaled down to fit) and ``outside`` (held while no capacity was known). ``per_card`` says whether
    every card that was held is known by identity, or only their number.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="+")
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, related_name="+")
    sharing = models.CharField(max_length=10, choices=SharingMode.choices)
    hour = models.DateTimeField()
    revision = models.PositiveIntegerField(default=0)
    tenants = models.BigIntegerField(default=0)
    idle = models.BigIntegerField(default=0)
    starting = models.BigIntegerField(default=0)
    overhead = models.BigIntegerField(default=0)
    unavailable = models.BigIntegerField(default=0)
    unattributed = models.BigIntegerField(default=0)
    in_service = models.BigIntegerField(default=0)
    overbooked = models.BigIntegerField(default=0)
    outside = models.BigIntegerField(default=0)
    idle_tenant_id = models.UUIDField(
        null=True, help_text="The only tenant whose zone may use these cards: pays for their idle time."
    )
    per_card = models.BooleanField(default=False)
    source = models.CharField(max_length=12, choices=EvidenceSource.choices, default=EvidenceSource.WATCH)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "node", "gpu_type", "sharing", "hour"],
                nulls_distinct=False,
                name="capacity_hour_unique",
            )
        ]
        indexes = [models.Index(fields=["hour", "cluster"], name="capacity_hour_page")]

    @property
    def difference(self) -> int:
        """In-service time less the six buckets: 0, or something is counted twice or not at all."""
        return self.in_service - (
            self.tenants + self.idle + self.starting + self.overhead + self.unavailable + self.unattributed
        )


class MeterProgress(Global):
    """How far a cluster's evidence has been worked through. One row a cluster; it is also the meter's lock."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="+")
    through_seq = models.BigIntegerField(default=0, help_text="Evidence up to this changed_seq is worked in.")
    metered_from = models.DateTimeField(null=True, help_text="The first hour with usage.")
    final_until = models.DateTimeField(null=True, help_text="Usage exists for every hour before this instant.")
    cuts = models.JSONField(default=list, help_text="Instants inside hours at which usage was cut (RFC 3339).")
    unmetered = models.JSONField(
        default=dict, help_text="Pod uid → {namespace, name, reason}: its share can't be computed yet."
    )
    updated_at = models.DateTimeField(db_default=Now())
