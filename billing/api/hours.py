"""Where the hours go over REST, for platform roles: parts, reasons of idle time, prices."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.capacity import CardHours
from billing.api.serializers import Exact
from billing.api.team import window_of
from billing.models import IdleHour
from billing.selectors.conservation import days_back, latest_hour
from billing.selectors.hardly_used import BELOW, held_idle
from billing.selectors.hours import DIMENSIONS, PARTS, REASONS, HoursRow, Only, hours_table, narrowed
from infra.models import Cluster, GPUType, NodePool, Site
from portal.kernel.api import PlatformView
from portal.kernel.clock import Interval, utcnow
from portal.kernel.problems import BadRequest
from portal.kernel.scoping import system_scope
from tenants.models import Tenant

REASON = "platform API: where the hours go"
LONGEST_DAYS = 92
DAYS = 7

_WINDOW = [
    OpenApiParameter("start", OpenApiTypes.DATETIME, description="RFC 3339; default: a week of days until now"),
    OpenApiParameter("end", OpenApiTypes.DATETIME, description="RFC 3339, not included"),
]
_NARROW = [
    OpenApiParameter("site", OpenApiTypes.STR, description="slug"),
    OpenApiParameter("cluster", OpenApiTypes.STR, description="slug"),
    OpenApiParameter("pool", OpenApiTypes.STR, description="name; needs a cluster"),
    OpenApiParameter("gpu_type", OpenApiTypes.STR, description="slug"),
    OpenApiParameter("tenant", OpenApiTypes.STR, description="slug: only what this team held"),
]


class HoursKeySerializer(serializers.Serializer[Any]):
    """What a row is about. What it is not apart in is empty; a row without a team holds what is no team's."""

    day = serializers.DateField(allow_null=True)
    site = serializers.CharField()
    cluster = serializers.CharField()
    pool = serializers.CharField()
    gpu_type = serializers.CharField()
    tenant = serializers.CharField()
    model = serializers.CharField(help_text="Name of the deployment, or the namespace.")
    deployment = serializers.CharField(help_text="Id of the deployment; empty for pods of none.")


class PartsSerializer(serializers.Serializer[Any]):
    """Where the time went, in card-hours: the buckets, with idle time by reason. Together: in service."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """One for each part."""
        return {name: CardHours() for name in PARTS}


class ReasonCostsSerializer(serializers.Serializer[Any]):
    """Idle time by reason at list prices; null where there is no price."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """One for each reason."""
        return {name: Exact(allow_null=True) for name in REASONS}


class HoursRowSerializer(serializers.Serializer[Any]):
    """Card-hours of one key, in final hours."""

    key = HoursKeySerializer()
    in_service = CardHours()
    parts = PartsSerializer()
    idle = CardHours()
    mig_geometry = CardHours(source="geometry", help_text="Of overhead: what the MIG geometry strands.")
    one_dimension_free = CardHours(source="lopsided", help_text="Of shared cards: free in one dimension only.")
    allocated_percent = Exact(allow_null=True, help_text="Held by pods, of in service.")
    busy_percent = serializers.SerializerMethodField(help_text="Of the observed time; null: not known.")
    stranded_percent = Exact(allow_null=True)
    idle_cost = Exact(allow_null=True, help_text="At list prices of the default issuer; null: not known.")
    idle_costs = serializers.SerializerMethodField()
    some_unpriced = serializers.BooleanField(source="unpriced", help_text="Some idle time is in no cost.")

    def get_busy_percent(self, row: HoursRow) -> Decimal | None:
        """To a tenth."""
        return row.busy.percent if row.busy else None

    @extend_schema(responses=ReasonCostsSerializer)
    def get_idle_costs(self, row: HoursRow) -> dict[str, str | None]:
        """By reason."""
        found: dict[str, str | None] = {}
        for name in REASONS:
            cost = row.cost_of(name)
            found[name] = None if cost is None else Exact().to_representation(cost)
        return found


class BlockedSerializer(serializers.Serializer[Any]):
    """Idle time that a quota kept from a team, and whose guarantee was not used (empty: nobody's)."""

    tenant = serializers.CharField()
    owner = serializers.CharField()
    cluster = serializers.CharField()
    gpu_type = serializers.CharField()
    card_hours = CardHours(source="units")
    cost = Exact(allow_null=True)


class HoursSerializer(serializers.Serializer[Any]):
    """Where the hours of a window went. ``difference``: in service less the rows; 0, or an error."""

    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    days = Exact()
    currency = serializers.CharField()
    total = HoursRowSerializer()
    difference = CardHours(source="balance")
    rows = HoursRowSerializer(many=True)
    blocked = BlockedSerializer(many=True)


class IdleHourSerializer(serializers.ModelSerializer[IdleHour]):
    """One node's idle time in one hour, in card-hours. The reasons are ``idle``, exactly."""

    cluster = serializers.CharField(source="cluster.slug")
    node = serializers.CharField(source="node.name")
    gpu_type = serializers.CharField(source="gpu_type.slug", default=None, allow_null=True)
    idle = CardHours()
    no_demand = CardHours()
    quota = CardHours()
    fragmented = CardHours()
    stranded = CardHours()
    reserved = CardHours()
    pending = CardHours()
    zone = CardHours()
    geometry = CardHours()
    lopsided = CardHours()

    class Meta:
        model = IdleHour
        fields = ["hour", "cluster", "node", "gpu_type", "sharing", "idle", *REASONS, "geometry", "lopsided"]


class HeldIdleSerializer(serializers.Serializer[Any]):
    """Cards that were held and hardly used."""

    tenant = serializers.CharField()
    cluster = serializers.CharField()
    namespace = serializers.CharField()
    deployment = serializers.CharField()
    gpu_type = serializers.CharField()
    sharing = serializers.CharField()
    pods = serializers.IntegerField()
    busy_percent = Exact(source="busy.percent")
    observed_ms = serializers.IntegerField(source="busy.observed_ms")
    card_hours = CardHours(source="charged")
    cost_per_day = Exact(source="per_day", allow_null=True)
    unused_cost_per_day = Exact(source="unused_per_day", allow_null=True)


class _Hours(PlatformView):
    """What the views share: the window, and what narrows it."""

    writers = ()

    def window(self, request: Request) -> Interval:
        """The asked window; a week of days by default."""
        return window_of(request.query_params, days_back(latest_hour() or utcnow(), DAYS), LONGEST_DAYS)

    def only(self, request: Request) -> Only:
        """The rows that are named. Raises BadRequest for a name that there is none of."""
        query = request.query_params
        found: dict[str, Any] = {}
        models: tuple[tuple[str, Any], ...] = (
            ("site", Site), ("cluster", Cluster), ("gpu_type", GPUType), ("tenant", Tenant),
        )  # fmt: skip
        for name, model in models:
            if slug := query.get(name):
                found[f"{name}_id"] = self._named(name, slug, model.objects.filter(slug=slug))
        if pool := query.get("pool"):
            if "cluster_id" not in found:
                raise BadRequest("pool needs a cluster: names of pools are a cluster's own.")
            rows = NodePool.objects.filter(cluster_id=found["cluster_id"], name=pool)
            found["pool_id"] = self._named("pool", pool, rows)
        return Only(**found)

    def _named(self, name: str, text: str, rows: Any) -> Any:
        row = rows.first()
        if row is None:
            raise BadRequest(f"{name}={text[:60]}: there is none of that name.")
        return row.pk


class HoursView(_Hours):
    """Where the hours go."""

    pagination_class = None

    @extend_schema(
        operation_id="hours_list",
        parameters=[
            *_WINDOW,
            *_NARROW,
            OpenApiParameter(
                "by", OpenApiTypes.STR, description=f"comma-separated, of {', '.join(DIMENSIONS)}; default: pool"
            ),
        ],
        responses=HoursSerializer,
    )
    def get(self, request: Request) -> Response:
        """Card-hours by what ``by`` names, idle time by reason and price, and who was blocked by a quota."""
        by = [name for name in request.query_params.get("by", "pool").split(",") if name]
        wrong = [name for name in by if name not in DIMENSIONS]
        if wrong:
            raise BadRequest(f"by={wrong[0][:40]}: rows can be apart in {', '.join(DIMENSIONS)}.")
        with system_scope(REASON):
            window = self.window(request)
            table = hours_table(window, by=by, only=self.only(request))
            body = {
                "start": window.start, "end": window.end, "days": table.days, "currency": table.currency,
                "total": table.total, "balance": table.balance, "rows": table.rows, "blocked": table.blocked,
            }  # fmt: skip
            return Response(HoursSerializer(body).data)


class IdleHoursView(_Hours):
    """What idle time is made of."""

    @extend_schema(
        operation_id="idle_hours_list",
        parameters=[*_WINDOW, *_NARROW[:4], OpenApiParameter("reason", OpenApiTypes.STR, description="only with it")],
        responses=IdleHourSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """By node and hour, the latest first."""
        reason = request.query_params.get("reason", "")
        if reason and reason not in REASONS:
            raise BadRequest(f"reason={reason[:40]}: reasons are {', '.join(REASONS)}.")
        with system_scope(REASON):
            rows = IdleHour.objects.select_related("cluster", "node", "gpu_type")
            rows = narrowed(rows, self.window(request), self.only(request))
            if reason:
                rows = rows.filter(**{f"{reason}__gt": 0})
            return self.page(rows, IdleHourSerializer, ("-hour", "id"))


class HeldIdleView(_Hours):
    """Held and hardly used."""

    pagination_class = None

    @extend_schema(
        operation_id="held_idle_list",
        parameters=[
            *_WINDOW,
            OpenApiParameter("below", OpenApiTypes.INT, description=f"percent busy; default: {BELOW}"),
        ],
        responses=HeldIdleSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """By team and deployment, the most expensive first."""
        text = request.query_params.get("below", str(BELOW))
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= 100):
            raise BadRequest(f"below={text[:20]}: give percent, 1 to 100.")
        with system_scope(REASON):
            rows = held_idle(self.window(request), below=int(text))
            return Response(HeldIdleSerializer(rows, many=True).data)
