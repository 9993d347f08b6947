"""Tenants, quotas and deployments as JSON. Cards are decimals in texts ("0.25"), never floats."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from infra.api.serializers import ConditionSerializer
from infra.models import Cluster
from portal.kernel.models import AuditEvent
from tenants.models import DeploymentEvent, Member, ModelDeployment, ModelReplica, Tenant, Zone
from tenants.services.allotments import CARD, cards

MOST = Decimal(10) ** 18


@extend_schema_field({"type": "string", "format": "decimal", "description": "cards, such as 8 or 0.25"})
class CardsField(serializers.Field[int, Any, str, int]):
    """Cards: millionths inside, a decimal with at most six places outside."""

    default_error_messages = {
        "invalid": 'Give a number of cards as a text, such as "8" or "0.25", with at most six decimals.'
    }

    def to_representation(self, value: int) -> str:
        """Millionths → text."""
        return cards(value)

    def to_internal_value(self, data: Any) -> int:
        """Text or whole number → millionths."""
        if isinstance(data, bool) or not isinstance(data, int | str):
            self.fail("invalid")
        try:
            exact = Decimal(data) * CARD
        except ArithmeticError:
            self.fail("invalid")
        # Beyond a million cards the services say so; a figure that nobody could even write down is none.
        if not exact.is_finite() or abs(exact) > MOST or exact != exact.to_integral_value():
            self.fail("invalid")
        return int(exact)


class ZoneSerializer(serializers.ModelSerializer[Zone]):
    """A trust zone."""

    class Meta:
        model = Zone
        fields = ["id", "slug", "name", "created_at"]


class NewZoneSerializer(serializers.Serializer[Any]):
    """A zone to make."""

    slug = serializers.CharField(max_length=40)
    name = serializers.CharField(max_length=120, required=False, allow_blank=True, default="")


class TenantSerializer(serializers.ModelSerializer[Tenant]):
    """A team that pays."""

    zone = serializers.SlugRelatedField[Zone](slug_field="slug", read_only=True)
    sites: Any = serializers.SlugRelatedField(slug_field="slug", read_only=True, many=True)

    class Meta:
        model = Tenant
        fields = [
            "id",
            "slug",
            "name",
            "zone",
            "sites",
            "state",
            "cost_code",
            "cost_code_required",
            "namespace",
            "created_at",
        ]
        read_only_fields = fields


class NewTenantSerializer(serializers.Serializer[Any]):
    """A tenant to make. Without a site it may use none."""

    slug = serializers.CharField(max_length=40)
    name = serializers.CharField(max_length=120, required=False, allow_blank=True, default="")
    zone = serializers.CharField(max_length=40)
    sites = serializers.ListField(child=serializers.CharField(max_length=40), required=False, default=list)
    cost_code = serializers.CharField(max_length=60, required=False, allow_blank=True, default="")
    cost_code_required = serializers.BooleanField(required=False, default=False)


class ChangedTenantSerializer(serializers.Serializer[Any]):
    """What can be changed of a tenant."""

    name = serializers.CharField(max_length=120, required=False)
    sites = serializers.ListField(child=serializers.CharField(max_length=40), required=False)
    cost_code = serializers.CharField(max_length=60, required=False, allow_blank=True)
    cost_code_required = serializers.BooleanField(required=False)


class TenantStateSerializer(serializers.Serializer[Any]):
    """The state to set."""

    state = serializers.ChoiceField(choices=Tenant.State.choices)


class TenantZoneSerializer(serializers.Serializer[Any]):
    """The zone to move to."""

    zone = serializers.CharField(max_length=40)


class MemberSerializer(serializers.ModelSerializer[Member]):
    """A user's role in a tenant."""

    username = serializers.CharField(source="user.username", read_only=True)

    class Meta:
        model = Member
        fields = ["username", "role", "source", "created_at"]


class RoleSerializer(serializers.Serializer[Any]):
    """The role to give."""

    role = serializers.ChoiceField(choices=Member.Role.choices)


class AllotmentSerializer(serializers.Serializer[Any]):
    """The part of a quota on one namespace of one cluster."""

    cluster = serializers.CharField(source="cluster.slug")
    namespace = serializers.CharField()
    amount = CardsField()
    target = CardsField()
    handed = CardsField(help_text="Of it, what was handed over: it counts as admitted, used or not.")
    leaving = CardsField(help_text="Of that, what is on its way to another part.")


class QuotaLineSerializer(serializers.Serializer[Any]):
    """A quota and what is taken of it."""

    gpu_type = serializers.CharField(source="quota.gpu_type.slug")
    guaranteed = CardsField(source="quota.guaranteed")
    limit = CardsField(source="quota.limit")
    admitted = CardsField()
    used = CardsField()
    borrowed = CardsField()
    left = CardsField()
    over_by = CardsField()
    allotments = AllotmentSerializer(many=True)


class NewQuotaSerializer(serializers.Serializer[Any]):
    """A quota to set."""

    limit = CardsField()
    guaranteed = CardsField(required=False, default=0)


class QuotaSetSerializer(serializers.Serializer[Any]):
    """A quota as set."""

    gpu_type = serializers.CharField(source="quota.gpu_type.slug")
    guaranteed = CardsField(source="quota.guaranteed")
    limit = CardsField(source="quota.limit")
    over_by = CardsField()
    sentence = serializers.CharField()


class ReplicaSerializer(serializers.ModelSerializer[ModelReplica]):
    """A replica and where it is."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="slug", read_only=True)
    conditions = ConditionSerializer(many=True, read_only=True)

    class Meta:
        model = ModelReplica
        fields = [
            "id",
            "index",
            "cluster",
            "phase",
            "message",
            "ready",
            "ready_at",
            "generation",
            "observed_generation",
            "conditions",
            "placement",
            "created_at",
            "deleting_at",
        ]


class DeploymentSummarySerializer(serializers.ModelSerializer[ModelDeployment]):
    """A deployment in a list."""

    class Meta:
        model = ModelDeployment
        fields = [
            "id",
            "name",
            "labels",
            "phase",
            "waiting",
            "replicas",
            "ready_replicas",
            "cost_code",
            "generation",
            "observed_generation",
            "created_by",
            "created_at",
            "updated_at",
            "deleting_at",
        ]


class DeploymentSerializer(DeploymentSummarySerializer):
    """A deployment with its wish and its state."""

    conditions = ConditionSerializer(many=True, read_only=True)
    replica_list = ReplicaSerializer(many=True, read_only=True, source="live_replicas")

    class Meta(DeploymentSummarySerializer.Meta):
        fields = [*DeploymentSummarySerializer.Meta.fields, "spec", "conditions", "explanation", "replica_list"]


class DeploymentListSerializer(serializers.Serializer[Any]):
    """A page of deployments; ``next_cursor`` is empty on the last one."""

    results = DeploymentSummarySerializer(many=True)
    next_cursor = serializers.CharField(allow_blank=True)


class DeploymentManifestSerializer(serializers.Serializer[Any]):
    """A manifest ``ModelDeployment`` of ``modelplane.ai/v1alpha1`` (also as ``application/yaml``)."""

    apiVersion = serializers.CharField()  # noqa: N815  # the manifest's names
    kind = serializers.CharField()
    metadata = serializers.DictField()
    spec = serializers.DictField()


class AppliedSerializer(serializers.Serializer[Any]):
    """What applying did."""

    outcome = serializers.ChoiceField(choices=["created", "configured", "unchanged"])
    message = serializers.CharField()
    deployment = DeploymentSummarySerializer()


class ScaleSerializer(serializers.Serializer[Any]):
    """The number of replicas to have."""

    replicas = serializers.IntegerField()


class ImageSerializer(serializers.Serializer[Any]):
    """The image to run; of one engine, or of all."""

    image = serializers.CharField(max_length=500)
    engine = serializers.CharField(max_length=63, required=False, allow_null=True, default=None)


class EventSerializer(serializers.ModelSerializer[DeploymentEvent]):
    """A step on a deployment's timeline."""

    class Meta:
        model = DeploymentEvent
        fields = ["id", "replica_index", "reason", "message", "generation", "first_at", "last_at", "count"]


class AuditSerializer(serializers.ModelSerializer[AuditEvent]):
    """Who did what."""

    class Meta:
        model = AuditEvent
        fields = [
            "id",
            "at",
            "actor_kind",
            "actor_label",
            "verb",
            "object_kind",
            "object_id",
            "object_name",
            "before",
            "after",
            "outcome",
            "reason",
            "request_id",
        ]
