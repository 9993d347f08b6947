"""Quotas' makings, requests, moves and the platform's view of them as JSON. Cards are decimals in texts."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from infra.models import GPUType
from tenants.api.serializers import CardsField
from tenants.models import AllotmentMove, QuotaComment, QuotaRequest, Tenant


class QuotaHeldSerializer(serializers.Serializer[Any]):
    """What a deployment holds in one namespace."""

    deployment = serializers.CharField()
    cluster = serializers.CharField()
    namespace = serializers.CharField()
    replicas = serializers.IntegerField()
    reserved = CardsField()
    used = CardsField()


class SeenPodSerializer(serializers.Serializer[Any]):
    """A GPU pod without a reservation; ``inside``: inside a part that was handed over."""

    name = serializers.CharField()
    cluster = serializers.CharField()
    namespace = serializers.CharField()
    share = CardsField()
    used = CardsField(help_text="The share, once a container of it has started.")
    inside = serializers.BooleanField()


class HandedSerializer(serializers.Serializer[Any]):
    """A part that was handed over to a namespace."""

    cluster = serializers.CharField(source="cluster.slug")
    namespace = serializers.CharField()
    handed = CardsField()
    leaving = CardsField()


class MakingsSerializer(serializers.Serializer[Any]):
    """admitted = reserved + handed_over + seen − inside."""

    gpu_type = serializers.CharField(source="gpu_type.slug")
    reserved = CardsField()
    handed_over = CardsField()
    seen = CardsField()
    inside = CardsField()
    deployments = QuotaHeldSerializer(many=True)
    pods = SeenPodSerializer(many=True)
    handed = HandedSerializer(many=True)


class QuotaRequestSerializer(serializers.ModelSerializer[QuotaRequest]):
    """A request, its figures in cards."""

    tenant = serializers.SlugRelatedField[Tenant](slug_field="slug", read_only=True)
    gpu_type = serializers.SlugRelatedField[GPUType](slug_field="slug", read_only=True)
    limit = CardsField(read_only=True)
    guaranteed = CardsField(read_only=True)
    former_limit = CardsField(read_only=True, allow_null=True)
    former_guaranteed = CardsField(read_only=True, allow_null=True)

    class Meta:
        model = QuotaRequest
        fields = [
            "id",
            "tenant",
            "gpu_type",
            "limit",
            "guaranteed",
            "starts_at",
            "until",
            "reason",
            "state",
            "created_by",
            "created_at",
            "submitted_at",
            "decided_by",
            "decided_at",
            "in_force_since",
            "former_limit",
            "former_guaranteed",
            "ended_at",
        ]
        read_only_fields = fields


class NewQuotaRequestSerializer(serializers.Serializer[Any]):
    """What to ask for. With ``submit`` it is handed in at once."""

    gpu_type = serializers.CharField(max_length=63)
    limit = CardsField()
    guaranteed = CardsField(required=False, default=0)
    starts_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    until = serializers.DateTimeField(required=False, allow_null=True, default=None)
    reason = serializers.CharField(max_length=4_000)
    submit = serializers.BooleanField(required=False, default=False)


class ChangedQuotaRequestSerializer(serializers.Serializer[Any]):
    """What to change of a draft."""

    limit = CardsField(required=False)
    guaranteed = CardsField(required=False)
    starts_at = serializers.DateTimeField(required=False, allow_null=True)
    until = serializers.DateTimeField(required=False, allow_null=True)
    reason = serializers.CharField(max_length=4_000, required=False)


class QuotaCommentSerializer(serializers.ModelSerializer[QuotaComment]):
    """What somebody wrote to a request."""

    class Meta:
        model = QuotaComment
        fields = ["id", "author", "text", "created_at"]
        read_only_fields = ["id", "author", "created_at"]


class QuotaDecisionSerializer(serializers.Serializer[Any]):
    """A word with the decision; a denial needs one."""

    comment = serializers.CharField(max_length=4_000, required=False, allow_blank=True, default="")


class SpotSerializer(serializers.Serializer[Any]):
    """A namespace of a cluster."""

    cluster = serializers.CharField(max_length=40)
    namespace = serializers.CharField(max_length=63)


class NewMoveSerializer(serializers.Serializer[Any]):
    """Cards to move. No source: from what is free of the quota; no goal: back to it."""

    gpu_type = serializers.CharField(max_length=63)
    source = SpotSerializer(required=False, allow_null=True, default=None)  # type: ignore[assignment]  # its name here
    goal = SpotSerializer(required=False, allow_null=True, default=None)
    amount = CardsField()


class EndSerializer(serializers.Serializer[Any]):
    """An end of a move."""

    cluster = serializers.CharField(source="cluster.slug")
    namespace = serializers.CharField()


class MoveSerializer(serializers.ModelSerializer[AllotmentMove]):
    """A move and how far it is."""

    gpu_type = serializers.CharField(source="quota.gpu_type.slug", read_only=True)
    source = EndSerializer(read_only=True, allow_null=True)  # type: ignore[assignment]  # its name here
    goal = EndSerializer(read_only=True, allow_null=True)
    amount = CardsField(read_only=True)

    class Meta:
        model = AllotmentMove
        fields = [
            "id",
            "gpu_type",
            "source",
            "goal",
            "amount",
            "state",
            "message",
            "asked_by",
            "created_at",
            "ended_at",
        ]
        read_only_fields = fields


class TenantShareSerializer(serializers.Serializer[Any]):
    """One tenant's quota on a type."""

    tenant = serializers.CharField(source="tenant.slug")
    guaranteed = CardsField()
    limit = CardsField()
    admitted = CardsField()
    borrowed = CardsField()


class CapacitySerializer(serializers.Serializer[Any]):
    """A GPU type: cards in service beside what was promised; ``promised_too_much``: guarantees beyond the cards."""

    gpu_type = serializers.CharField(source="gpu_type.slug")
    in_service = CardsField()
    unavailable = serializers.IntegerField()
    guaranteed = CardsField()
    limit = CardsField()
    admitted = CardsField()
    borrowed = CardsField()
    promised_too_much = CardsField()
    tenants = TenantShareSerializer(many=True)
