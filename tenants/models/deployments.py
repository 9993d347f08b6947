"""A model that should run, its replicas, and what happened to them."""

from django.db import models
from django.db.models.functions import Now

from infra.models import Cluster
from portal.kernel.scoping import TenantOwned
from tenants.models.tenants import Tenant


class ModelDeployment(TenantOwned):
    """What the tenant wants. ``spec`` is the validated, normalised manifest; ``source`` the text as it came.

    ``generation`` rises with every change of the spec; what has been acted on is ``observed_generation``.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=63)
    labels = models.JSONField(default=dict, blank=True)
    spec = models.JSONField()
    source = models.TextField(blank=True)
    replicas = models.PositiveIntegerField(default=1)
    cost_code = models.CharField(max_length=60, blank=True)
    generation = models.PositiveBigIntegerField(default=1)
    observed_generation = models.PositiveBigIntegerField(default=0)
    conditions = models.JSONField(default=list, blank=True)
    phase = models.CharField(max_length=20, default="Pending")
    waiting = models.TextField(blank=True, help_text="Why it waits: rule, cluster and pool, with the numbers.")
    waiting_since = models.DateTimeField(
        null=True, blank=True, help_text="Set while a replica has no place; these are woken when something is freed."
    )
    ready_replicas = models.PositiveIntegerField(default=0)
    explanation = models.JSONField(default=list, blank=True, help_text="Each pool that was not chosen, and why.")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    deleting_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"],
                condition=models.Q(deleted_at__isnull=True),
                name="model_deployment_one_live",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "created_at", "id"], name="model_deployment_page"),
            models.Index(
                fields=["created_at"],
                condition=models.Q(waiting_since__isnull=False, deleted_at__isnull=True),
                name="model_deployment_waiting",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ModelReplica(TenantOwned):
    """One replica of a deployment, placed on one cluster. Its placement is data, never recomputed.

    ``placement`` is the planner's answer for this replica as JSON: pool, GPU type, and per pod the node with the
    devices reserved on it. ``spec`` is what this replica shall show (the deployment's, as of ``generation``): while
    a new spec is rolled out, one replica after the other gets it.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    deployment = models.ForeignKey(ModelDeployment, on_delete=models.PROTECT, related_name="replica_rows")
    index = models.PositiveIntegerField()
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    placement = models.JSONField()
    spec = models.JSONField()
    generation = models.PositiveBigIntegerField(default=1, help_text="The deployment's generation it should show.")
    observed_generation = models.PositiveBigIntegerField(default=0)
    conditions = models.JSONField(default=list, blank=True)
    phase = models.CharField(max_length=20, default="Placed")
    message = models.TextField(blank=True)
    ready = models.BooleanField(default=False)
    ready_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    deleting_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "deployment", "index"],
                condition=models.Q(deleted_at__isnull=True),
                name="model_replica_one_live",
            ),
        ]
        indexes = [models.Index(fields=["tenant", "deployment"], name="model_replica_of")]


class DeploymentEvent(TenantOwned):
    """A step on a deployment's timeline. Repeated events of one kind count up instead of piling up."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    deployment = models.ForeignKey(ModelDeployment, on_delete=models.CASCADE, related_name="events")
    replica_index = models.PositiveIntegerField(null=True, blank=True)
    reason = models.CharField(max_length=60)
    message = models.TextField()
    generation = models.PositiveBigIntegerField(default=0)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    count = models.PositiveIntegerField(default=1)

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "deployment", "last_at"], name="deployment_event_page"),
            models.Index(fields=["tenant", "-last_at", "-id"], name="deployment_event_latest"),
        ]
