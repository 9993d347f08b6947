"""What a tenant asks of its quotas: other figures, and parts moved between namespaces."""

from django.db import models
from django.db.models.functions import Now

from infra.models import GPUType
from portal.kernel.scoping import TenantOwned
from tenants.models.quota import GPUQuota, QuotaAllotment
from tenants.models.tenants import Tenant


class QuotaRequest(TenantOwned):
    """An ask for another quota on one GPU type, figures in millionths of a card.

    With a time box it holds in [``starts_at``, ``until``) and then the former figures come back. ``authors`` are the
    ids of the users who wrote it: none of them decides it. ``former_*`` and ``set_generation`` are kept when it is
    put into force: only a quota that nobody has changed since goes back.
    """

    class State(models.TextChoices):
        DRAFT = "draft", "draft"
        SUBMITTED = "submitted", "submitted"
        APPROVED = "approved", "approved"
        DENIED = "denied", "denied"
        WITHDRAWN = "withdrawn", "withdrawn"
        EXPIRED = "expired", "expired"

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, related_name="+")
    guaranteed = models.PositiveBigIntegerField()
    limit = models.PositiveBigIntegerField()
    starts_at = models.DateTimeField(null=True, blank=True, help_text="Empty: as soon as it is approved.")
    until = models.DateTimeField(null=True, blank=True, help_text="Empty: for good.")
    reason = models.TextField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.DRAFT)
    authors = models.JSONField(default=list)
    created_by = models.CharField(max_length=150)
    submitted_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.CharField(max_length=150, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    in_force_since = models.DateTimeField(null=True, blank=True)
    former_guaranteed = models.PositiveBigIntegerField(null=True, blank=True)
    former_limit = models.PositiveBigIntegerField(null=True, blank=True)
    set_generation = models.PositiveBigIntegerField(null=True, blank=True, help_text="The quota's, when it was set.")
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When its time box had passed.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["state", "submitted_at"], name="quota_request_inbox"),
            models.Index(fields=["tenant", "created_at"], name="quota_request_of"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(guaranteed__lte=models.F("limit")), name="quota_request_guaranteed_within_limit"
            ),
            models.CheckConstraint(
                condition=models.Q(until__isnull=True)
                | models.Q(starts_at__isnull=True)
                | models.Q(until__gt=models.F("starts_at")),
                name="quota_request_forward",
            ),
        ]


class QuotaComment(TenantOwned):
    """What somebody wrote to a request; never changed."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    request = models.ForeignKey(QuotaRequest, on_delete=models.CASCADE, related_name="comments")
    author = models.CharField(max_length=150)
    text = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["tenant", "request", "created_at"], name="quota_comment_of")]


class AllotmentMove(TenantOwned):
    """Cards on their way from one part of a quota to another (millionths).

    ``source`` unset: from what is free of the quota; ``goal`` unset: back to it. It is pending until the source's
    cluster has confirmed the lower figure; only then does the goal's part grow.
    """

    class State(models.TextChoices):
        PENDING = "pending", "waits for the cluster"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    quota = models.ForeignKey(GPUQuota, on_delete=models.PROTECT, related_name="+")
    source = models.ForeignKey(QuotaAllotment, on_delete=models.PROTECT, null=True, related_name="+")
    goal = models.ForeignKey(QuotaAllotment, on_delete=models.PROTECT, null=True, related_name="+")
    amount = models.PositiveBigIntegerField()
    state = models.CharField(max_length=8, choices=State.choices, default=State.PENDING)
    message = models.TextField(blank=True)
    asked_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["tenant", "state", "created_at"], name="allotment_move_of")]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(source__isnull=False) | models.Q(goal__isnull=False), name="allotment_move_somewhere"
            ),
            models.CheckConstraint(condition=models.Q(amount__gt=0), name="allotment_move_some"),
        ]
