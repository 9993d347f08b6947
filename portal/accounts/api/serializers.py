"""Shapes of the API of people and tokens."""

from rest_framework import serializers

from portal.accounts import tokens
from portal.accounts.models import ApiToken, User


class MeSerializer(serializers.ModelSerializer[User]):
    """The one who asks."""

    class Meta:
        model = User
        fields = ["id", "username", "display_name", "email", "platform_role"]
        read_only_fields = fields


class TokenSerializer(serializers.ModelSerializer[ApiToken]):
    """A token without its secret."""

    scopes = serializers.ListField(child=serializers.ChoiceField(choices=sorted(tokens.SCOPES)), read_only=True)

    class Meta:
        model = ApiToken
        fields = [
            "id", "name", "public_id", "last4", "tenant_id", "scopes", "created_at", "expires_at", "last_used_at",
            "revoked_at",
        ]  # fmt: skip
        read_only_fields = fields


class NewTokenSerializer(serializers.Serializer[ApiToken]):
    """What is asked for."""

    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=sorted(tokens.SCOPES)), min_length=1, max_length=len(tokens.SCOPES)
    )
    expires_at = serializers.DateTimeField()
    tenant_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class CreatedTokenSerializer(TokenSerializer):
    """A new token with its text, this once."""

    token = serializers.CharField(read_only=True, help_text="Shown once. It can't be had again.")

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "token"]
        read_only_fields = fields
