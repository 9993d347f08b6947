"""What keeps tenants apart on a cluster, over REST, for platform roles."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from infra.isolation import Piece
from infra.models import Cluster
from infra.selectors.clusters import cluster_by_slug
from infra.selectors.isolation import isolation_pieces
from infra.services.isolation import isolation_check, isolation_say, isolation_set_wanted
from portal.kernel.api import PlatformView


class SaidSerializer(serializers.Serializer[Any]):
    """What a platform-admin typed."""

    text = serializers.CharField()
    by = serializers.CharField()
    at = serializers.DateTimeField()


class PieceSerializer(serializers.Serializer[Any]):
    """One piece. ``holds``: tenants may come as far as this piece goes (it is there, or its lack is accepted)."""

    piece = serializers.ChoiceField(choices=[piece.value for piece in Piece])
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=["yes", "no", "unknown"])
    sentence = serializers.CharField()
    remedy = serializers.CharField(allow_blank=True)
    holds = serializers.BooleanField()
    declared = SaidSerializer(allow_null=True)
    accepted = SaidSerializer(allow_null=True)


class IsolationSerializer(serializers.Serializer[Any]):
    """The pieces of a cluster. ``isolated``: it takes tenants' pods; ``wanted``: our policies are to be there."""

    isolated = serializers.BooleanField()
    wanted = serializers.BooleanField()
    checked_at = serializers.DateTimeField(allow_null=True)
    pieces = PieceSerializer(many=True)


class SaySerializer(serializers.Serializer[Any]):
    """What is said of a piece; an empty text takes it back."""

    how = serializers.ChoiceField(choices=["declared", "accepted"])
    text = serializers.CharField(max_length=1000, allow_blank=True)


class WantedSerializer(serializers.Serializer[Any]):
    """Whether our policies are to be on the cluster."""

    wanted = serializers.BooleanField()


class IsolationView(PlatformView):
    """What keeps tenants apart on a cluster."""

    @extend_schema(operation_id="cluster_isolation", responses=IsolationSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Piece by piece, as last found."""
        return Response(_dumped(cluster_by_slug(slug)))

    @extend_schema(operation_id="cluster_isolation_check", request=None, responses={202: IsolationSerializer})
    def post(self, request: Request, slug: str) -> Response:
        """Have the cluster asked again; the condition ``Isolated`` tells the outcome."""
        return Response(_dumped(isolation_check(cluster=cluster_by_slug(slug), actor=self.actor)), status=202)


class IsolationPieceView(PlatformView):
    """What is said of one piece."""

    @extend_schema(operation_id="cluster_isolation_say", request=SaySerializer, responses=IsolationSerializer)
    def put(self, request: Request, slug: str, piece: str) -> Response:
        """Declare that it is there (network policies only), or accept that it is not; with a reason."""
        body = self.read(SaySerializer)
        cluster = isolation_say(cluster=cluster_by_slug(slug), piece=piece, **body, actor=self.actor)
        return Response(_dumped(cluster))


class IsolationWantedView(PlatformView):
    """Our policies on a cluster."""

    @extend_schema(operation_id="cluster_isolation_set_wanted", request=WantedSerializer, responses=IsolationSerializer)
    def post(self, request: Request, slug: str) -> Response:
        """Take them down (before the cluster is only observed), or put them up again."""
        body = self.read(WantedSerializer)
        return Response(_dumped(isolation_set_wanted(cluster=cluster_by_slug(slug), **body, actor=self.actor)))


def _dumped(cluster: Cluster) -> dict[str, Any]:
    pieces = isolation_pieces(cluster)
    return dict(
        IsolationSerializer(
            {
                "isolated": cluster.isolation_wanted and all(piece.holds for piece in pieces),
                "wanted": cluster.isolation_wanted,
                "checked_at": cluster.isolation.get("checked_at"),
                "pieces": pieces,
            }
        ).data
    )
