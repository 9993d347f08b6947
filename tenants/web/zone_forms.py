"""Forms about trust zones and about what tenants may run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from infra.models import NodePool
from portal.kernel.forms import FieldOf, PortalForm
from portal.kernel.problems import Problem
from tenants.models import Tenant, Zone


class RenameForm(PortalForm):
    """Another name."""

    name = forms.CharField(max_length=120, label="Name")


class PoolChoice(forms.ModelChoiceField):  # type: ignore[type-arg]
    """A pool, shown with its cluster."""

    def label_from_instance(self, obj: Any) -> str:
        """``gpu-fra-1/h100``"""
        return f"{obj.cluster.slug}/{obj.name}"


class PoolZoneForm(PortalForm):
    """A pool, and for whom it is kept."""

    pool = PoolChoice(NodePool.objects.none(), label="Pool")
    zone = forms.ModelChoiceField(
        Zone.objects.none(), to_field_name="slug", required=False, label="Kept for zone",
        empty_label="nobody: it is everybody's",
    )  # fmt: skip

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        pool, zone = self.fields["pool"], self.fields["zone"]
        assert isinstance(pool, forms.ModelChoiceField)
        assert isinstance(zone, forms.ModelChoiceField)
        pools = NodePool.objects.filter(cluster__abandoned_at__isnull=True).select_related("cluster")
        pool.queryset = pools.order_by("cluster__slug", "name")
        zone.queryset = Zone.objects.order_by("slug")


class RulesForm(PortalForm):
    """What a tenant may run."""

    only_these = forms.BooleanField(required=False, label="Only images from the registries named here")
    image_registries = forms.CharField(
        required=False, label="Registries or repositories",
        widget=forms.Textarea(attrs={"rows": 3, "class": "mono", "spellcheck": "false"}),
        help_text="One on each line: ghcr.io/team, docker.io/vllm. Ticked and empty: no image at all.",
    )  # fmt: skip
    pin_image_digests = forms.BooleanField(required=False, label="Images must be given with their digest")
    allow_remote_code = forms.BooleanField(required=False, label="Code from models' repositories may run")

    @classmethod
    def of(cls, tenant: Tenant) -> RulesForm:
        """Filled with what holds now."""
        return cls(
            initial={
                "only_these": tenant.image_registries is not None,
                "image_registries": "\n".join(tenant.image_registries or ()),
                "pin_image_digests": tenant.pin_image_digests,
                "allow_remote_code": tenant.allow_remote_code,
            }
        )

    def rules(self) -> dict[str, Any]:
        """As :func:`tenants.services.rules.tenant_rules_set` takes them."""
        body = dict(self.cleaned_data)
        named = body.pop("image_registries").split()
        return body | {"image_registries": named if body.pop("only_these") else None}

    def clean(self) -> dict[str, Any]:
        """Registries that would not count are an oversight."""
        body: dict[str, Any] = super().clean() or {}
        if body.get("image_registries", "").strip() and not body.get("only_these"):
            self.add_error("only_these", "Tick this for the registries to count, or leave them out.")
        return body

    def add_problem(self, problem: Problem, field_of: FieldOf | Mapping[str, str] | None = None) -> None:
        """Each refused registry at the field that holds them."""
        super().add_problem(problem, lambda pointer: "image_registries" if "image_registries" in pointer else None)
