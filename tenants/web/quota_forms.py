"""Forms of quota requests and of parts that are moved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django import forms

from infra.models import GPUType
from portal.kernel.forms import PortalForm
from tenants.models import QuotaRequest
from tenants.services.allotments import CARD, cards

FREE = ""
"""An end of a move that is what is free of the quota."""


def _type_field() -> forms.ModelChoiceField[GPUType]:
    return forms.ModelChoiceField(GPUType.objects.none(), to_field_name="slug", label="GPU type")


def _cards_field(label: str, **more: Any) -> forms.DecimalField:
    return forms.DecimalField(min_value=0, max_digits=13, decimal_places=6, label=label, **more)


def _time_field(label: str, help_text: str) -> forms.DateTimeField:
    return forms.DateTimeField(
        label=label,
        required=False,
        help_text=help_text,
        error_messages={"invalid": "Write it as 2026-12-01 08:00."},
        widget=forms.DateTimeInput(format="%Y-%m-%d %H:%M", attrs={"placeholder": "2026-12-01 08:00"}),
    )


class RequestForm(PortalForm):
    """What is asked for."""

    gpu_type = _type_field()
    limit = _cards_field("Limit, cards", help_text="How many at most, over all clusters together.")
    guaranteed = _cards_field("Guaranteed of them, cards", required=False, help_text="Promised to the team.")
    starts_at = _time_field("From, UTC", "Empty: as soon as it is approved.")
    until = _time_field("Until, UTC", "Then the former quota comes back. Empty: for good.")
    reason = forms.CharField(
        max_length=4_000, label="What it is for", widget=forms.Textarea(attrs={"rows": 3}), strip=True
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        gpu_type = self.fields["gpu_type"]
        assert isinstance(gpu_type, forms.ModelChoiceField)
        gpu_type.queryset = GPUType.objects.order_by("slug")

    @property
    def values(self) -> dict[str, Any]:
        """As the services take them, without the type."""
        given = self.cleaned_data
        return {
            "limit": int(given["limit"] * CARD),
            "guaranteed": int((given["guaranteed"] or Decimal(0)) * CARD),
            "starts_at": _utc(given["starts_at"]),
            "until": _utc(given["until"]),
            "reason": given["reason"],
        }


class ChangeForm(RequestForm):
    """The same of a draft; its type stays."""

    gpu_type = None  # type: ignore[assignment]  # it stays

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        PortalForm.__init__(self, *args, **kwargs)


def initial_of(row: QuotaRequest) -> dict[str, Any]:
    """What the form of a draft shows first."""
    return {
        "limit": cards(row.limit),
        "guaranteed": cards(row.guaranteed),
        "starts_at": row.starts_at,
        "until": row.until,
        "reason": row.reason,
    }


class CommentForm(PortalForm):
    """Something to say."""

    text = forms.CharField(max_length=4_000, label="Comment", widget=forms.Textarea(attrs={"rows": 2}), strip=True)


class DecisionForm(PortalForm):
    """Yes or no. A no says why."""

    comment = forms.CharField(
        max_length=4_000, required=False, label="Comment", widget=forms.Textarea(attrs={"rows": 2}), strip=True
    )


class MovePartForm(PortalForm):
    """Cards from one namespace to another, or from and to what is free."""

    gpu_type = forms.ChoiceField(label="GPU type")
    source = forms.ChoiceField(required=False, label="From")
    goal = forms.ChoiceField(required=False, label="To")
    amount = forms.IntegerField(min_value=1, max_value=1_000_000, label="Cards")

    def __init__(self, *args: Any, types: Sequence[str], spots: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        places = [(FREE, "what is free of the quota"), *((spot, spot) for spot in spots)]
        for name, choices in (("gpu_type", [(slug, slug) for slug in types]), ("source", places), ("goal", places)):
            field = self.fields[name]
            assert isinstance(field, forms.ChoiceField)
            field.choices = choices


def _utc(value: datetime | None) -> datetime | None:
    return None if value is None else value.astimezone(UTC)
