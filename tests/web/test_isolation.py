"""A member of another team gets the answer of an address that does not exist: on every URL, generated from the map.

Each address below a tenant or the platform is asked with every method, by an owner of another team, with that team's
real names and ids in it. The answer must be 404, or 405 where the address has no such method, the same as for a tenant
that does not exist, and nothing may change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from billing.models import Bill, BillingPeriod, CreditNote, DeviceAllocation, FaultCredit, Rate
from infra.models import ClaimRule, HealthEvent, NamespaceClaim, Node, Rebuild
from portal.accounts.models import User
from portal.kernel.clock import utcnow
from portal.kernel.models import AuditEvent, WorkItem
from portal.kernel.scoping import system_scope, tenant_scope
from tenants.models import GroupMapping, Member, ModelDeployment, QuotaRequest, Robot, Tenant, TenantCluster
from tenants.services.deployments import deployment_apply
from tests.billing.estate import at, make_estate
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import TESTER, give_quota, make_tenant
from tests.unit.tenants.manifests import manifest_data

pytestmark = pytest.mark.django_db

METHODS = ("get", "post", "put", "patch", "delete")
NOWHERE = {name: str(uuid4()) for name in ("bill_id", "line_id", "request_id")} | {"name": "no-such-thing"}
OPEN_MONTH = {name: {"period": "2026-12"} for name in ("billing:running", "billing:running-csv")}
# Addresses that are everybody's: they show only what is one's own, or nothing of anybody.
OPEN = {
    "healthz",
    "readyz",
    "metrics",  # whoever has its token: tests/web/platform/test_operations.py
    "api-share-profiles",
    "api-schema",
    "home:api-docs",
    "api-me",
    "api-tokens",
    "api-token",
    "api-tenants",
    "accounts:roles",
    "accounts:tokens",
    "accounts:token-revoke",
    "auth:login",
    "auth:logout",
    "auth:oidc-backchannel-logout",
    "auth:oidc-callback",
    "auth:oidc-login",
    "auth:resend",
    "auth:signed-in",
    "auth:signed-out",
    "home:index",
}


def patterns(resolver: URLResolver, prefix: str = "", space: str = "") -> Iterator[tuple[str, str, URLPattern]]:
    """(name with namespace, route, pattern) of every address."""
    for each in resolver.url_patterns:
        route = prefix + str(each.pattern).removeprefix("^").removesuffix("$")
        if isinstance(each, URLResolver):
            yield from patterns(each, route, f"{each.namespace}:" if each.namespace else space)
        else:
            yield f"{space}{each.name}", route, each


ADDRESSES = [(name, route) for name, route, _ in patterns(get_resolver())]
CLOSED = [(name, route) for name, route in ADDRESSES if name not in OPEN]


def test_the_open_addresses_are_all_there():
    assert {name for name, _ in ADDRESSES} >= OPEN


@pytest.fixture
def world() -> dict[str, Any]:
    """A team with a deployment, quota, claim, member, a closed bill and a running month; a stranger owns another."""
    estate = make_estate()
    tenant, bill = estate.tenant, estate.bill()
    gpu_type = make_type()
    cluster = make_cluster("alpha")
    make_node(make_pool(cluster=cluster), cards=2, name="alpha-0")
    give_quota(tenant, gpu_type, 4)
    deployment = deployment_apply(tenant=tenant, manifest=manifest_data(tenant=tenant.slug), actor=TESTER).deployment
    member = User.objects.create_user("member")
    Member.objects.create(tenant=tenant, user=member, role="owner")
    claim = NamespaceClaim.objects.create(
        cluster=cluster, namespace="theirs", tenant_id=tenant.pk, valid_from=utcnow(), created_by="test"
    )
    mapping = GroupMapping.objects.create(
        claim="groups", value="/theirs", tenant=tenant, role="owner", created_by="test"
    )
    with tenant_scope(tenant.pk):  # and some of its past was rebuilt
        past = DeviceAllocation.objects.filter(bucket="tenants", ended_at__isnull=False).latest("started_at")
        past.pk, past.pod_uid, past.source, past._state.adding = uuid4(), "past:x", "retroactive", True
        past.save(force_insert=True)
    now = utcnow()
    rebuild = Rebuild.objects.create(
        cluster=cluster, from_at=now, until_at=now, cursor=now, searched_to=now, window_seconds=60, step_seconds=60,
        requested_by="test",
    )  # fmt: skip
    rule = ClaimRule.objects.create(
        position=1, kind="name", pattern="theirs-*", cluster=cluster, tenant_id=tenant.pk, valid_from=utcnow(),
        created_by="test",
    )  # fmt: skip
    node = Node.objects.get(name="alpha-0")
    event = HealthEvent.objects.create(
        cluster=cluster, node=node, device="GPU-1", kind="xid", code="79", fault_class="node", started_at=now,
        source="metrics",
    )  # fmt: skip
    with system_scope("test"):
        credit = FaultCredit.objects.create(
            tenant=tenant, issuer=estate.issuer, month=estate.november.starts_at, allocation_id=uuid4(),
            event_id=event.pk, fault="XID 79", fault_class="node", happened_at=now, because="card",
            cluster_name=cluster.slug, node_name=node.name, namespace="theirs", pod_name="p", charge_from=now,
            charge_to=now + timedelta(hours=1), currency="EUR",
        )  # fmt: skip
    with system_scope("test"):
        asked = QuotaRequest.objects.create(
            tenant=tenant, gpu_type=gpu_type, guaranteed=0, limit=8_000_000, reason="A larger model.",
            state="submitted", created_by="member", submitted_at=now,
        )  # fmt: skip
        inner = TenantCluster.objects.create(
            tenant=tenant, cluster=cluster, name=tenant.slug, endpoint="https://a.example", kubernetes_version="1.35.0",
            chart_version="0.35.3", requested_by="test",
        )  # fmt: skip
        Robot.objects.create(tenant=tenant, tenant_cluster=inner, name="ci", created_by="test")
    stranger = User.objects.create_user("stranger")
    Member.objects.create(tenant=make_tenant("team-vision"), user=stranger, role="owner")
    client = Client()
    client.force_login(stranger)
    return {
        "client": client,
        "tenant_row": tenant,
        "values": {
            "tenant": tenant.slug,
            "slug": tenant.slug,
            "name": deployment.name,
            "username": "member",
            "gpu_type": gpu_type.slug,
            "claim_id": str(claim.pk),
            "mapping_id": str(mapping.pk),
            "action": "pause",
            "robot": "ci",
            "piece": "network-policies",
            "cluster": cluster.slug,
            "role": "metrics",
            "issuer": estate.issuer.slug,
            "period": str(estate.november),
            "bill_id": str(bill.pk),
            "line_id": str(estate.lines()[0].pk),
            "event_id": str(event.pk),
            "credit_id": str(credit.pk),
            "rebuild_id": str(rebuild.pk),
            "item_id": str(WorkItem.objects.get(kind="deployment").pk),
            "rate_id": str(Rate.objects.earliest("id").pk),
            "rule_id": str(rule.pk),
            "request_id": str(asked.pk),
            "act": "submit",
        },
    }


def filled(route: str, values: dict[str, str]) -> str:
    """The route with real values: an id that exists is told from one that does not only by whose it is."""
    route = re.sub(r"\(\?P<(\w+)>[^)]*\)", r"<\1>", route)

    def value(match: re.Match[str]) -> str:
        kind, _, name = match.group(1).rpartition(":")
        if name in values:
            return values[name]
        # Ids of what is somebody's own by another column (tokens) have addresses that are not asked here.
        raise AssertionError(f"add {name} ({kind or 'str'}) to the world's values")

    return "/" + re.sub(r"<([^>]+)>", value, route)


def state() -> list[tuple[Any, ...]]:
    """What a stranger might have changed."""
    with system_scope("test"):
        return [
            *ModelDeployment.objects.order_by("pk").values_list("pk", "generation", "deleting_at"),
            *Tenant.objects.order_by("pk").values_list("pk", "state", "generation"),
            *Member.objects.order_by("pk").values_list("pk", "role", "user_id"),
            *GroupMapping.objects.order_by("pk").values_list("pk", "role", "tenant_id"),
            *NamespaceClaim.objects.order_by("pk").values_list("pk", "valid_to", "tenant_id"),
            *ClaimRule.objects.order_by("pk").values_list("pk", "position", "ended_at"),
            *Rate.objects.order_by("pk").values_list("pk", "valid_to", "price"),
            *Bill.objects.order_by("pk").values_list("pk", "total"),
            *CreditNote.objects.order_by("pk").values_list("pk", "amount"),
            *QuotaRequest.objects.order_by("pk").values_list("pk", "state", "limit"),
            *TenantCluster.objects.order_by("pk").values_list("pk", "desired", "generation", "deleting_at"),
            *Robot.objects.order_by("pk").values_list("pk", "deleting_at", "token_issued_at"),
            *BillingPeriod.objects.order_by("pk").values_list("pk", "state"),
        ]


def test_a_stranger_finds_nothing(world: dict[str, Any]):
    before, told = state(), []
    for name, route in CLOSED:
        json_body = {"content_type": "application/json"} if route.startswith("api/") else {}
        for method in METHODS:
            call = getattr(world["client"], method)
            answer = call(filled(route, world["values"]), **json_body)
            missing = call(filled(route, {**world["values"], "tenant": "no-such-team"}), **json_body)
            if answer.status_code not in (404, 405):
                told.append(f"{method} {name}: {answer.status_code} {answer.content[:200]!r}")
            if answer.status_code != missing.status_code:
                told.append(f"{method} {name}: {answer.status_code}, but {missing.status_code} for no tenant at all")
    assert not told, "\n".join(told)
    assert state() == before


def test_ids_of_another_team_are_not_there_under_ones_own_address(world: dict[str, Any]):
    """The address is the stranger's own, and so is the permission; the bill, line or deployment is somebody else's."""
    before, told, asked = state(), [], 0
    for name, route in CLOSED:
        foreign = [key for key in ("bill_id", "line_id", "request_id", "name") if re.search(rf"[:<]{key}>", route)]
        if "<slug:tenant>" not in route or not foreign:
            continue
        own = {**world["values"], "tenant": "team-vision"}
        for method in METHODS:
            if method == "put" and foreign == ["name"]:
                continue  # an owner may make a deployment of any name
            body = {"content_type": "application/json"} if route.startswith("api/") else {}
            answer = getattr(world["client"], method)(filled(route, own), **body)
            nothing = getattr(world["client"], method)(filled(route, {**own, **NOWHERE}), **body)
            asked += 1
            if answer.status_code != nothing.status_code or (method == "get" and answer.status_code not in (404, 405)):
                told.append(f"{method} {name}: {answer.status_code}, but {nothing.status_code} for no such thing")
    assert not told, "\n".join(told)
    assert asked > 40
    assert state() == before


def test_an_owner_finds_what_the_stranger_does_not(world: dict[str, Any]):
    """The addresses and values are right: who belongs there gets an answer from every one of them."""
    owner = Client()
    owner.force_login(User.objects.get(username="member"))
    with at():
        refused = [
            f"{name}: {answer.status_code}"
            for name, route in CLOSED
            if "<slug:tenant>" in route and "billing/accounts" not in route
            for answer in [owner.get(filled(route, world["values"] | OPEN_MONTH.get(name, {})))]
            if answer.status_code not in (200, 204, 405)
        ]
    assert not refused, refused


def test_nobody_gets_in_without_signing_in(world: dict[str, Any]):
    let_in = []
    for name, route in CLOSED:
        for method in METHODS:
            answer = getattr(Client(), method)(filled(route, world["values"]))
            to_sign_in = answer.status_code == 302 and answer["Location"].startswith("/auth/login")
            if not to_sign_in and answer.status_code not in (401, 403, 405):
                let_in.append(f"{method} {name}: {answer.status_code}")
    assert not let_in, "\n".join(let_in)


def test_lists_of_ones_own_show_nothing_of_others(world: dict[str, Any]):
    body = world["client"].get("/api/v1/tenants").json()
    assert [row["slug"] for row in body["results"]] == ["team-vision"]


TENANT_TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relrowsecurity
"""


def test_raw_sql_as_the_app_role_sees_nothing_of_another_tenant(world: dict[str, Any]):
    other = make_tenant("third-team")
    with tenant_scope(other.pk), connection.cursor() as cursor:
        cursor.execute(TENANT_TABLES)
        tables = [row[0] for row in cursor.fetchall()]
        assert len(tables) >= 10, tables
        for table in tables:
            cursor.execute(f'SELECT count(*) FROM "{table}"')  # noqa: S608  # a name from the catalogue
            assert cursor.fetchone()[0] == 0, table
    with system_scope("test"):
        assert AuditEvent.objects.filter(tenant_id=world["tenant_row"].pk).exists()
