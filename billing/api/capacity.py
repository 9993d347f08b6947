"""Where the cards' hours went as JSON: card-hours are decimals as text."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.api.serializers import Exact
from billing.models import CapacityHour
from billing.selectors.conservation import BUCKETS, CARD_HOUR
from portal.kernel.money import decimal_from


@extend_schema_field({"type": "string", "format": "decimal"})
class CardHours(serializers.Field[int, Any, str, Any]):
    """Millionths·milliseconds of cards as card-hours, a decimal as text."""

    def to_representation(self, value: int) -> str:
        """To twelve decimals."""
        return Exact().to_representation(decimal_from(Fraction(value, CARD_HOUR), 12))


class TypeCapacitySerializer(serializers.Serializer[Any]):
    """Cards of one cluster, type and mode on one UTC day, in card-hours. ``difference`` must be 0."""

    day = serializers.DateField()
    cluster = serializers.CharField()
    gpu_type = serializers.CharField()
    sharing = serializers.CharField()
    tenants = CardHours(source="buckets.tenants")
    idle = CardHours(source="buckets.idle")
    starting = CardHours(source="buckets.starting")
    overhead = CardHours(source="buckets.overhead")
    unavailable = CardHours(source="buckets.unavailable")
    unattributed = CardHours(source="buckets.unattributed")
    in_service = CardHours()
    difference = CardHours(source="balance")
    overbooked = CardHours()
    outside = CardHours()
    idle_billed = CardHours(help_text="Idle time that a tenant pays for.")
    retroactive = CardHours(source="past", help_text="In service in hours of which some was rebuilt from history.")
    idle_cost = Exact(allow_null=True, help_text="At list prices of the default issuer; null: not known.")


class CapacityHourSerializer(serializers.ModelSerializer[CapacityHour]):
    """One node's cards of a type and mode in one hour, in card-hours. ``difference`` must be 0."""

    cluster = serializers.CharField(source="cluster.slug")
    node = serializers.CharField(source="node.name")
    gpu_type = serializers.CharField(source="gpu_type.slug", default=None, allow_null=True)
    tenants = CardHours()
    idle = CardHours()
    starting = CardHours()
    overhead = CardHours()
    unavailable = CardHours()
    unattributed = CardHours()
    in_service = CardHours()
    difference = CardHours()
    overbooked = CardHours()
    outside = CardHours()

    class Meta:
        model = CapacityHour
        fields = [
            "hour", "cluster", "node", "gpu_type", "sharing", *BUCKETS, "in_service", "difference", "overbooked",
            "outside", "per_card", "source", "revision",
        ]  # fmt: skip


class UnattributedSerializer(serializers.Serializer[Any]):
    """A namespace without a tenant, and what was held in it."""

    cluster = serializers.CharField()
    namespace = serializers.CharField()
    card_hours = CardHours(source="charged")
    first = serializers.DateTimeField()
    last = serializers.DateTimeField()
