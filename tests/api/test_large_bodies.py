"""Bodies and figures beyond all measure are refused, and cost nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from portal.accounts.models import User
from portal.accounts.services import token_create, user_actor
from portal.kernel.clock import utcnow
from tenants.models import Member, Tenant
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import give_quota, make_tenant
from tests.unit.tenants.manifests import manifest_data

pytestmark = pytest.mark.django_db
HERE = "/api/v1/tenants/ml-team"


@pytest.fixture
def tenant() -> Tenant:
    tenant = make_tenant()
    make_node(make_pool(cluster=make_cluster("alpha")), cards=2, name="alpha-0")
    give_quota(tenant, make_type(), 2)
    return tenant


def developer(tenant: Tenant) -> dict[str, str]:
    user = User.objects.create_user("a-developer")
    Member.objects.create(tenant=tenant, user=user, role=Member.Role.DEVELOPER)
    _, text = token_create(
        user_id=user.pk,
        name="ci",
        scopes=("read", "write"),
        expires_at=utcnow() + timedelta(days=1),
        actor=user_actor(user),
    )
    return {"authorization": f"Bearer {text}"}


@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
def test_a_body_that_is_too_large_is_not_read(tenant: Tenant, kind: str) -> None:
    body = b'{"a": "' + b"x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE + b'"}'
    answer = Client().post(f"{HERE}/deployments", body, content_type=kind, headers=developer(tenant))
    assert answer.status_code == 413, answer.content[:400]


@pytest.mark.parametrize("amount", ["1e9000", "1e25"])
@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_figures_beyond_all_measure_are_refused_by_name(tenant: Tenant, resource: str, amount: str) -> None:
    data: dict[str, Any] = manifest_data()
    for engine in data["spec"]["engines"]:
        for container in engine["template"]["spec"]["containers"]:
            container["resources"] = {"requests": {resource: amount}}
    answer = Client(raise_request_exception=False).post(
        f"{HERE}/deployments?dry_run=1", data, content_type="application/json", headers=developer(tenant)
    )
    assert answer.status_code in (200, 422), answer.content[:400]


def test_a_manifest_in_json_is_no_longer_than_one_in_yaml(tenant: Tenant) -> None:
    data = manifest_data() | {"status": {"text": "x" * 300_000}}
    answer = Client().post(f"{HERE}/preview", data, content_type="application/json", headers=developer(tenant))
    assert answer.status_code == 422, answer.content[:400]
    assert "262,144" in answer.json()["detail"]


def test_a_selector_that_is_nested_too_deeply_is_a_fault_of_the_manifest(tenant: Tenant) -> None:
    cel = "".join(f"[1, 2].all(x{level}, " for level in range(25)) + "true" + ")" * 25
    answer = Client(raise_request_exception=False).post(
        f"{HERE}/preview", manifest_data(cel=cel), content_type="application/json", headers=developer(tenant)
    )
    assert answer.status_code == 422, answer.content[:400]
    assert "nested too deeply" in answer.json()["detail"]
