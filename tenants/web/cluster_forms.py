"""Forms of the pages about tenant clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.validators import MaxValueValidator

from infra.models import GPUType
from portal.kernel.forms import PortalForm
from tenants.models import Robot, TenantCluster
from tenants.services.allotments import CARD
from tenants.services.tenantcluster_access import SHORTEST_SECONDS, longest_life
from tenants.tenantclusters.profile import Version

_AMOUNT = "cards-"


class RequestForm(PortalForm):
    """A tenant cluster to ask for: where, which version, and how many cards of each kind that the team has a quota of.

    The cards of a type are in a field of its own, ``cards-<slug>``.
    """

    cluster = forms.ChoiceField(label="Host cluster", help_text="Managed clusters at the sites that the team may use.")
    version = forms.ChoiceField(label="Kubernetes version")
    endpoint = forms.CharField(
        required=False, max_length=400, help_text="https://host:port. Empty: by the platform's pattern."
    )

    def __init__(
        self, *args: Any, hosts: Sequence[str], versions: Sequence[Version], types: Sequence[GPUType],
        may_name_endpoint: bool, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **kwargs)
        cluster, version = self.fields["cluster"], self.fields["version"]
        assert isinstance(cluster, forms.ChoiceField)
        assert isinstance(version, forms.ChoiceField)
        cluster.choices = [(slug, slug) for slug in hosts]
        version.choices = [(one.kubernetes, str(one)) for one in reversed(versions)]
        if not may_name_endpoint:
            del self.fields["endpoint"]
        for one in types:
            self.fields[f"{_AMOUNT}{one.slug}"] = forms.IntegerField(
                min_value=0, max_value=100_000, initial=0, required=False, label=f"Cards: {one.name}",
                help_text="Whole cards, taken from the team's quota at once.",
                widget=forms.NumberInput(attrs={"class": "form-control"}),
            )  # fmt: skip

    @property
    def allotments(self) -> dict[str, int]:
        """GPU type → millionths of a card, of those that were given."""
        return {
            name.removeprefix(_AMOUNT): value * CARD
            for name, value in self.cleaned_data.items()
            if name.startswith(_AMOUNT) and value
        }

    def field_of(self, pointer: str) -> str | None:
        """The field of a refusal's pointer."""
        name = pointer.strip("/")
        return f"{_AMOUNT}{name.removeprefix('allotments/')}" if name.startswith("allotments/") else name


class UpgradeForm(PortalForm):
    """Where to go from here."""

    version = forms.ChoiceField(label="Kubernetes version")

    def __init__(self, *args: Any, versions: Sequence[Version], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        version = self.fields["version"]
        assert isinstance(version, forms.ChoiceField)
        version.choices = [(one.kubernetes, str(one)) for one in versions]


class RobotForm(PortalForm):
    """A program that may use the tenant cluster."""

    name = forms.CharField(max_length=40, help_text="Lower-case letters, digits and dashes.")
    role = forms.ChoiceField(choices=Robot.Role.choices, initial=Robot.Role.EDIT)


class TokenForm(PortalForm):
    """How long a robot's new token shall live."""

    minutes = forms.IntegerField(min_value=SHORTEST_SECONDS // 60, label="Minutes")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        longest = longest_life() // 60
        field = self.fields["minutes"]
        field.initial = min(60, longest)
        field.help_text = f"{SHORTEST_SECONDS // 60} to {longest}."
        assert isinstance(field, forms.IntegerField)
        field.max_value = longest
        field.validators.append(MaxValueValidator(longest))


class DeleteClusterForm(PortalForm):
    """The name, typed, as the last question."""

    name = forms.CharField(max_length=40)

    def __init__(self, *args: Any, row: TenantCluster, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row = row
        self.fields["name"].label = f"Type {row.name} to delete it"

    def clean_name(self) -> str:
        """It must be the tenant cluster's."""
        name: str = self.cleaned_data["name"].strip()
        if name != self.row.name:
            raise forms.ValidationError(f"Type {self.row.name} exactly.")
        return name
