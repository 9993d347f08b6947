"""Usage and money as JSON: money, shares and quantities are decimals as text."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.models import Bill, BillingPeriod, BillLine, CreditNote, Issuer, Rate
from infra.models import GPUType
from infra.models.hardware import SharingMode

OPEN_STATES = [(name, name) for name in ("final", "late", "running", "unpriced")]


@extend_schema_field({"type": "string", "format": "decimal"})
class Exact(serializers.DecimalField):
    """A decimal as text with as many digits as it has."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_digits=None, decimal_places=None, coerce_to_string=True, **kwargs)

    def to_representation(self, value: Any) -> str:
        """Without an exponent, and without zeros that say nothing."""
        text = f"{Decimal(value):f}"
        return text.rstrip("0").rstrip(".") if "." in text else text


class UsageKeySerializer(serializers.Serializer[Any]):
    """What a row of usage is about. What the table is not grouped by is empty."""

    day = serializers.DateField(allow_null=True)
    deployment = serializers.CharField(help_text="Id of the deployment; empty for pods of none.")
    label = serializers.CharField(help_text="Name of the deployment, or the namespace.")  # type: ignore[assignment]  # a field of that name
    gpu_type = serializers.CharField()
    sharing = serializers.CharField()
    profile = serializers.CharField()
    retroactive = serializers.BooleanField(help_text="Rebuilt from Prometheus history, and on no bill.")
    inner_namespace = serializers.CharField(help_text="Inside a tenant cluster; empty for what is in none.")


class UsageRowSerializer(serializers.Serializer[Any]):
    """Hours and cost of one key."""

    key = UsageKeySerializer()
    gpu_hours = Exact(help_text="Share of a card × time; MIG: slices ÷ slices of the card.")
    instance_hours = Exact(help_text="Of it MIG, as instances.")
    amount = Exact(allow_null=True, help_text="Exact, in the currency; null where nothing of it has a rate.")
    unpriced = serializers.BooleanField(help_text="Some of it has no rate, and is not in the amount.")


class UsageSerializer(serializers.Serializer[Any]):
    """Usage of final hours in a window."""

    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    final_until = serializers.DateTimeField(allow_null=True)
    currency = serializers.CharField()
    time_zone = serializers.CharField(help_text="Whose days the rows are.")
    total = UsageRowSerializer()
    past = UsageRowSerializer(help_text="Of the total: rebuilt from Prometheus history, and on no bill.")
    rows = UsageRowSerializer(many=True)


class OpenLineSerializer(serializers.Serializer[Any]):
    """A line of an open period."""

    label = serializers.CharField()  # type: ignore[assignment]  # a field of that name
    state = serializers.ChoiceField(choices=OPEN_STATES)
    kind = serializers.CharField(source="line.kind.value")
    deployment = serializers.CharField(source="line.subject.deployment")
    cost_code = serializers.CharField(source="line.subject.cost_code")
    what = serializers.SerializerMethodField()
    charge_from = serializers.DateTimeField(source="line.segment.start")
    charge_to = serializers.DateTimeField(source="until")
    quantity = Exact(source="line.quantity")
    unit = serializers.CharField(source="line.unit")
    unit_price = Exact(source="line.unit_price", allow_null=True)
    amount = Exact(allow_null=True)
    reason = serializers.CharField(
        source="line.reason", help_text="Why it has no price, or whose price of OpenCost stands in; else empty."
    )

    def get_what(self, row: Any) -> str:
        """What it is priced as."""
        return str(row.line.key or "")


class OpenPeriodSerializer(serializers.Serializer[Any]):
    """An open period as its bill would be now. ``final`` + ``open`` = ``total``."""

    period = serializers.CharField(help_text="Such as 2026-11.")
    issuer = serializers.CharField()
    currency = serializers.CharField()
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    current = serializers.BooleanField()
    total = Exact()
    final = Exact(help_text="Of hours that are final.")
    open = Exact(help_text="Of hours that are not final yet.")
    known_until = serializers.DateTimeField(allow_null=True)
    unpriced = serializers.IntegerField(help_text="Lines without a rate; they are in no total.")
    lines = OpenLineSerializer(many=True)


class CreditNoteSerializer(serializers.ModelSerializer[CreditNote]):
    """Money given back on a closed bill."""

    amount = Exact()
    bill = serializers.CharField(source="bill.number")
    line = serializers.IntegerField(source="line.position", allow_null=True, default=None)

    class Meta:
        model = CreditNote
        fields = ["id", "number", "bill", "line", "currency", "amount", "reason", "created_by", "created_at"]


class BillSerializer(serializers.ModelSerializer[Bill]):
    """A closed bill."""

    tenant = serializers.CharField(source="tenant.slug")
    issuer = serializers.CharField(source="period.issuer.slug")
    period = serializers.CharField()
    period_start = serializers.DateTimeField(source="period.starts_at")
    period_end = serializers.DateTimeField(source="period.ends_at")
    total = Exact()

    class Meta:
        model = Bill
        fields = [
            "id", "number", "version", "tenant", "issuer", "kind", "period", "period_start", "period_end", "currency",
            "total", "total_minor", "seq_after", "seq_upto", "digest", "closed_at", "closed_by",
        ]  # fmt: skip


class BillLineSerializer(serializers.ModelSerializer[BillLine]):
    """A line of a closed bill."""

    gpu_type = serializers.SlugRelatedField[GPUType](slug_field="slug", read_only=True, allow_null=True)
    unit_price = Exact()
    quantity = Exact()
    amount_exact = Exact()
    amount = Exact()

    class Meta:
        model = BillLine
        fields = [
            "id", "position", "kind", "correction", "deployment_id", "deployment_name", "namespace", "cost_code",
            "gpu_type", "sharing", "profile", "charge_from", "charge_to", "rate_id", "unit", "unit_price", "quantity",
            "amount_exact", "amount", "amount_minor",
        ]  # fmt: skip


class LineAllocationSerializer(serializers.Serializer[Any]):
    """An allocation's part in a line. Reserved idle time has no pod."""

    cluster = serializers.CharField(source="allocation.cluster.slug", default=None, allow_null=True)
    namespace = serializers.CharField(source="allocation.namespace", default=None, allow_null=True)
    pod = serializers.CharField(source="allocation.pod_name", default=None, allow_null=True)
    pod_uid = serializers.CharField(source="allocation.pod_uid", default=None, allow_null=True)
    resource = serializers.CharField(source="allocation.resource", default=None, allow_null=True)
    ordinal = serializers.IntegerField(source="allocation.ordinal", default=None, allow_null=True)
    node = serializers.CharField(source="node_name")
    card = serializers.CharField(source="allocation.device_uuid", default=None, allow_null=True)
    share = serializers.SerializerMethodField(help_text="Charged part of a card.")
    started_at = serializers.DateTimeField(source="allocation.started_at", default=None, allow_null=True)
    ended_at = serializers.DateTimeField(
        source="allocation.ended_at", default=None, allow_null=True, help_text="null: still held."
    )
    seconds = Exact(help_text="Held within the line.")
    quantity = Exact(source="shown_quantity", help_text="In the line's unit.")
    inferred = serializers.BooleanField(source="allocation.inferred", default=False)
    uncapped = serializers.BooleanField(source="allocation.uncapped", default=False)
    first_day = serializers.BooleanField(source="allocation.first_day", default=False)
    source = serializers.CharField(source="allocation.source", default=None, allow_null=True)  # type: ignore[assignment]  # a field of that name
    revisions = serializers.IntegerField()
    workload = serializers.CharField(help_text="What made the pod, as Job/train; empty: not known.")
    workload_known = serializers.CharField(help_text="seen, inferred, owner not read, owner not readable.")
    queue = serializers.CharField()

    def get_share(self, row: Any) -> str | None:
        """A decimal as text."""
        return Exact().to_representation(Decimal(row.allocation.share).scaleb(-6)) if row.allocation else None


class LinePartsSerializer(serializers.Serializer[Any]):
    """What a line is made of: some allocations, and what all of them are together."""

    count = serializers.IntegerField()
    offset = serializers.IntegerField()
    quantity = Exact(help_text="Σ of all allocations.")
    adds_up = serializers.BooleanField(help_text="Whether Σ is the line.")
    rows = LineAllocationSerializer(many=True)


class IssuerSerializer(serializers.ModelSerializer[Issuer]):
    """Who bills."""

    class Meta:
        model = Issuer
        fields = [
            "id", "slug", "name", "kind", "currency", "time_zone", "grace_hours", "is_default", "number_prefix",
        ]  # fmt: skip


class NewIssuerSerializer(serializers.Serializer[Any]):
    """An issuer to make: currency and time zone are for good."""

    slug = serializers.SlugField(max_length=40)
    name = serializers.CharField(max_length=120)
    currency = serializers.CharField(max_length=3, min_length=3)
    time_zone = serializers.CharField(max_length=64, default="UTC")
    kind = serializers.ChoiceField(choices=Issuer.Kind.choices, default=Issuer.Kind.STATEMENT)
    grace_hours = serializers.IntegerField(min_value=0, max_value=2000, default=72)
    is_default = serializers.BooleanField(default=False)


class RateSerializer(serializers.ModelSerializer[Rate]):
    """A price from an instant until another."""

    issuer = serializers.CharField(source="card.issuer.slug")
    currency = serializers.CharField(source="card.issuer.currency")
    gpu_type = serializers.SlugRelatedField[GPUType](slug_field="slug", read_only=True, allow_null=True)
    price = Exact(allow_null=True)
    margin = Exact()

    class Meta:
        model = Rate
        fields = [
            "id", "issuer", "currency", "resource", "gpu_type", "sharing", "profile", "source", "price", "margin",
            "included_cpu_millicores", "included_memory_mib", "valid_from", "valid_to", "created_by", "created_at",
        ]  # fmt: skip


class NewRateSerializer(serializers.Serializer[Any]):
    """A price to set."""

    resource = serializers.ChoiceField(choices=Rate.Resource.choices, default=Rate.Resource.GPU)
    gpu_type = serializers.CharField(required=False, allow_null=True, default=None, help_text="Slug.")
    sharing = serializers.ChoiceField(choices=SharingMode.choices, required=False, default="", allow_blank=True)
    profile = serializers.CharField(max_length=32, required=False, default="", allow_blank=True)
    source = serializers.ChoiceField(choices=Rate.Source.choices, default=Rate.Source.FIXED)  # type: ignore[assignment]  # a field of that name
    price = serializers.DecimalField(max_digits=20, decimal_places=10, required=False, allow_null=True, default=None)
    margin = serializers.DecimalField(max_digits=8, decimal_places=4, required=False, default=Decimal(0))
    included_cpu_millicores = serializers.IntegerField(min_value=0, required=False, allow_null=True, default=None)
    included_memory_mib = serializers.IntegerField(min_value=0, required=False, allow_null=True, default=None)
    valid_from = serializers.DateTimeField()


class RateEndSerializer(serializers.Serializer[Any]):
    """When a rate ends without another one."""

    valid_to = serializers.DateTimeField()


class UnpricedSerializer(serializers.Serializer[Any]):
    """What has no rate: used in open periods (it blocks the close), or only there (quantity 0)."""

    what = serializers.CharField()
    resource = serializers.CharField()
    gpu_type = serializers.CharField()
    sharing = serializers.CharField()
    profile = serializers.CharField()
    unit = serializers.CharField()
    quantity = Exact()
    first = serializers.DateTimeField(allow_null=True)
    last = serializers.DateTimeField(allow_null=True)
    tenants = serializers.IntegerField()


class PeriodSerializer(serializers.ModelSerializer[BillingPeriod]):
    """A month of an issuer."""

    period = serializers.CharField(source="*")
    issuer = serializers.CharField(source="issuer.slug")

    class Meta:
        model = BillingPeriod
        fields = ["period", "issuer", "starts_at", "ends_at", "state", "seq_upto", "closed_at", "closed_by"]


class PeriodStateSerializer(serializers.Serializer[Any]):
    """A month and how far it is."""

    period = PeriodSerializer()
    bills = serializers.IntegerField()
    total = Exact(help_text="Of the closed bills.")
    behind = serializers.ListField(child=serializers.CharField(), help_text="Clusters whose usage is not final.")


class StatementSerializer(serializers.Serializer[Any]):
    """A tenant in a period: its bill, or what final hours cost so far."""

    tenant = serializers.CharField(source="tenant.slug")
    bill = serializers.UUIDField(source="bill.pk", default=None, allow_null=True)
    number = serializers.CharField(source="bill.number", default=None, allow_null=True)
    total = Exact()
    credit = Exact()
    unpriced = serializers.IntegerField()


class BlockerSerializer(serializers.Serializer[Any]):
    """What keeps a period from being closed."""

    code = serializers.CharField()
    sentence = serializers.CharField()
    acceptable = serializers.BooleanField(help_text="Whether the close takes it with accept_behind.")


class PeriodDetailSerializer(serializers.Serializer[Any]):
    """A month with its tenants, and what keeps it from being closed."""

    period = PeriodSerializer()
    closes_at = serializers.DateTimeField()
    blockers = BlockerSerializer(many=True)
    statements = StatementSerializer(many=True)


class CloseSerializer(serializers.Serializer[Any]):
    """How to close."""

    accept_behind = serializers.BooleanField(
        default=False, help_text="Close although clusters are behind: what they tell later is on the next bill."
    )


class ClosedSerializer(serializers.Serializer[Any]):
    """What a close did. Doing it again changes nothing."""

    period = PeriodSerializer()
    made = serializers.IntegerField(help_text="Bills that were made; 0 where it was closed already.")


class NewCreditNoteSerializer(serializers.Serializer[Any]):
    """Money to give back."""

    amount = serializers.DecimalField(max_digits=24, decimal_places=4)
    reason = serializers.CharField(max_length=2000)
    line = serializers.IntegerField(
        min_value=1, required=False, allow_null=True, default=None, help_text="Position of a line of the bill."
    )


class AccountSerializer(serializers.Serializer[Any]):
    """Which issuer bills a tenant."""

    issuer = serializers.CharField(help_text="Slug.")
