"""What was seen of pods, when we were watching, and whose namespace it was."""

from django.db import models
from django.db.models.functions import Now

from infra.models.clusters import Cluster
from portal.kernel.scoping import Global


class EvidenceSource(models.TextChoices):
    """How a fact came to us; retroactive and demo facts are never shown as if watched."""

    WATCH = "watch", "watched"
    RETROACTIVE = "retroactive", "rebuilt from Prometheus"
    DEMO = "demo", "demonstration data"


class PodObservation(Global):
    """A pod that asks for GPUs, as far as it was ever seen. Merged monotonically: times are set once.

    ``evidence`` is ``infra.evidence.PodEvidence`` as JSON. The columns beside it are for finding rows.
    ``changed_seq`` is drawn from the cluster's :class:`ChangeCounter`: metering works through it in order.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="pods")
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    node_name = models.CharField(max_length=253, blank=True)
    phase = models.CharField(max_length=12, blank=True)
    ready = models.BooleanField(default=False)
    deployment_id = models.UUIDField(null=True, blank=True, help_text="Ours, by label, in a namespace of ours.")
    replica_id = models.UUIDField(null=True, blank=True)
    evidence = models.JSONField()
    holds = models.JSONField(
        default=list, blank=True, help_text="What it takes from its node's cards: infra.holdings.Hold as JSON."
    )
    scheduled_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True, help_text="No container runs or will run again.")
    gone_at = models.DateTimeField(null=True, blank=True, help_text="When the API server no longer had it.")
    gone_inferred_after = models.DateTimeField(
        null=True, blank=True, help_text="Set when it was missing after a relist: last proof that it was there."
    )
    source = models.CharField(max_length=12, choices=EvidenceSource.choices, default=EvidenceSource.WATCH)
    past = models.JSONField(
        null=True, blank=True, help_text="Retroactive rows: what history says, and its error; infra.services.past_pods."
    )
    resource_version = models.CharField(max_length=40, blank=True)
    workload_kind = models.CharField(max_length=63, blank=True, help_text="Deployment, CronJob, Notebook, Pod …")
    workload_name = models.CharField(max_length=253, blank=True)
    workload_known = models.CharField(max_length=24, blank=True, help_text="A value of infra.workloads.Known.")
    queue = models.CharField(max_length=253, blank=True, help_text="Kueue's LocalQueue, or the job's id in Slurm.")
    label_cost_code = models.CharField(max_length=63, blank=True, help_text="From the pod's cost-code label.")
    first_seen_at = models.DateTimeField()
    changed_seq = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="pod_observation_unique")]
        indexes = [
            models.Index(fields=["cluster", "namespace", "name"], name="pod_observation_by_name"),
            models.Index(fields=["cluster", "changed_seq"], name="pod_observation_changed"),
            models.Index(fields=["replica_id"], name="pod_observation_replica"),
            models.Index(
                fields=["cluster", "node_name"],
                condition=models.Q(ended_at__isnull=True, gone_at__isnull=True),
                name="pod_observation_live",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ChangeCounter(Global):
    """The cluster's last change number. Evidence rows that bill somebody carry one (``changed_seq``).

    Whoever writes evidence of a cluster first locks this row and keeps it until commit
    (:func:`infra.services.changes.lock_changes`). So the numbers of one cluster become visible in their order: who
    has read up to *n* has missed nothing below *n*, which a plain sequence can't promise (a lower number may be
    committed after a higher one). Numbers of different clusters are not to be compared.
    """

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="change_counter")
    value = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.cluster_id}: {self.value}"


class WatchTarget(Global):
    """One resource of one API server that somebody must watch; whoever holds the lease does."""

    class Resource(models.TextChoices):
        PODS = "pods", "pods"
        NODES = "nodes", "nodes"
        NAMESPACES = "namespaces", "namespaces"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="watch_targets")
    resource = models.CharField(max_length=12, choices=Resource.choices)
    lease_owner = models.CharField(max_length=120, blank=True)
    lease_token = models.BigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    resource_version = models.CharField(max_length=40, blank=True)
    watermark = models.DateTimeField(
        null=True, blank=True, help_text="Everything that happened before is known: an hour is final behind it."
    )
    last_error = models.TextField(blank=True)
    failures = models.PositiveIntegerField(default=0)
    not_before = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "resource"], name="watch_target_unique")]

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.resource}"


class WatchSpan(Global):
    """Proof that a target was watched without a gap from ``started_at`` to ``proved_until``."""

    target = models.ForeignKey(WatchTarget, on_delete=models.CASCADE, related_name="spans")
    started_at = models.DateTimeField()
    proved_until = models.DateTimeField()
    closed_reason = models.CharField(max_length=200, blank=True)
    source = models.CharField(max_length=12, choices=EvidenceSource.choices, default=EvidenceSource.WATCH)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(proved_until__gte=models.F("started_at")), name="watch_span_forward"
            ),
            models.UniqueConstraint(
                fields=["target"], condition=models.Q(closed_reason=""), name="watch_span_one_open"
            ),
        ]
        indexes = [models.Index(fields=["target", "started_at"], name="watch_span_by_time")]


class NamespaceClaim(Global):
    """A namespace of a cluster is a tenant's from ``valid_from`` until ``valid_to``."""

    class Source(models.TextChoices):
        PORTAL = "portal", "set in the portal"
        LABEL = "label", "by label"
        RULE = "rule", "by rule"

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="claims")
    namespace = models.CharField(max_length=63)
    tenant_id = models.UUIDField()
    cost_code = models.CharField(max_length=60, blank=True)
    source = models.CharField(max_length=8, choices=Source.choices, default=Source.PORTAL)
    rule = models.ForeignKey("infra.ClaimRule", on_delete=models.PROTECT, null=True, blank=True, related_name="claims")
    inferred = models.BooleanField(default=False, help_text="It follows a label: it changes when the watch shows it.")
    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True, blank=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now())
    changed_seq = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "namespace"],
                condition=models.Q(valid_to__isnull=True),
                name="namespace_claim_one_open",
            ),
            models.CheckConstraint(
                condition=models.Q(valid_to__isnull=True) | models.Q(valid_to__gt=models.F("valid_from")),
                name="namespace_claim_forward",
            ),
        ]
        indexes = [models.Index(fields=["tenant_id"], name="namespace_claim_tenant")]
