"""Namespaces with what they hold and cost, and the rules that give them to tenants, over REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.serializers import Exact
from billing.selectors.adoption import adoption_of, namespace_rows, with_gpus
from billing.selectors.rule_changes import changes_of
from infra.api.serializers import ClaimSerializer
from infra.models import ClaimRule, Cluster, NamespaceClaim, Site
from infra.selectors.clusters import cluster_by_slug, cluster_list, site_by_slug
from infra.selectors.writes import write_proof
from infra.services.claim_rules import claim_rule_create, claim_rule_end, claim_rule_move, claim_rule_preview
from infra.services.claims import Space, namespace_claims_set
from portal.kernel.api import PlatformView
from portal.kernel.problems import Invalid, NotFound
from portal.kernel.scoping import system_scope
from tenants.models import Tenant

REASON = "REST: adoption"


class PricedSerializer(serializers.Serializer[Any]):
    """An amount. ``amount`` null: nothing of it has a rate; ``unpriced``: some of it has none."""

    amount = Exact(allow_null=True)
    currency = serializers.CharField()
    unpriced = serializers.BooleanField()


class HeldSerializer(serializers.Serializer[Any]):
    """Card-hours of this month by bucket, as far as is known, and what the charged part costs."""

    tenants = Exact()
    starting = Exact()
    overhead = Exact()
    unattributed = Exact()
    cost = PricedSerializer(allow_null=True)


class NamespaceSerializer(serializers.Serializer[Any]):
    """A namespace with GPU pods. ``cards``: millionths of a card that are held now; ``would_cost``: of one that is
    nobody's, at the default issuer's rates."""

    cluster = serializers.CharField(source="cluster.slug")
    namespace = serializers.CharField()
    standing = serializers.ChoiceField(choices=["tenant", "unmapped", "system"])
    tenant = serializers.CharField(source="tenant.slug", default=None, allow_null=True)
    claim = ClaimSerializer(allow_null=True)
    labels = serializers.DictField(source="sight.labels", default=dict)
    pods = serializers.IntegerField()
    cards = serializers.IntegerField()
    unmetered = serializers.IntegerField()
    held = HeldSerializer()
    would_cost = PricedSerializer(allow_null=True)
    known_until = serializers.DateTimeField(allow_null=True)
    first_seen_at = serializers.DateTimeField(allow_null=True)
    gone_at = serializers.DateTimeField(source="sight.gone_at", default=None, allow_null=True)


class TenantOnClusterSerializer(serializers.Serializer[Any]):
    """What a tenant has on a cluster."""

    tenant = serializers.CharField(source="tenant.slug")
    namespaces = serializers.IntegerField()
    pods = serializers.IntegerField()
    cards = serializers.IntegerField()
    hours = Exact()
    cost = PricedSerializer(allow_null=True)


class AdoptionSerializer(serializers.Serializer[Any]):
    """A cluster as it is found. ``writes`` null: not counted, as it was managed at some time."""

    cluster = serializers.CharField(source="one.cluster.slug")
    since = serializers.DateTimeField(source="one.window.start")
    known_until = serializers.DateTimeField(source="one.known_until", allow_null=True)
    pods = serializers.IntegerField(source="one.pods")
    tenants = TenantOnClusterSerializer(source="one.tenants", many=True)
    unmapped = NamespaceSerializer(source="one.unmapped", many=True)
    system = NamespaceSerializer(source="one.system", many=True)
    unattributed = Exact(source="one.unattributed")
    unmetered = serializers.IntegerField(source="one.unmetered")
    would_cost = PricedSerializer(source="one.would_cost", allow_null=True)
    writes = serializers.IntegerField(source="proof.writes", allow_null=True)


class SpaceSerializer(serializers.Serializer[Any]):
    """A namespace of a cluster."""

    cluster = serializers.CharField(max_length=40)
    namespace = serializers.CharField(max_length=63)


class NewClaimsSerializer(serializers.Serializer[Any]):
    """Several namespaces for one tenant: all, or none."""

    namespaces = SpaceSerializer(many=True)
    tenant = serializers.CharField(max_length=40, help_text="Its short name.")
    valid_from = serializers.DateTimeField()
    cost_code = serializers.CharField(max_length=60, required=False, allow_blank=True)


class RuleSerializer(serializers.ModelSerializer[ClaimRule]):
    """A rule; the lower ``position`` is asked first."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="slug", read_only=True)
    site = serializers.SlugRelatedField[Site](slug_field="slug", read_only=True)

    class Meta:
        model = ClaimRule
        fields = [
            "id", "position", "kind", "label_key", "label_value", "by_slug", "pattern", "cluster", "site", "tenant_id",
            "cost_code", "cost_code_label", "valid_from", "created_by", "created_at",
        ]  # fmt: skip


class NewRuleSerializer(serializers.Serializer[Any]):
    """A rule to make: by ``label`` (``label_key`` and ``label_value`` or ``by_slug``) or by ``name`` (``pattern``)."""

    kind = serializers.ChoiceField(choices=ClaimRule.Kind.choices)
    label_key = serializers.CharField(max_length=317, required=False)
    label_value = serializers.CharField(max_length=63, required=False)
    by_slug = serializers.BooleanField(required=False)
    pattern = serializers.CharField(max_length=120, required=False)
    cluster = serializers.CharField(max_length=40, required=False)
    site = serializers.CharField(max_length=40, required=False)
    tenant = serializers.CharField(max_length=40, required=False, help_text="Its short name.")
    cost_code = serializers.CharField(max_length=60, required=False, allow_blank=True)
    cost_code_label = serializers.CharField(max_length=317, required=False, allow_blank=True)
    valid_from = serializers.DateTimeField()
    position = serializers.IntegerField(min_value=1, required=False)


class RuleMoveSerializer(serializers.Serializer[Any]):
    """The place in the order, from 1."""

    position = serializers.IntegerField(min_value=1)


class RuleChangeSerializer(serializers.Serializer[Any]):
    """What a rule would change: who gets, or who loses a namespace from when on, and the card-hours until now."""

    cluster = serializers.CharField(source="effect.cluster")
    namespace = serializers.CharField(source="effect.namespace")
    tenant = serializers.CharField()
    gains = serializers.BooleanField()
    start = serializers.DateTimeField(source="effect.start")
    end = serializers.DateTimeField(source="effect.end", allow_null=True)
    card_hours = Exact(source="hours")


class NamespacesView(PlatformView):
    """Namespaces with GPU pods."""

    pagination_class = None

    @extend_schema(
        operation_id="namespace_list",
        parameters=[OpenApiParameter("cluster", str), OpenApiParameter("standing", str)],
        responses=NamespaceSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """All of them, nobody's first, the dearest first; of one cluster or standing if asked."""
        slug, standing = request.query_params.get("cluster"), request.query_params.get("standing")
        with system_scope(REASON):
            clusters = [row for row in cluster_list() if not slug or row.slug == slug]
            rows = [row for row in with_gpus(namespace_rows(clusters)) if not standing or row.standing == standing]
            return Response(NamespaceSerializer(rows, many=True).data)


class AdoptionView(PlatformView):
    """A cluster as it is found."""

    @extend_schema(operation_id="cluster_adoption", responses=AdoptionSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Its tenants, what is nobody's, the system's, and whether anything was written."""
        cluster = cluster_by_slug(slug)
        with system_scope(REASON):
            answer = {"one": adoption_of(cluster), "proof": write_proof(cluster)}
            return Response(AdoptionSerializer(answer).data)


class ClaimsManyView(PlatformView):
    """Several claims at once."""

    pagination_class = None

    @extend_schema(
        operation_id="namespace_claims_set",
        request=NewClaimsSerializer,
        responses={201: ClaimSerializer(many=True)},
    )
    def post(self, request: Request) -> Response:
        """Give several namespaces to one tenant: all of them, or none."""
        body = self.read(NewClaimsSerializer)
        tenant = _tenant(body["tenant"])
        spaces = [
            Space(_named(cluster_by_slug, each["cluster"], f"/namespaces/{number}/cluster"), each["namespace"])
            for number, each in enumerate(body["namespaces"])
        ]
        made: list[NamespaceClaim] = namespace_claims_set(
            spaces=spaces, tenant_id=tenant.pk, valid_from=body["valid_from"],
            cost_code=body.get("cost_code") or tenant.cost_code, actor=self.actor,
        )  # fmt: skip
        return Response(ClaimSerializer(made, many=True).data, status=201)


class RulesView(PlatformView):
    """Rules that give namespaces to tenants."""

    pagination_class = None

    @extend_schema(operation_id="claim_rule_list", responses=RuleSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Those in force, in their order."""
        rows = ClaimRule.objects.filter(ended_at__isnull=True).select_related("cluster", "site")
        return Response(RuleSerializer(rows, many=True).data)

    @extend_schema(operation_id="claim_rule_create", request=NewRuleSerializer, responses={201: RuleSerializer})
    def post(self, request: Request) -> Response:
        """Make a rule; its claims appear as soon as the work queue has looked at its clusters."""
        rule = claim_rule_create(**_rule_values(self.read(NewRuleSerializer)), actor=self.actor)
        return Response(RuleSerializer(rule).data, status=201)


class RulePreviewView(PlatformView):
    """A look at what a rule would do."""

    pagination_class = None

    @extend_schema(
        operation_id="claim_rule_preview", request=NewRuleSerializer, responses=RuleChangeSerializer(many=True)
    )
    def post(self, request: Request) -> Response:
        """What the rule would change; nothing is stored."""
        values = _rule_values(self.read(NewRuleSerializer))
        effects = claim_rule_preview(lambda: claim_rule_create(**values, actor=self.actor))
        with system_scope(REASON):
            return Response(RuleChangeSerializer(changes_of(effects), many=True).data)


class RuleEndView(PlatformView):
    """The end of a rule."""

    @extend_schema(operation_id="claim_rule_end", request=None, responses=RuleSerializer)
    def post(self, request: Request, rule_id: UUID) -> Response:
        """It gives nothing from now on; what it gave stays given."""
        return Response(RuleSerializer(claim_rule_end(rule=_rule(rule_id), actor=self.actor)).data)


class RuleMoveView(PlatformView):
    """A rule's place in the order."""

    @extend_schema(operation_id="claim_rule_move", request=RuleMoveSerializer, responses=RuleSerializer)
    def post(self, request: Request, rule_id: UUID) -> Response:
        """Move it; what it takes over by that, it has from now on."""
        body = self.read(RuleMoveSerializer)
        return Response(RuleSerializer(claim_rule_move(rule=_rule(rule_id), **body, actor=self.actor)).data)


def _rule(rule_id: UUID) -> ClaimRule:
    rule = ClaimRule.objects.select_related("cluster", "site").filter(pk=rule_id).first()
    if rule is None:
        raise NotFound("There is no such rule.")
    return rule


def _rule_values(body: dict[str, Any]) -> dict[str, Any]:
    found = dict(body)
    if "tenant" in found:
        found["tenant_id"] = _tenant(found.pop("tenant")).pk
    if "cluster" in found:
        found["cluster"] = _named(cluster_by_slug, found["cluster"], "/cluster")
    if "site" in found:
        found["site"] = _named(site_by_slug, found["site"], "/site")
    return found


def _named(find: Callable[[str], Any], slug: str, pointer: str) -> Any:
    """Something named in a body: unknown is a wrong value (422), not a missing page."""
    try:
        return find(slug)
    except NotFound as error:
        raise Invalid.field(pointer, error.detail) from error


def _tenant(slug: str) -> Tenant:
    row = Tenant.objects.filter(slug=slug).first()
    if row is None:
        raise Invalid.field("/tenant", f"There is no tenant {slug}.")
    return row
