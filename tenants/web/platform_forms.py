"""Forms of the platform's pages about tenants."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any

from django import forms

from infra.models import Cluster, GPUType, Site
from portal.kernel.forms import FieldOf, PortalForm
from portal.kernel.problems import Problem
from tenants.models import Tenant, Zone
from tenants.services.allotments import CARD


class _Fresh(PortalForm):
    """Querysets of choices are made with the form, not with the class."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            if isinstance(field, forms.ModelChoiceField) and field.queryset is not None:
                field.queryset = field.queryset.model._default_manager.order_by("slug")


class ZoneForm(PortalForm):
    """A new trust zone."""

    slug = forms.SlugField(
        max_length=40, label="Short name", error_messages={"invalid": "Use lower-case letters, digits and dashes."}
    )
    name = forms.CharField(max_length=120, required=False, label="Name")


class TenantForm(_Fresh):
    """A new tenant."""

    slug = forms.SlugField(
        max_length=40, label="Short name", help_text="Names its namespaces t-…; it can't be changed later."
    )
    name = forms.CharField(max_length=120, required=False, label="Name")
    zone = forms.ModelChoiceField(Zone.objects.none(), to_field_name="slug", label="Trust zone")
    sites = forms.ModelMultipleChoiceField(
        Site.objects.none(),
        to_field_name="slug",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label="Allowed sites",
        help_text="None means none: nothing of it is placed anywhere.",
    )
    cost_code = forms.CharField(max_length=60, required=False, label="Cost code")
    cost_code_required = forms.BooleanField(required=False, label="A cost code is required")


class TenantChangeForm(TenantForm):
    """What can be changed of a tenant."""

    slug = None  # type: ignore[assignment]  # it stays
    zone = None  # type: ignore[assignment]  # a move of its own


class MoveForm(_Fresh):
    """Another trust zone."""

    zone = forms.ModelChoiceField(Zone.objects.none(), to_field_name="slug", label="Trust zone")


class QuotaForm(_Fresh):
    """A quota in cards."""

    gpu_type = forms.ModelChoiceField(GPUType.objects.none(), to_field_name="slug", label="GPU type")
    limit = forms.DecimalField(min_value=0, max_digits=13, decimal_places=6, label="Limit, cards")
    guaranteed = forms.DecimalField(
        min_value=0, max_digits=13, decimal_places=6, label="Guaranteed, cards", required=False
    )

    def millionths(self, name: str) -> int:
        """A figure of the form in millionths of a card; an empty one is 0."""
        return int((self.cleaned_data[name] or Decimal(0)) * CARD)


class LinesField(forms.CharField):
    """``key: value`` on each line, as a mapping of texts."""

    widget = forms.Textarea

    def __init__(self, *, example: str, **kwargs: Any) -> None:
        self.example = example
        super().__init__(required=False, widget=forms.Textarea(attrs={"rows": 3, "class": "mono"}), **kwargs)

    def prepare_value(self, value: Any) -> Any:
        """A mapping as lines."""
        return "\n".join(f"{key}: {one}" for key, one in value.items()) if isinstance(value, dict) else value

    def clean(self, value: Any) -> dict[str, str]:
        """The lines as a mapping; empty lines are skipped."""
        found: dict[str, str] = {}
        for line in filter(None, (one.strip() for one in (super().clean(value) or "").splitlines())):
            key, colon, rest = (part.strip() for part in line.partition(":"))
            if not colon or not key or not rest:
                raise forms.ValidationError(f"{line!r} is no line such as {self.example}.")
            if key in found:
                raise forms.ValidationError(f"{key} is named twice; keep one line.")
            found[key] = rest
        return found


class SharingForm(PortalForm):
    """Which shares a tenant may ask for, and what else its namespaces are limited to."""

    free_shares = forms.BooleanField(required=False, label="Memory and cores of its own are allowed")
    namespace_limits = LinesField(
        example="pods: 200", label="More limits of its namespaces",
        help_text="Keys of Kubernetes' ResourceQuota, one on each line: pods: 200. Cards follow from the quota.",
    )  # fmt: skip

    def add_problem(self, problem: Problem, field_of: FieldOf | Mapping[str, str] | None = None) -> None:
        """Each refused key at the field that holds them."""
        super().add_problem(problem, lambda pointer: "namespace_limits" if "namespace_limits" in pointer else None)


class ProfilesForm(_Fresh):
    """Instances of MIG profiles."""

    gpu_type = forms.ModelChoiceField(GPUType.objects.none(), to_field_name="slug", label="GPU type")
    profiles = LinesField(
        example="1g.10gb: 8", label="Instances by profile",
        help_text="One on each line: 1g.10gb: 8. They take the place of those that were set for this type.",
    )  # fmt: skip

    def clean_profiles(self) -> dict[str, int]:
        """Whole numbers."""
        found: dict[str, int] = {}
        for profile, count in self.cleaned_data["profiles"].items():
            if not count.isdecimal() or len(count) > 9:
                raise forms.ValidationError(f"{profile}: {count} is no number of instances.")
            found[profile] = int(count)
        return found

    def add_problem(self, problem: Problem, field_of: FieldOf | Mapping[str, str] | None = None) -> None:
        """Each refused profile at the field that holds them."""
        super().add_problem(problem, lambda pointer: "profiles" if "profiles" in pointer else None)


class ClaimForm(_Fresh):
    """A namespace for a tenant."""

    cluster = forms.ModelChoiceField(Cluster.objects.none(), to_field_name="slug", label="Cluster")
    namespace = forms.CharField(max_length=63, label="Namespace")
    tenant = forms.ModelChoiceField(Tenant.objects.none(), to_field_name="slug", label="Tenant")
    valid_from = forms.DateTimeField(
        label="From, UTC",
        widget=forms.DateTimeInput(attrs={"placeholder": "2026-11-01 00:00"}),
        help_text="It may lie in the past: what was metered is set right, closed bills get a correction.",
    )
    cost_code = forms.CharField(max_length=60, required=False, label="Cost code")

    def clean_valid_from(self) -> object:
        """As UTC."""
        return self.cleaned_data["valid_from"].astimezone(UTC)
