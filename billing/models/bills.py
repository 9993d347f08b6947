"""Periods, bills, their lines, and credit notes. A closed bill never changes."""

from django.db import models
from django.db.models.functions import Now

from billing.models.rates import Issuer, Rate
from infra.models import GPUType
from infra.models.hardware import SharingMode
from portal.kernel.scoping import Global, TenantOwned


class BillingPeriod(Global):
    """A month of an issuer as two stored instants (half-open). ``seq_upto`` is fixed when the close begins."""

    class State(models.TextChoices):
        OPEN = "open", "open"
        CLOSING = "closing", "closing"
        CLOSED = "closed", "closed"

    issuer = models.ForeignKey(Issuer, on_delete=models.PROTECT, related_name="periods")
    year = models.PositiveSmallIntegerField()
    month = models.PositiveSmallIntegerField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    state = models.CharField(max_length=8, choices=State.choices, default=State.OPEN)
    seq_upto = models.BigIntegerField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ["-starts_at"]
        constraints = [
            models.UniqueConstraint(fields=["issuer", "year", "month"], name="billing_period_unique"),
            models.UniqueConstraint(fields=["issuer", "starts_at"], name="billing_period_start_unique"),
            models.CheckConstraint(
                condition=models.Q(ends_at__gt=models.F("starts_at")), name="billing_period_forward"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"


class Bill(TenantOwned):
    """What one tenant owes for one period. It exists once the period is closed; before that it is a preview.

    It is made of the usage with ``seq`` in (``seq_after``, ``seq_upto``] that lies before the period's end, and of
    the period's own usage up to ``seq_upto``. ``total_minor`` is in the currency's minor units, and the sum of the
    lines. ``digest`` is the sha256 of the lines as canonical JSON: making the bill again gives the same bytes.
    """

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, related_name="+")
    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="bills")
    kind = models.CharField(max_length=10, choices=Issuer.Kind.choices)
    number = models.CharField(max_length=80, help_text="Of an invoice: without gaps. Of a statement: its id.")
    version = models.PositiveIntegerField(default=1)
    currency = models.CharField(max_length=3)
    total_minor = models.BigIntegerField()
    total = models.DecimalField(max_digits=24, decimal_places=4)
    seq_after = models.BigIntegerField(help_text="seq_upto of the previous close (0: none).")
    seq_upto = models.BigIntegerField()
    digest = models.CharField(max_length=64)
    closed_at = models.DateTimeField()
    closed_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["-closed_at"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "period"], name="bill_one_per_period"),
            models.UniqueConstraint(fields=["tenant", "number"], name="bill_number_unique"),
            models.UniqueConstraint(fields=["tenant", "id"], name="bill_tenant_id"),
        ]

    def __str__(self) -> str:
        return self.number


class BillLine(TenantOwned):
    """One line: a deployment or namespace, a type and mode of card, a rate, a stretch of time.

    ``quantity`` is in ``unit`` (GPU-hours of charged share, MIG instance-hours, core-hours, GiB-hours),
    ``amount_exact`` = quantity × unit price unrounded, ``amount`` rounded so that the lines add up to the total.
    With a rate of OpenCost's unit cost, ``unit_price`` is the mean of its ``hours`` (``BillLineHour``), and
    ``amount_exact`` is their sum. Lines of storage and network count OpenCost's cost itself (``unit`` opencost-cost).
    ``correction`` lines carry the charge period of an earlier, closed period.
    """

    class Kind(models.TextChoices):
        GPU = "gpu", "GPU time"
        IDLE = "idle", "idle time of reserved cards"
        CPU = "cpu", "CPU beyond what the GPU includes"
        MEMORY = "memory", "memory beyond what the GPU includes"
        STORAGE = "storage", "storage, estimated"
        NETWORK = "network", "network, estimated"
        CREDIT = "credit", "credit for a fault"

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, related_name="+")
    bill = models.ForeignKey(Bill, on_delete=models.PROTECT, related_name="lines")
    position = models.PositiveIntegerField()
    kind = models.CharField(max_length=8, choices=Kind.choices)
    deployment_id = models.UUIDField(null=True, blank=True)
    deployment_name = models.CharField(max_length=63, blank=True)
    namespace = models.CharField(max_length=63)
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, related_name="+")
    sharing = models.CharField(max_length=10, choices=SharingMode.choices, blank=True)
    profile = models.CharField(max_length=32, blank=True)
    cost_code = models.CharField(max_length=60, blank=True)
    charge_from = models.DateTimeField()
    charge_to = models.DateTimeField()
    rate = models.ForeignKey(Rate, on_delete=models.PROTECT, related_name="+")
    gpu_rate = models.ForeignKey(
        Rate, on_delete=models.PROTECT, null=True, related_name="+", help_text="Of CPU and memory: what it includes."
    )
    unit = models.CharField(max_length=20)
    unit_price = models.DecimalField(max_digits=20, decimal_places=10)
    quantity = models.DecimalField(max_digits=30, decimal_places=12)
    amount_exact = models.DecimalField(max_digits=38, decimal_places=16)
    amount_minor = models.BigIntegerField()
    amount = models.DecimalField(max_digits=24, decimal_places=4)
    correction = models.BooleanField(default=False)
    note = models.CharField(max_length=250, blank=True, help_text="Of a credit: the fault and its time.")
    credit_id = models.UUIDField(null=True, blank=True, help_text="Of a credit: the FaultCredit.")

    class Meta:
        ordering = ["bill", "position"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "bill", "position"], name="bill_line_position"),
            models.UniqueConstraint(fields=["tenant", "id"], name="bill_line_tenant_id"),
        ]


class CreditNote(TenantOwned):
    """Money given back on a closed bill, by reference. The bill itself stays as it is."""

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, related_name="+")
    bill = models.ForeignKey(Bill, on_delete=models.PROTECT, related_name="credit_notes")
    line = models.ForeignKey(BillLine, on_delete=models.PROTECT, null=True, blank=True, related_name="credit_notes")
    number = models.CharField(max_length=80)
    currency = models.CharField(max_length=3)
    amount_minor = models.BigIntegerField(help_text="Positive: given back.")
    amount = models.DecimalField(max_digits=24, decimal_places=4)
    reason = models.TextField()
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "number"], name="credit_note_number_unique"),
            models.UniqueConstraint(fields=["tenant", "id"], name="credit_note_tenant_id"),
            models.CheckConstraint(condition=models.Q(amount_minor__gt=0), name="credit_note_positive"),
        ]
