"""What we promised (reservations) and what we wrote (applied objects)."""

from django.db import models
from django.db.models.functions import Now

from infra.models.clusters import Cluster
from infra.models.hardware import GPUType, Node, NodePool, SharingMode
from portal.kernel.scoping import Global


class Reservation(Global):
    """Devices on one node kept for one member of a replica until it is released.

    A vector, not one number: whole cards and MIG slices are counts on a node, a HAMi share is memory and cores
    of one card. ``share`` (millionths of a card, the sum over the devices) is for quota and money.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="reservations")
    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="+")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="reservations")
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, related_name="+")
    sharing = models.CharField(max_length=10, choices=SharingMode.choices)
    tenant_id = models.UUIDField()
    zone_id = models.UUIDField(help_text="The tenant's trust zone: nobody outside it shares a card with this.")
    namespace = models.CharField(max_length=63)
    deployment_id = models.UUIDField()
    replica_id = models.UUIDField()
    member = models.CharField(max_length=80, help_text="engine, member and pod ordinal: qwen-engine/Standalone/0.")
    cards = models.PositiveIntegerField(default=0)
    profile = models.CharField(max_length=32, blank=True, help_text="MIG profile, such as 1g.10gb.")
    slices = models.PositiveIntegerField(default=0, help_text="MIG instances of that profile.")
    device_uuid = models.CharField(max_length=80, blank=True, help_text="HAMi: the card.")
    memory_mib = models.PositiveBigIntegerField(default=0, help_text="HAMi: memory on the card, MiB.")
    cores = models.PositiveIntegerField(default=0, help_text="HAMi: percent of the card's cores.")
    share = models.PositiveBigIntegerField(help_text="Millionths of a card, all devices together.")
    created_at = models.DateTimeField(db_default=Now())
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["replica_id", "member", "device_uuid", "profile"],
                condition=models.Q(released_at__isnull=True),
                name="reservation_once",
            )
        ]
        indexes = [
            models.Index(
                fields=["node"], condition=models.Q(released_at__isnull=True), name="reservation_live_by_node"
            ),
            models.Index(
                fields=["tenant_id", "gpu_type"],
                condition=models.Q(released_at__isnull=True),
                name="reservation_live_by_tenant",
            ),
            models.Index(fields=["deployment_id"], name="reservation_deployment"),
        ]


class AppliedObject(Global):
    """Inventory: an object of a cluster that we applied for an owner, and what our last apply recorded.

    The row is there before the object: a new one has an empty ``uid``, so that a process that dies between the
    two leaves nothing unknown. Pruning deletes only what a lower ``generation`` than the current one recorded,
    with uid and resourceVersion as preconditions. A row goes (``deleted_at``) only when the cluster answered 404.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="applied_objects")
    owner_kind = models.CharField(max_length=40)
    owner_id = models.UUIDField()
    tenant_id = models.UUIDField(null=True, blank=True)
    api_version = models.CharField(max_length=120)
    kind = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=64, blank=True, help_text="Empty: not known to be there yet.")
    resource_version = models.CharField(max_length=40, blank=True, help_text="As our last apply left it.")
    digest = models.CharField(max_length=64, blank=True, help_text="sha256 of the manifest as applied.")
    generation = models.PositiveBigIntegerField(help_text="The owner's generation that applied it.")
    drift_suspected = models.BooleanField(
        default=False, help_text="A comparison saw another resourceVersion, or nothing: apply again."
    )
    applied_at = models.DateTimeField(db_default=Now())
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "api_version", "kind", "namespace", "name"],
                condition=models.Q(deleted_at__isnull=True),
                name="applied_object_one_live",
            )
        ]
        indexes = [models.Index(fields=["owner_kind", "owner_id"], name="applied_object_owner")]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
