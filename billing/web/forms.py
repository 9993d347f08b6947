"""Forms of the pages about usage and money."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from django import forms

from billing.models import Issuer, Rate
from billing.selectors.usage import DIMENSIONS, STANDARD, Choices
from infra.models import Cluster, GPUType
from infra.models.hardware import SharingMode
from infra.shares import OVERCOMMIT
from portal.kernel.clock import Interval, zone
from portal.kernel.forms import PortalForm
from tenants.models import Tenant

LONGEST = 400
"""Days that a page of usage may cover."""
LONGEST_HOURS = 92
"""Days that a page of capacity may cover."""

_DATE = {"type": "date"}
GROUPS = {
    "day": "day",
    "deployment": "deployment or namespace",
    "inner_namespace": "namespace in the tenant cluster",
    "gpu_type": "GPU type",
    "mode": "mode",
}


def instant(day: date, tz_name: str, at: time = time()) -> datetime:
    """A wall-clock time of a zone as an instant in UTC."""
    return datetime.combine(day, at, tzinfo=zone(tz_name)).astimezone(UTC)


class _BySlug(forms.ModelChoiceField):  # type: ignore[type-arg]  # of any model that has a slug
    """A choice of rows by their short names."""

    def label_from_instance(self, obj: Any) -> str:
        """The short name."""
        return str(obj.slug)


class WindowForm(PortalForm):
    """Whole days, first and last included."""

    start = forms.DateField(required=False, label="From", widget=forms.DateInput(attrs=_DATE))
    end = forms.DateField(required=False, label="To (included)", widget=forms.DateInput(attrs=_DATE))
    longest = LONGEST

    def clean(self) -> dict[str, Any]:
        """The days in order, and not too many of them."""
        data = super().clean() or {}
        first, last = data.get("start"), data.get("end")
        if first and last and last < first:
            self.add_error("end", "The last day is before the first one.")
        elif first and last and (last - first).days >= self.longest:
            self.add_error("end", f"These are more than {self.longest} days. Choose fewer.")
        for day in (first, last):
            if day and not 2000 <= day.year < 2200:
                self.add_error(None, f"{day} is no day that anything was measured on.")
        return data

    def window(self, tz_name: str, standard: Interval) -> Interval:
        """The instants of the chosen days in a zone; ``standard`` where none were chosen, or they are wrong."""
        if not self.is_valid():
            return standard
        tz = zone(tz_name)
        first = self.cleaned_data.get("start") or standard.start.astimezone(tz).date()
        last = self.cleaned_data.get("end")
        if last is None:
            last = (standard.end - timedelta(seconds=1)).astimezone(tz).date()
            last = min(max(first, last), first + timedelta(days=self.longest - 1))
        # Only the last day was given: it may lie far ahead.
        first = max(min(first, last), last - timedelta(days=self.longest - 1))
        return Interval(instant(first, tz_name), instant(last + timedelta(days=1), tz_name))


class UsageForm(WindowForm):
    """What the usage table is grouped by and narrowed to; it lives in the address."""

    by = forms.MultipleChoiceField(
        required=False, label="Rows by", choices=list(GROUPS.items()), widget=forms.CheckboxSelectMultiple
    )
    deployment = forms.ChoiceField(required=False, label="Deployment or namespace")
    gpu_type = forms.ChoiceField(required=False, label="GPU type")
    sharing = forms.ChoiceField(required=False, label="Mode", choices=[("", "any mode"), *SharingMode.choices])

    def __init__(self, *args: Any, choices: Choices, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        deployment, gpu_type = self.fields["deployment"], self.fields["gpu_type"]
        assert isinstance(deployment, forms.ChoiceField)
        assert isinstance(gpu_type, forms.ChoiceField)
        deployment.choices = [
            ("", "all of them"),
            *([("Deployments", choices.deployments)] if choices.deployments else []),
            *([("Namespaces", [(f"ns:{name}", name) for name in choices.namespaces])] if choices.namespaces else []),
        ]
        gpu_type.choices = [("", "any type"), *choices.gpu_types]
        if not choices.inside:
            by = self.fields["by"]
            assert isinstance(by, forms.MultipleChoiceField)
            by.choices = [(name, words) for name, words in GROUPS.items() if name != "inner_namespace"]

    @property
    def groups(self) -> tuple[str, ...]:
        """What the rows are apart in; all but inner namespaces where nothing was chosen."""
        chosen = self.cleaned_data.get("by") or STANDARD
        return tuple(name for name in DIMENSIONS if name in chosen)


class CapacityForm(WindowForm):
    """Days, cluster and type of the pages about where the hours go."""

    cluster = _BySlug(Cluster.objects.none(), required=False, to_field_name="slug", empty_label="all clusters")
    gpu_type = _BySlug(
        GPUType.objects.none(), required=False, to_field_name="slug", label="GPU type", empty_label="any type"
    )
    wrong = forms.BooleanField(required=False, label="Only what does not add up")
    longest = LONGEST_HOURS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, model in (("cluster", Cluster), ("gpu_type", GPUType)):
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = model.objects.order_by("slug")


class BesideForm(WindowForm):
    """Days, cluster and team of the page beside OpenCost."""

    cluster = _BySlug(Cluster.objects.none(), required=False, to_field_name="slug", empty_label="all clusters")
    tenant = _BySlug(Tenant.objects.none(), required=False, to_field_name="slug", label="Team", empty_label="all teams")
    longest = 31

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, model in (("cluster", Cluster), ("tenant", Tenant)):
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = model.objects.order_by("slug")


class OpenCostForm(PortalForm):
    """How a cluster's OpenCost is read."""

    currency = forms.CharField(required=False, max_length=3, label="Its prices are in")
    read_from = forms.DateField(required=False, label="Read again from", widget=forms.DateInput(attrs=_DATE))

    def clean_currency(self) -> str:
        """As ISO writes it."""
        return str(self.cleaned_data["currency"]).upper()


class IssuerForm(PortalForm):
    """Who bills."""

    slug = forms.SlugField(max_length=40, label="Short name")
    name = forms.CharField(max_length=120, label="Name", help_text="Printed on every bill.")
    currency = forms.CharField(max_length=3, min_length=3, label="Currency", initial="EUR", help_text="ISO 4217 code.")
    time_zone = forms.CharField(
        max_length=64, initial="UTC", help_text="Months begin at midnight there, such as Europe/Berlin."
    )
    kind = forms.ChoiceField(choices=Issuer.Kind.choices, label="Bills are")
    grace_hours = forms.IntegerField(
        min_value=0, max_value=2000, initial=72, label="Grace, hours", help_text="Before a month can be closed."
    )

    def clean_currency(self) -> str:
        """As ISO writes it."""
        return str(self.cleaned_data["currency"]).upper()


class RateForm(PortalForm):
    """A price from a date on."""

    resource = forms.ChoiceField(label="Price of", choices=Rate.Resource.choices)
    gpu_type = _BySlug(
        GPUType.objects.none(), required=False, to_field_name="slug", label="GPU type", empty_label="(no card)"
    )
    sharing = forms.ChoiceField(required=False, label="Mode", choices=[("", "(no card)"), *SharingMode.choices])
    profile = forms.CharField(
        required=False, max_length=32, label="Profile",
        help_text=f"Of MIG, such as 1g.10gb. For HAMi pools that hand out more memory than there is: {OVERCOMMIT}.",
    )  # fmt: skip
    source = forms.ChoiceField(label="Price comes from", choices=Rate.Source.choices)
    price = forms.DecimalField(
        required=False, min_value=Decimal(0), max_digits=20, decimal_places=10, label="Price",
        help_text="For one unit for an hour: a whole card (a share pays its part), a MIG instance, a core, a GiB. "
        "Empty where it is OpenCost's.",
    )  # fmt: skip
    margin = forms.DecimalField(
        required=False, min_value=Decimal(0), max_digits=8, decimal_places=4, label="Margin", initial=Decimal(0),
        help_text="0.15 adds 15 %.",
    )  # fmt: skip
    included_cpu_millicores = forms.IntegerField(
        required=False, min_value=0, label="Included CPU", help_text="Millicores for a whole card. Empty: all of it."
    )
    included_memory_mib = forms.IntegerField(
        required=False, min_value=0, label="Included memory", help_text="MiB for a whole card. Empty: all of it."
    )
    date = forms.DateField(label="From", widget=forms.DateInput(attrs=_DATE))
    time = forms.TimeField(label="At", initial=time(), widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"))

    def __init__(self, *args: Any, issuer: Issuer, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.issuer = issuer
        gpu_type = self.fields["gpu_type"]
        assert isinstance(gpu_type, forms.ModelChoiceField)
        gpu_type.queryset = GPUType.objects.order_by("slug")
        self.fields["date"].help_text = f"In the time zone of the issuer, {issuer.time_zone}."

    def arguments(self) -> dict[str, Any]:
        """What ``rate_set`` takes, of a valid form."""
        data = dict(self.cleaned_data)
        day, at = data.pop("date"), data.pop("time")
        data["margin"] = data["margin"] or Decimal(0)
        return data | {"valid_from": instant(day, self.issuer.time_zone, at)}


class RateEndForm(PortalForm):
    """When a rate ends without another."""

    date = forms.DateField(label="Ends on", widget=forms.DateInput(attrs=_DATE))
    time = forms.TimeField(label="At", initial=time(), widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"))


class CloseForm(PortalForm):
    """The period, typed, so that no month is closed by a slip."""

    confirm = forms.CharField(
        label="Type the period to close it",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    accept_behind = forms.BooleanField(
        required=False, label="Close although clusters are behind: what they tell later is on the next bill"
    )

    def __init__(self, *args: Any, expected: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.expected = expected

    def clean_confirm(self) -> str:
        """Exactly the period."""
        if self.cleaned_data["confirm"].strip() != self.expected:
            raise forms.ValidationError(f"Type {self.expected} to say that you mean this month.")
        return self.expected


class CreditForm(PortalForm):
    """Money given back on a bill, or on a line of it."""

    line = forms.IntegerField(
        required=False, min_value=1, label="Line", help_text="Its number on the bill. Empty: the bill as a whole."
    )
    amount = forms.DecimalField(min_value=Decimal(0), max_digits=24, decimal_places=4, label="Amount")
    reason = forms.CharField(max_length=2000, label="Reason", help_text="The team reads it.")
