"""Tenant clusters: a Kubernetes API server of the tenant's own, on a host cluster, and the robots that may use it."""

from django.db import models
from django.db.models.functions import Now

from infra.models import Cluster
from portal.kernel.scoping import TenantOwned
from tenants.models.tenants import Tenant


class TenantCluster(TenantOwned):
    """A virtual cluster in the host namespace ``vc-SLUG``; at most one of a tenant on a host cluster.

    ``kubernetes_version`` and ``chart_version`` are the wish; ``running_*`` what was seen last. The GPUs that it was
    given are the fixed QuotaAllotments on its namespace. No way in is stored: it is read from the host when needed.
    """

    class Desired(models.TextChoices):
        RUNNING = "running", "running"
        PAUSED = "paused", "paused"

    class Phase(models.TextChoices):
        PENDING = "Pending", "Pending"
        PROVISIONING = "Provisioning", "Provisioning"
        READY = "Ready", "Ready"
        DEGRADED = "Degraded", "Degraded"
        UPGRADING = "Upgrading", "Upgrading"
        PAUSED = "Paused", "Paused"
        DELETING = "Deleting", "Deleting"
        DELETED = "Deleted", "Deleted"

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=40, help_text="Of the virtual cluster: the tenant's slug.")
    endpoint = models.URLField(max_length=400, help_text="Where its API server is reached, https.")
    kubernetes_version = models.CharField(max_length=20)
    chart_version = models.CharField(max_length=40)
    desired = models.CharField(max_length=8, choices=Desired.choices, default=Desired.RUNNING)
    generation = models.PositiveBigIntegerField(default=1)
    retry_at = models.DateTimeField(null=True, blank=True, help_text="When somebody asked for it to be tried again.")

    phase = models.CharField(max_length=12, choices=Phase.choices, default=Phase.PENDING)
    conditions = models.JSONField(default=list, blank=True)
    observed_generation = models.PositiveBigIntegerField(default=0)
    running_kubernetes = models.CharField(max_length=40, blank=True)
    running_chart = models.CharField(max_length=40, blank=True)
    ca_pem = models.TextField(blank=True, help_text="The authority of its endpoint; public.")
    inside = models.JSONField(
        default=dict, blank=True, help_text="What was seen inside: nodes, pods that the host refuses."
    )
    inside_seen_at = models.DateTimeField(null=True, blank=True)
    leftovers = models.JSONField(default=list, blank=True, help_text="What a deletion still waits for, or left.")

    requested_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    deleting_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "cluster"],
                condition=models.Q(deleted_at__isnull=True),
                name="tenant_cluster_one_a_host",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def namespace(self) -> str:
        """Its namespace on the host."""
        return f"vc-{self.name}"

    @property
    def audience(self) -> str:
        """Of the tokens that its API server believes: one a tenant, so no other tenant's token is good here."""
        return f"vc-{self.name}"


class Robot(TenantOwned):
    """A program that may use a tenant cluster: a ServiceAccount inside, of which short-lived tokens are asked for.

    A token is shown once, to who asked, and never stored: only when the last one was made and ends is kept.
    """

    class Role(models.TextChoices):
        ADMIN = "cluster-admin", "administrator of the tenant cluster"
        EDIT = "edit", "changes workloads"
        VIEW = "view", "reads"

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    tenant_cluster = models.ForeignKey(TenantCluster, on_delete=models.PROTECT, related_name="robots")
    name = models.CharField(max_length=40)
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.EDIT)
    ready_at = models.DateTimeField(null=True, blank=True, help_text="Since when its ServiceAccount is there.")
    token_issued_at = models.DateTimeField(null=True, blank=True)
    token_expires_at = models.DateTimeField(null=True, blank=True, help_text="When the last token given out ends.")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now())
    deleting_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "tenant_cluster", "name"],
                condition=models.Q(deleted_at__isnull=True),
                name="robot_name_unique",
            ),
        ]

    def __str__(self) -> str:
        return self.name
