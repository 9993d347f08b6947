"""Who issues bills, and at which prices."""

from django.db import models
from django.db.models.functions import Now

from infra.models import GPUType
from infra.models.hardware import SharingMode
from portal.kernel.scoping import Global


class Issuer(Global):
    """Who bills: one currency and one time zone. Months begin at midnight in that zone, and are stored."""

    class Kind(models.TextChoices):
        STATEMENT = "statement", "internal statement"
        INVOICE = "invoice", "invoice, numbered without gaps"

    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.STATEMENT)
    currency = models.CharField(max_length=3, help_text="ISO 4217.")
    time_zone = models.CharField(max_length=64, default="UTC", help_text="IANA name.")
    grace_hours = models.PositiveIntegerField(default=72, help_text="A period can be closed so long after its end.")
    is_default = models.BooleanField(default=False)
    number_prefix = models.CharField(max_length=20, blank=True)
    next_number = models.PositiveBigIntegerField(default=1, help_text="Only used by invoices.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"], condition=models.Q(is_default=True), name="issuer_one_default"
            )
        ]

    def __str__(self) -> str:
        return self.slug


class BillingAccount(Global):
    """Which issuer bills a tenant. A tenant without a row is billed by the default issuer."""

    tenant = models.OneToOneField("tenants.Tenant", on_delete=models.CASCADE, related_name="+")
    issuer = models.ForeignKey(Issuer, on_delete=models.PROTECT, related_name="accounts")
    created_at = models.DateTimeField(db_default=Now())


class RateCard(Global):
    """The prices of one issuer, in its currency."""

    issuer = models.OneToOneField(Issuer, on_delete=models.PROTECT, related_name="rate_card")
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.name


class Rate(Global):
    """A price from ``valid_from`` until ``valid_to`` (open: still in force). Rows of one key never overlap.

    The key is (card, resource, GPU type, sharing, profile). ``price`` is for one unit: a GPU for an hour (the whole
    card; a share pays its part), one MIG *instance* of the profile for an hour, a CPU core for an hour, a GiB of
    memory for an hour. With source ``opencost`` the price is OpenCost's unit cost of each cluster and hour; storage
    and network have no other source: what OpenCost says that they cost, and the margin. ``included_*`` is what one
    whole card brings along of the host; only more is charged. A HAMi rate of the profile ``overcommit`` is that of
    pools that hand out more memory than their cards have.
    Rows are never changed but for ``valid_to``, and never inside a closed period.
    """

    class Resource(models.TextChoices):
        GPU = "gpu", "GPU-hour"
        CPU = "cpu", "CPU-core-hour"
        MEMORY = "memory", "GiB-hour"
        STORAGE = "storage", "storage, estimated by OpenCost"
        NETWORK = "network", "network, estimated by OpenCost"

    class Source(models.TextChoices):
        FIXED = "fixed", "fixed price"
        OPENCOST = "opencost", "OpenCost's unit cost"

    card = models.ForeignKey(RateCard, on_delete=models.PROTECT, related_name="rates")
    resource = models.CharField(max_length=8, choices=Resource.choices, default=Resource.GPU)
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    sharing = models.CharField(max_length=10, choices=SharingMode.choices, blank=True)
    profile = models.CharField(max_length=32, blank=True)
    source = models.CharField(max_length=10, choices=Source.choices, default=Source.FIXED)
    price = models.DecimalField(max_digits=20, decimal_places=10, null=True, blank=True)
    margin = models.DecimalField(
        max_digits=8, decimal_places=4, default=0, help_text="Added to the price: 0.15 is 15 %."
    )
    included_cpu_millicores = models.PositiveBigIntegerField(null=True, blank=True)
    included_memory_mib = models.PositiveBigIntegerField(null=True, blank=True)
    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True, blank=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["resource", "gpu_type", "sharing", "profile", "valid_from"]
        constraints = [
            models.UniqueConstraint(
                fields=["card", "resource", "gpu_type", "sharing", "profile"],
                condition=models.Q(valid_to__isnull=True),
                nulls_distinct=False,
                name="rate_one_open",
            ),
            models.CheckConstraint(
                condition=models.Q(valid_to__isnull=True) | models.Q(valid_to__gt=models.F("valid_from")),
                name="rate_forward",
            ),
            models.CheckConstraint(
                condition=models.Q(source="fixed", price__isnull=False, price__gte=0)
                | models.Q(source="opencost", price__isnull=True),
                name="rate_price",
            ),
            models.CheckConstraint(
                condition=models.Q(resource="gpu", gpu_type__isnull=False) & ~models.Q(sharing="")
                | models.Q(
                    resource__in=["cpu", "memory", "storage", "network"], gpu_type__isnull=True, sharing="", profile=""
                ),
                name="rate_key",
            ),
            models.CheckConstraint(
                condition=~models.Q(resource__in=["storage", "network"]) | models.Q(source="opencost"),
                name="rate_estimated",
            ),
        ]
        indexes = [models.Index(fields=["card", "valid_from"], name="rate_by_time")]
