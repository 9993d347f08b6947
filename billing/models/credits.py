"""Money given back for time in which a card was at fault: proposed by the portal, approved below a limit by itself."""

from django.db import models
from django.db.models.functions import Now

from billing.models.bills import BillingPeriod
from billing.models.rates import Issuer
from portal.kernel.scoping import TenantOwned


class FaultCredit(TenantOwned):
    """What one allocation held of a card from a fault on, within one month of its issuer.

    ``charge_to`` grows until the pod has ended, or the month; then it is ``settled`` and is decided: approved by itself
    up to a limit, above it by finance. An approved one is a line of the bill that is closed next (``period``), with
    the fault and its time. ``amount`` is what that line takes off, positive; None while it has no price. ``held`` is
    what the allocation was when this was written: a bill is made again from it, whatever evidence comes later.
    ``event_id``: the ``infra.HealthEvent``.
    """

    class State(models.TextChoices):
        PROPOSED = "proposed", "proposed"
        APPROVED = "approved", "approved"
        REJECTED = "rejected", "rejected"

    class Because(models.TextChoices):
        CARD = "card", "the pod held the card"
        NODE = "node", "the pod ran on the node"
        RESTART = "restart", "the pod restarted after the node's fault"

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, related_name="+")
    issuer = models.ForeignKey(Issuer, on_delete=models.PROTECT, related_name="+")
    month = models.DateTimeField(help_text="Start of the month that the time lies in.")
    allocation_id = models.UUIDField()
    event_id = models.UUIDField()
    fault = models.CharField(max_length=80, help_text="XID 79, GpuSmWatch, …")
    fault_class = models.CharField(max_length=12)
    happened_at = models.DateTimeField()
    because = models.CharField(max_length=8, choices=Because.choices)
    cluster_name = models.CharField(max_length=63)
    node_name = models.CharField(max_length=253)
    device = models.CharField(max_length=80, blank=True)
    namespace = models.CharField(max_length=63)
    pod_name = models.CharField(max_length=253)
    deployment_id = models.UUIDField(null=True, blank=True)
    held = models.JSONField(default=dict, help_text="Cluster, card, mode, share, CPU, memory and cost code.")
    charge_from = models.DateTimeField()
    charge_to = models.DateTimeField()
    settled = models.BooleanField(default=False)
    currency = models.CharField(max_length=3)
    amount = models.DecimalField(max_digits=38, decimal_places=16, null=True)
    state = models.CharField(max_length=8, choices=State.choices, default=State.PROPOSED)
    decided_by = models.CharField(max_length=150, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_why = models.TextField(blank=True)
    period = models.ForeignKey(
        BillingPeriod, on_delete=models.PROTECT, null=True, blank=True, related_name="+", help_text="Whose bill has it."
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-happened_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "allocation_id", "month"], name="fault_credit_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="fault_credit_tenant_id"),
            models.CheckConstraint(
                condition=models.Q(charge_to__gt=models.F("charge_from")), name="fault_credit_forward"
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "deployment_id"], name="fault_credit_deployment"),
            models.Index(fields=["event_id"], name="fault_credit_event"),
        ]

    def __str__(self) -> str:
        return self.sentence

    @property
    def sentence(self) -> str:
        """What stands on the line: ``XID 79 on GPU-… of node gpu-7 at 2026-11-12 03:14:00 UTC``."""
        where = f"{self.device} of node {self.node_name}" if self.device else f"node {self.node_name}"
        return f"{self.fault} on {where} at {self.happened_at:%Y-%m-%d %H:%M:%S} UTC"
