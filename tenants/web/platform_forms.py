"""Forms of the platform's pages about tenants."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal

from django import forms

from infra.models import Cluster, GPUType, Site
from portal.kernel.forms import PortalForm
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

    slug = forms.SlugField(max_length=40, label="Short name")
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
