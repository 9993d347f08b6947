"""What OpenCost answered, hour by hour; what a unit cost; and what was taken from it onto bills.

Answers are revisions: OpenCost may say something else of the same hour later, and what was closed stays with what it
said first. ``seq`` is drawn from the sequence of :class:`billing.models.UsageRecord`, so a bill's ``seq_upto`` delimits
unit costs and estimates as it delimits usage.
"""

from django.db import models
from django.db.models.expressions import Func, Value
from django.db.models.functions import Now

from billing.models.bills import BillLine
from billing.models.rates import Rate
from infra.models import Cluster, GPUType
from portal.kernel.scoping import Global, TenantOwned


def _seq() -> Func:
    return Func(Value("billing_usagerecord_seq"), function="nextval", output_field=models.BigIntegerField())


def _money(**more: object) -> models.DecimalField:  # type: ignore[type-arg]
    return models.DecimalField(max_digits=30, decimal_places=10, **more)  # type: ignore[arg-type]


class OpenCostSource(Global):
    """How a cluster's OpenCost is read. One row a cluster; it is also the reader's lock.

    OpenCost's figures carry no currency: ``currency`` is what somebody says that its prices are in. ``first_hour`` is
    where reading began; ``claims_seq``: namespace claims up to this ``changed_seq`` are worked in.
    """

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="+")
    currency = models.CharField(max_length=3, default="USD", help_text="ISO 4217: what OpenCost's prices are in.")
    first_hour = models.DateTimeField(null=True, blank=True)
    claims_seq = models.BigIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0, help_text="Runs in a row in which it could not be asked.")
    last_error = models.TextField(blank=True)
    updated_by = models.CharField(max_length=150, blank=True)
    updated_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"OpenCost of {self.cluster_id}"


class OpenCostAnswer(Global):
    """An answer for the hour that begins at ``hour``: taken (with a ``revision``, from 0) or refused (with a reason).

    One refused row an hour is kept, with how often it was ``asked``. ``digest`` is the sha256 of what was read (not of
    the body, in which fields change that mean nothing). ``raw`` is zlib of ``{path: body}`` as JSON, for so many days.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    hour = models.DateTimeField()
    accepted = models.BooleanField()
    revision = models.PositiveIntegerField(default=0)
    reason = models.TextField(blank=True, help_text="Why it was refused; of a taken one, why its assets were.")
    empty = models.BooleanField(default=False, help_text="OpenCost has no data of the hour.")
    version = models.CharField(max_length=60, blank=True)
    currency = models.CharField(max_length=3)
    digest = models.CharField(max_length=64, blank=True)
    raw = models.BinaryField(null=True, editable=False)
    asked = models.PositiveIntegerField(default=1)
    fetched_at = models.DateTimeField()
    asked_at = models.DateTimeField(help_text="When it was last asked, with the same answer.")
    source = models.CharField(max_length=12, default="opencost", help_text="opencost, or demo.")
    seq = models.BigIntegerField(db_default=_seq())

    class Meta:
        ordering = ["cluster", "-hour", "-revision"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "hour", "accepted", "revision"], name="opencost_answer_unique"),
            models.CheckConstraint(
                condition=models.Q(accepted=True) | (models.Q(revision=0) & ~models.Q(reason="")),
                name="opencost_answer_reason",
            ),
        ]
        indexes = [models.Index(fields=["cluster", "hour"], name="opencost_answer_hour")]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.hour:%Y-%m-%d %H} h, revision {self.revision}"


class OpenCostRow(Global):
    """A namespace (``pod`` empty), or a pod with cards, of a taken answer. ``special``: a row that is no namespace.

    Costs in the answer's currency; hours of cards and cores, byte-hours.
    """

    answer = models.ForeignKey(OpenCostAnswer, on_delete=models.CASCADE, related_name="rows")
    namespace = models.CharField(max_length=63, blank=True)
    pod = models.CharField(max_length=253, blank=True)
    special = models.CharField(max_length=20, blank=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    gpu_hours = _money()
    gpu_cost = _money()
    cpu_core_hours = _money()
    cpu_cost = _money()
    ram_byte_hours = _money()
    ram_cost = _money()
    pv_byte_hours = _money()
    pv_cost = _money()
    network_cost = _money()
    lb_cost = _money()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["answer", "special", "namespace", "pod"], name="opencost_row_unique")
        ]


class UnitCost(Global):
    """What a card of a type, a core or a GiB cost for the hour, by one revision of the answer. Never changed."""

    class Basis(models.TextChoices):
        ASSETS = "assets", "the nodes' costs"
        ALLOCATION = "allocation", "the pods' costs"

    answer = models.ForeignKey(OpenCostAnswer, on_delete=models.PROTECT, related_name="unit_costs")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    hour = models.DateTimeField()
    resource = models.CharField(max_length=8, choices=Rate.Resource.choices)
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, related_name="+")
    price = models.DecimalField(max_digits=20, decimal_places=10)
    currency = models.CharField(max_length=3)
    basis = models.CharField(max_length=10, choices=Basis.choices)
    quantity = _money(help_text="Of how many unit-hours it was computed.")
    seq = models.BigIntegerField(db_default=_seq())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["answer", "resource", "gpu_type"], nulls_distinct=False, name="unit_cost_unique"
            ),
            models.CheckConstraint(condition=models.Q(price__gt=0), name="unit_cost_positive"),
        ]
        indexes = [models.Index(fields=["cluster", "hour", "resource"], name="unit_cost_hour")]


class EstimatedCost(TenantOwned):
    """A tenant's part of an hour's storage or network cost, as OpenCost estimates it. Append-only: rows add up.

    A later answer, or a claim that changes, adds a row with the signed difference.
    """

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, related_name="+")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    hour = models.DateTimeField()
    namespace = models.CharField(max_length=63)
    cost_code = models.CharField(max_length=60, blank=True)
    resource = models.CharField(max_length=8, choices=Rate.Resource.choices)
    amount = models.DecimalField(max_digits=30, decimal_places=12, help_text="Signed, in the currency.")
    currency = models.CharField(max_length=3)
    answer = models.ForeignKey(OpenCostAnswer, on_delete=models.PROTECT, related_name="+")
    seq = models.BigIntegerField(db_default=_seq())
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "hour"], name="estimated_cost_tenant"),
            models.Index(fields=["cluster", "hour"], name="estimated_cost_cluster"),
        ]


class BillLineHour(TenantOwned):
    """An hour of a bill's line with an hourly rate: how much, at which price, from which unit cost. Never changed.

    ``unit_price`` is the unit cost with the rate's margin; Σ ``amount_exact`` is the line's.
    """

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, related_name="+")
    line = models.ForeignKey(BillLine, on_delete=models.PROTECT, related_name="hours")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    charge_from = models.DateTimeField()
    charge_to = models.DateTimeField()
    unit_cost = models.ForeignKey(UnitCost, on_delete=models.PROTECT, related_name="+")
    unit_price = models.DecimalField(max_digits=20, decimal_places=10)
    quantity = models.DecimalField(max_digits=30, decimal_places=12)
    amount_exact = models.DecimalField(max_digits=38, decimal_places=16)

    class Meta:
        ordering = ["line", "charge_from", "cluster"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "line", "cluster", "charge_from"], name="bill_line_hour_unique")
        ]
