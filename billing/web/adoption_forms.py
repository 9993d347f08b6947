"""Forms that give namespaces to tenants: several at once, and by rule."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import forms

from infra.models import ClaimRule, Cluster, Site
from portal.kernel.clock import utcnow
from portal.kernel.forms import PortalForm
from tenants.models import Tenant

_MOMENT = {"placeholder": "2026-11-01 00:00"}


class _Fresh(PortalForm):
    """Choices are read when the form is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            if isinstance(field, forms.ModelChoiceField) and field.queryset is not None:
                field.queryset = field.queryset.model._default_manager.order_by("slug")

    def clean_valid_from(self) -> datetime:
        """As UTC."""
        found: datetime = self.cleaned_data["valid_from"]
        return found.astimezone(UTC)


class MapForm(_Fresh):
    """Namespaces (``cluster/namespace``, from the boxes of the list) for one tenant."""

    tenant = forms.ModelChoiceField(Tenant.objects.none(), to_field_name="slug", label="Tenant")
    valid_from = forms.DateTimeField(
        label="From, UTC",
        widget=forms.DateTimeInput(attrs=_MOMENT),
        help_text="It may lie in the past: what was metered is set right, closed bills get a correction.",
    )
    cost_code = forms.CharField(max_length=60, required=False, label="Cost code", help_text="Empty: the tenant's.")


class RuleForm(_Fresh):
    """A rule that gives namespaces."""

    kind = forms.ChoiceField(choices=ClaimRule.Kind.choices, label="By")
    label_key = forms.CharField(max_length=317, required=False, label="Label", help_text="such as team")
    by_slug = forms.BooleanField(required=False, label="The label's value is the tenant's short name")
    label_value = forms.CharField(max_length=63, required=False, label="Value of the label")
    pattern = forms.CharField(
        max_length=120, required=False, label="Name", help_text="By the name: * stands for any characters, ? for one."
    )
    cluster = forms.ModelChoiceField(
        Cluster.objects.none(), to_field_name="slug", required=False, label="On the cluster"
    )
    site = forms.ModelChoiceField(
        Site.objects.none(), to_field_name="slug", required=False, label="or on all clusters of the site"
    )
    tenant = forms.ModelChoiceField(Tenant.objects.none(), to_field_name="slug", required=False, label="Tenant")
    cost_code = forms.CharField(max_length=60, required=False, label="Cost code")
    cost_code_label = forms.CharField(
        max_length=317, required=False, label="or the label with the cost code", help_text="such as cost-center"
    )
    valid_from = forms.DateTimeField(
        label="From, UTC",
        widget=forms.DateTimeInput(attrs=_MOMENT),
        help_text="No claim of the rule begins earlier. It may lie in the past.",
    )
    position = forms.IntegerField(
        required=False, min_value=1, label="Place in the order", help_text="Empty: after all others."
    )

    def values(self) -> dict[str, Any]:
        """Arguments of ``claim_rule_create``."""
        found = dict(self.cleaned_data)
        tenant: Tenant | None = found.pop("tenant")
        return {**found, "tenant_id": tenant.pk if tenant else None}


def month_begin() -> str:
    """The beginning of this UTC month, as the forms write it."""
    return utcnow().strftime("%Y-%m-01 00:00")
