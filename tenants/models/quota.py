"""How many cards of a kind a tenant may hold, and where its parts lie."""

from django.db import models
from django.db.models.functions import Now

from infra.models import Cluster, GPUType
from portal.kernel.scoping import TenantOwned
from tenants.models.tenants import Tenant


class GPUQuota(TenantOwned):
    """A tenant's quota on one GPU type. Both figures are millionths of a card; zero is zero, not unlimited.

    ``profiles`` limits MIG instances by profile beside that: ``{"1g.10gb": 8, "3g.40gb": 0}``. A profile that is not
    named is limited by the cards alone. ``generation`` tells of limit and guarantee alone: a time box on those ends
    whatever became of the profiles.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, related_name="+")
    guaranteed = models.PositiveBigIntegerField(default=0)
    limit = models.PositiveBigIntegerField(default=0)
    profiles = models.JSONField(default=dict, blank=True)
    generation = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "gpu_type"], name="gpu_quota_unique"),
            models.CheckConstraint(
                condition=models.Q(guaranteed__lte=models.F("limit")), name="gpu_quota_guaranteed_within_limit"
            ),
        ]


class QuotaAllotment(TenantOwned):
    """The part of a quota that lies on one namespace of one cluster (millionths of a card).

    ``amount`` counts against the limit: the sum over clusters and namespaces never exceeds it. ``target`` is what
    the cluster's ResourceQuota shall say. Growing raises both before anything is written to the cluster;
    shrinking lowers ``target``, and ``amount`` follows only once the cluster has confirmed the lower figure, so that
    no card can be held on two clusters in between.

    A ``fixed`` part was handed over (to a tenant cluster, or for pods that others make): ``handed`` of it counts as
    admitted, used or not, beside what deployments hold there, and changes by request alone. ``leaving`` of that is on
    its way to another part, which gets it once this one's cluster has confirmed the lower figure.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    quota = models.ForeignKey(GPUQuota, on_delete=models.PROTECT, related_name="allotments")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    namespace = models.CharField(max_length=63)
    amount = models.PositiveBigIntegerField(default=0)
    target = models.PositiveBigIntegerField(default=0)
    fixed = models.BooleanField(default=False)
    handed = models.PositiveBigIntegerField(default=0)
    leaving = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "quota", "cluster", "namespace"], name="quota_allotment_unique"),
            models.CheckConstraint(
                condition=models.Q(target__lte=models.F("amount")), name="quota_allotment_target_within_amount"
            ),
            models.CheckConstraint(
                condition=models.Q(fixed=True, handed__gt=0) | models.Q(fixed=False, handed=0),
                name="quota_allotment_fixed_is_handed",
            ),
            models.CheckConstraint(
                condition=models.Q(leaving__lte=models.F("handed")), name="quota_allotment_leaving_within_handed"
            ),
        ]
