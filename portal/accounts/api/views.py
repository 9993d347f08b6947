"""Who am I, and my tokens."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.accounts import services
from portal.accounts.api.serializers import (
    CreatedTokenSerializer,
    MeSerializer,
    NewTokenSerializer,
    TokenSerializer,
)
from portal.accounts.authentication import request_actor
from portal.accounts.models import ApiToken, User
from portal.kernel.idempotency import Idempotent


class MeView(APIView):
    """The signed-in person."""

    @extend_schema(operation_id="me", responses=MeSerializer)
    def get(self, request: Request) -> Response:
        """Who the token or session belongs to."""
        assert isinstance(request.user, User)  # the view requires authentication
        return Response(MeSerializer(request.user).data)


class TokenListView(Idempotent, ListAPIView[ApiToken]):
    """One's own tokens."""

    serializer_class = TokenSerializer
    filter_backends = ()

    def get_queryset(self) -> QuerySet[ApiToken]:
        """Revoked ones too: they show when they ended. A token of one tenant sees those of that tenant."""
        if getattr(self, "swagger_fake_view", False):
            return ApiToken.objects.none()
        user = self.request.user
        assert isinstance(user, User)  # the view requires authentication
        mine = ApiToken.objects.filter(user=user)
        bound_to = request_actor(self.request).tenant_id
        return mine if bound_to is None else mine.filter(tenant_id=bound_to)

    @extend_schema(operation_id="token_create", request=NewTokenSerializer, responses={201: CreatedTokenSerializer})
    def post(self, request: Request) -> Response:
        """Make a token. Its text is in this answer only."""
        asked = NewTokenSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        actor = request_actor(request)
        assert actor.user_id is not None
        token, text = services.token_create(user_id=actor.user_id, actor=actor, **asked.validated_data)
        body = TokenSerializer(token).data | {"token": text}
        return Response(body, status=201, headers={"Location": f"{request.path}/{token.id}"})


class TokenView(APIView):
    """One token of one's own."""

    @extend_schema(operation_id="token_revoke", responses={204: None})
    def delete(self, request: Request, token_id: UUID) -> Response:
        """End it now. It stays in the list."""
        services.token_revoke(token_id=token_id, actor=request_actor(request))
        return Response(status=204)
