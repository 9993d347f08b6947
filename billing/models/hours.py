"""Why cards were idle, hour by hour. Beside ``CapacityHour``, and in its unit: millionths·milliseconds of cards."""

from django.db import models
from django.db.models.functions import Now

from infra.models import Cluster, GPUType, Node
from infra.models.hardware import SharingMode
from portal.kernel.scoping import Global


class IdleHour(Global):
    """The idle time of one node, type and mode in one hour, by reason (:mod:`billing.metering.idle`).

    The reasons are exactly ``idle``, which is the capacity hour's; the database refuses anything else. An hour without
    idle time has no row, unless one of the two figures beside it is there: ``geometry`` (of the overhead: what the MIG
    geometry leaves unusable) and ``lopsided`` (of shared cards: by how much free memory and free cores differ, which
    nobody can be given; part of it is paid for by those who hold the other dimension).
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="+")
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, related_name="+")
    sharing = models.CharField(max_length=10, choices=SharingMode.choices)
    hour = models.DateTimeField()
    idle = models.BigIntegerField(default=0)
    no_demand = models.BigIntegerField(default=0, help_text="Nobody waited for it.")
    quota = models.BigIntegerField(default=0, help_text="It fitted an ask that its quota refused.")
    fragmented = models.BigIntegerField(default=0, help_text="Enough for an ask, but not on one node or card.")
    stranded = models.BigIntegerField(default=0, help_text="Another dimension is used up, or slices are cut otherwise.")
    reserved = models.BigIntegerField(default=0, help_text="Promised to a pod that has not been bound yet.")
    pending = models.BigIntegerField(default=0, help_text="It fitted an ask that was about to be placed.")
    zone = models.BigIntegerField(default=0, help_text="Kept for a trust zone of which nobody waited.")
    geometry = models.BigIntegerField(default=0)
    lopsided = models.BigIntegerField(default=0)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "node", "gpu_type", "sharing", "hour"],
                nulls_distinct=False,
                name="idle_hour_unique",
            ),
            models.CheckConstraint(
                condition=models.Q(
                    idle=models.F("no_demand") + models.F("quota") + models.F("fragmented") + models.F("stranded")
                    + models.F("reserved") + models.F("pending") + models.F("zone")
                ),
                name="idle_hour_adds_up",
            ),
        ]  # fmt: skip
        indexes = [models.Index(fields=["hour", "cluster"], name="idle_hour_page")]


class BlockedHour(Global):
    """Of an idle hour's ``quota``: whose ask the quota refused, and whose unused guarantee it was.

    ``owner_tenant_id`` is empty where no other tenant had a guarantee that it did not use: then the asking tenant's own
    limit is what stood in the way.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="+")
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, related_name="+")
    sharing = models.CharField(max_length=10, choices=SharingMode.choices)
    hour = models.DateTimeField()
    tenant_id = models.UUIDField(help_text="Who waited.")
    deployment_id = models.UUIDField()
    owner_tenant_id = models.UUIDField(null=True)
    units = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "node", "gpu_type", "sharing", "hour", "deployment_id", "owner_tenant_id"],
                nulls_distinct=False,
                name="blocked_hour_unique",
            )
        ]
        indexes = [models.Index(fields=["hour", "cluster"], name="blocked_hour_page")]
