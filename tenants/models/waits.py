"""Evidence of waiting: which deployment had no place, for what kind of card, from when to when."""

from django.db import models

from infra.models import GPUType
from infra.models.hardware import SharingMode
from portal.kernel.scoping import TenantOwned
from tenants.models.deployments import ModelDeployment
from tenants.models.tenants import Tenant


class WaitSpan(TenantOwned):
    """From ``started_at`` to ``ended_at`` pods of a deployment had no place, for one reason and in one pool.

    One open row for each device request of the manifest (``part``); another reason, pool, number or shape closes it
    and opens the next. ``pool_id`` is the one pool in which the ask is counted: of those that the scheduler named with
    the reason nearest to a place, the one with most free cards (empty: it named none). ``count`` devices of one pod
    must lie on one node; ``pods`` of them wait. ``memory_mib`` and ``cores`` (percent) are of one HAMi share, 0: not
    one. ``owner_tenant_id``: whose unused guarantee on the type was the largest when a quota refused.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    deployment = models.ForeignKey(ModelDeployment, on_delete=models.PROTECT, related_name="waits")
    part = models.CharField(max_length=200, help_text="engine/role/request: qwen-engine/Standalone/gpu.")
    reason = models.CharField(max_length=40, help_text="QuotaExceeded, NoCapacity, …: the condition's reason.")
    rule = models.CharField(max_length=20, help_text="The scheduler's rule in the pool: quota, capacity, …")
    # Without keys: a pool that is taken away must not be looked for in rows of every tenant.
    cluster_id = models.UUIDField(null=True)
    pool_id = models.UUIDField(null=True)
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, related_name="+")
    sharing = models.CharField(max_length=10, choices=SharingMode.choices)
    count = models.PositiveIntegerField(help_text="Devices of one pod, on one node.")
    pods = models.PositiveIntegerField(help_text="Pods without a place.")
    profile = models.CharField(max_length=32, blank=True)
    memory_mib = models.PositiveBigIntegerField(default=0)
    cores = models.PositiveIntegerField(default=0)
    owner_tenant_id = models.UUIDField(null=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "deployment", "part"],
                condition=models.Q(ended_at__isnull=True),
                name="wait_span_one_open",
            ),
            models.CheckConstraint(
                condition=models.Q(ended_at__isnull=True) | models.Q(ended_at__gte=models.F("started_at")),
                name="wait_span_forward",
            ),
        ]
        indexes = [
            models.Index(fields=["cluster_id", "started_at"], name="wait_span_cluster"),
            models.Index(fields=["tenant", "deployment", "started_at"], name="wait_span_of"),
        ]

    def __str__(self) -> str:
        return f"{self.part}: {self.reason}"
