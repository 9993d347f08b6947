"""The kernel's tables: the work queue, periodic slots, heartbeats, the audit, idempotency keys."""

from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from portal.kernel.scoping import Global, TenantOwned


class WorkItem(Global):
    """One object that a reconciler has to look at: the queue itself (Celery only carries ids).

    ``mark_seq`` goes up with each mark; ``spec_seq`` is the mark_seq of the last spec change. A run that was
    claimed at ``claimed_seq`` parks the row (``next_attempt_at`` = NULL) only if nobody marked it since.
    """

    class Cause(models.TextChoices):
        SPEC = "spec", "the wish changed"
        WATCH = "watch", "the cluster told"
        RESYNC = "resync", "the slow comparison found a difference"

    kind = models.CharField(max_length=40)
    object_id = models.UUIDField()
    cluster_id = models.UUIDField(null=True, blank=True)
    tenant_id = models.UUIDField(null=True, blank=True)
    cause = models.CharField(max_length=8, choices=Cause.choices, default=Cause.SPEC)
    mark_seq = models.BigIntegerField(default=1)
    spec_seq = models.BigIntegerField(default=0)
    claimed_seq = models.BigIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True, blank=True, help_text="NULL: parked.")
    not_before = models.DateTimeField(null=True, blank=True, help_text="Back-off; only a spec change ends it.")
    dispatched_at = models.DateTimeField(null=True, blank=True, help_text="When a worker was last told.")
    attempts = models.PositiveIntegerField(default=0, help_text="Failures in a row.")
    lease_token = models.BigIntegerField(default=0, help_text="Fencing token; goes up with each claim.")
    lease_owner = models.CharField(max_length=120, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    stalled_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)
    marked_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "object_id", "cluster_id"], nulls_distinct=False, name="workitem_unique"
            )
        ]
        indexes = [
            models.Index(
                fields=["next_attempt_at"],
                condition=models.Q(next_attempt_at__isnull=False),
                name="workitem_due",
            ),
            models.Index(fields=["cluster_id"], condition=models.Q(lease_until__isnull=False), name="workitem_leased"),
            models.Index(fields=["tenant_id"], name="workitem_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.object_id}"


class TickSlot(Global):
    """The last time slot that a periodic task ran for; whoever moves it on runs the task."""

    task = models.CharField(max_length=80, unique=True)
    slot_start = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)

    def __str__(self) -> str:
        return self.task


class Heartbeat(Global):
    """A long-running process that was alive: workers, watchers, the clock."""

    kind = models.CharField(max_length=40)
    instance = models.CharField(max_length=120)
    seen_at = models.DateTimeField(db_default=Now())
    detail = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "instance"], name="heartbeat_unique")]

    def __str__(self) -> str:
        return f"{self.kind} {self.instance}"


class AuditEvent(TenantOwned):
    """Who did what to which object, or tried to. Rows are added, never changed (the database refuses).

    ``tenant_id`` is NULL for what concerns the platform; a tenant reads its own. ``before`` and ``after`` hold
    the fields that changed, without secrets.
    """

    class Outcome(models.TextChoices):
        DONE = "done", "done"
        REFUSED = "refused", "refused"

    tenant_id = models.UUIDField(null=True, blank=True)
    at = models.DateTimeField(default=timezone.now)
    actor_kind = models.CharField(max_length=8)
    actor_id = models.UUIDField(null=True, blank=True)
    actor_label = models.CharField(max_length=200)
    verb = models.CharField(max_length=60)
    object_kind = models.CharField(max_length=60)
    object_id = models.UUIDField(null=True, blank=True)
    object_name = models.CharField(max_length=253, blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    outcome = models.CharField(max_length=8, choices=Outcome.choices, default=Outcome.DONE)
    reason = models.TextField(blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    remote_address = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["tenant_id", "-id"], name="audit_by_tenant"),
            models.Index(fields=["object_kind", "object_id"], name="audit_by_object"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_label} {self.verb} {self.object_kind} {self.object_name}"


class IdempotencyRecord(Global):
    """An answer kept for a repeated request (``Idempotency-Key``). The body is encrypted: it may show a token."""

    class State(models.TextChoices):
        RUNNING = "running", "running"
        DONE = "done", "done"

    principal = models.CharField(max_length=80)
    route = models.CharField(max_length=400)
    key = models.CharField(max_length=200)
    body_digest = models.CharField(max_length=64)
    state = models.CharField(max_length=8, choices=State.choices, default=State.RUNNING)
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    content_type = models.CharField(max_length=120, blank=True)
    headers = models.JSONField(default=dict, blank=True)
    body = models.BinaryField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["principal", "route", "key"], name="idempotency_unique")]
        indexes = [models.Index(fields=["created_at"], name="idempotency_age")]

    def __str__(self) -> str:
        return f"{self.route} {self.key}"
