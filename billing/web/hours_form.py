"""What the pages about the fleet's hours are narrowed to and grouped by; it lives in the address."""

from __future__ import annotations

from typing import Any

from django import forms

from billing.selectors.hours import DIMENSIONS, Only
from billing.web.forms import LONGEST_HOURS, WindowForm
from infra.models import Cluster, GPUType, NodePool, Site
from tenants.models import Tenant

STANDARD = ("cluster", "pool")


class _Named(forms.ModelChoiceField):  # type: ignore[type-arg]  # of any model that has a slug, or a cluster and a name
    """A choice of rows by their short names."""

    def label_from_instance(self, obj: Any) -> str:
        """The short name; of a pool, with its cluster's."""
        return f"{obj.name} on {obj.cluster.slug}" if isinstance(obj, NodePool) else str(obj.slug)


def _by_slug(model: Any, label: str, empty: str) -> _Named:
    return _Named(model.objects.none(), required=False, to_field_name="slug", label=label, empty_label=empty)


class HoursForm(WindowForm):
    """Days, what is counted, and what the rows are apart in."""

    site = _by_slug(Site, "Site", "all sites")
    cluster = _by_slug(Cluster, "Cluster", "all clusters")
    pool = _Named(NodePool.objects.none(), required=False, label="Pool", empty_label="all pools")
    gpu_type = _by_slug(GPUType, "GPU type", "any type")
    tenant = _by_slug(Tenant, "Team", "all teams and what is no team's")
    by = forms.MultipleChoiceField(
        required=False, label="Rows by", choices=list(DIMENSIONS.items()), widget=forms.CheckboxSelectMultiple
    )
    longest = LONGEST_HOURS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rows = {
            "site": Site.objects.order_by("slug"),
            "cluster": Cluster.objects.order_by("slug"),
            "pool": NodePool.objects.select_related("cluster").order_by("cluster__slug", "name"),
            "gpu_type": GPUType.objects.order_by("slug"),
            "tenant": Tenant.objects.order_by("slug"),
        }
        for name, found in rows.items():
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = found

    @property
    def groups(self) -> tuple[str, ...]:
        """What the rows are apart in, in the order of the columns."""
        chosen = (self.cleaned_data.get("by") if self.is_valid() else None) or STANDARD
        if "pool" in chosen:
            chosen = [*chosen, "cluster"]
        return tuple(name for name in DIMENSIONS if name in chosen)

    @property
    def only(self) -> Only:
        """What is counted; everything where the form is wrong."""
        data = self.cleaned_data if self.is_valid() else {}
        found = {name: data.get(name) for name in ("site", "cluster", "pool", "gpu_type", "tenant")}
        return Only(**{f"{name}_id": row.pk for name, row in found.items() if row is not None})
