"""The page of a cluster's sources, and the same over REST: set, test, pause, remove; secrets never come out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.test import Client

from infra.models import Cluster, ClusterEndpoint, TelemetryGap, TelemetrySource
from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_VIEWER
from portal.kernel.models import AuditEvent, WorkItem
from portal.kernel.scoping import system_scope
from tests.support.answering import Answer
from tests.support.fleet import make_cluster
from tests.support.metrics_api import MetricsApi, metrics_api

pytestmark = pytest.mark.django_db

PAGE = "/platform/clusters/alpha/sources"
API = "/api/v1/clusters/alpha/endpoints"
SECRET = "a-very-secret-token"
AT = datetime(2026, 11, 3, 12, tzinfo=UTC)


@pytest.fixture
def api() -> Iterator[MetricsApi]:
    with metrics_api() as running:
        yield running


@pytest.fixture
def cluster() -> Cluster:
    return make_cluster()


def caller(role: str) -> Client:
    client = Client()
    client.force_login(User.objects.create_user(f"a-{role}", platform_role=role))
    return client


def form(url: str, **more: str) -> dict[str, str]:
    values = {"via": "direct", "url": url, "auth": "bearer", "token": SECRET, "matchers": "cluster=alpha", **more}
    return {f"metrics-{name}": value for name, value in values.items()}


def test_set_on_the_page_test_pause_resume_and_remove(cluster: Cluster, api: MetricsApi) -> None:
    admin = caller(PLATFORM_ADMIN)
    assert "Nothing has been read yet" in admin.get(PAGE).content.decode()
    assert admin.post(f"{PAGE}/metrics", form(api.url)).status_code == 303
    row = ClusterEndpoint.objects.get()
    assert (row.product, row.version, row.matchers) == ("prometheus", "3.0.0", {"cluster": "alpha"})
    assert SECRET.encode() not in bytes(row.secret_ciphertext)
    assert api.server.asked[0].headers["authorization"] == f"Bearer {SECRET}"
    assert WorkItem.objects.filter(kind="telemetry", object_id=cluster.pk).exists()
    page = admin.get(PAGE).content.decode()
    assert "prometheus 3.0.0" in page
    assert SECRET not in page
    for action, paused in (("test", False), ("pause", True), ("resume", False)):
        assert admin.post(f"{PAGE}/metrics/{action}").status_code == 303
        assert ClusterEndpoint.objects.get().paused is paused
    assert admin.post(f"{PAGE}/metrics/remove").status_code == 303
    assert not ClusterEndpoint.objects.exists()
    with system_scope("test"):
        told = list(AuditEvent.objects.filter(object_kind="endpoint").order_by("id"))
    verbs = [event.verb for event in told]
    assert verbs == ["endpoint_set", "endpoint_pause", "endpoint_resume", "endpoint_remove"]
    assert SECRET not in str([(event.before, event.after) for event in told])


def test_what_does_not_answer_is_not_stored_and_the_field_says_why(cluster: Cluster, api: MetricsApi) -> None:
    admin = caller(PLATFORM_ADMIN)
    api.failure = Answer(200, b"<html>Sign in</html>", {"Content-Type": "text/html"})
    page = admin.post(f"{PAGE}/metrics", form(api.url))
    assert page.status_code == 422
    assert "is not the Prometheus API" in page.content.decode()
    assert SECRET not in page.content.decode()
    for wrong, words in (
        (form("ftp://x"), "http:// or https://"),
        (form("http://user:pass@x"), "Take the credentials out"),
        (form(api.url, token=""), "Give the token"),
        (form(api.url, auth="mtls"), "Give the client cert"),
        (form(api.url, matchers="a-b=c"), "is no label"),
        (form(api.url, tenant_header="Authorization", tenant_value="x"), "Name the header"),
        (form(api.url, ca_data="none"), "https://"),
        (form("", via="proxy", service="monitoring", auth="none"), "namespace/service:port"),
        (form("", via="proxy", service="monitoring/prometheus:9090"), "passes no credentials"),
    ):
        page = admin.post(f"{PAGE}/metrics", wrong)
        assert page.status_code == 422, wrong
        assert words in page.content.decode().replace("&#x27;", "'"), words
    assert not ClusterEndpoint.objects.exists()


def test_a_stored_secret_stays_for_the_same_server_only(cluster: Cluster, api: MetricsApi) -> None:
    admin = caller(PLATFORM_ADMIN)
    admin.post(f"{PAGE}/metrics", form(api.url))
    assert admin.post(f"{PAGE}/metrics", form(api.url, token="", matchers="cluster=beta")).status_code == 303
    assert ClusterEndpoint.objects.get().matchers == {"cluster": "beta"}
    with metrics_api() as other:
        page = admin.post(f"{PAGE}/metrics", form(other.url, token=""))
        assert page.status_code == 422
        assert not other.server.asked, "the stored token does not go to another server"


def test_a_failed_test_is_a_condition(cluster: Cluster, api: MetricsApi) -> None:
    admin = caller(PLATFORM_ADMIN)
    admin.post(f"{PAGE}/metrics", form(api.url))
    api.failure = Answer(503, b"starting")
    page = admin.post(f"{PAGE}/metrics/test")
    assert page.status_code == 422
    assert "can&#x27;t answer now" in page.content.decode()
    assert ClusterEndpoint.objects.get().conditions[0]["status"] == "False"


def test_lag_gaps_and_unmapped_nodes_are_shown(cluster: Cluster) -> None:
    TelemetrySource.objects.create(
        cluster=cluster, read_until=AT, last_sample_at=AT, unmapped=["node-x"], silent=["node-y"], dropped_total=7
    )
    TelemetryGap.objects.create(
        cluster=cluster, node="node-y", kind="silent", started_at=AT, ended_at=AT.replace(hour=13)
    )
    page = caller(PLATFORM_VIEWER).get(PAGE).content.decode()
    for words in ("node-x", "node-y", "no samples", "7 so far", "s ago"):
        assert words in page
    assert "Test and store" not in page, "who may only read gets no form"


def test_who_may_not(cluster: Cluster, api: MetricsApi) -> None:
    viewer, nobody = caller(PLATFORM_VIEWER), caller("")
    assert viewer.post(f"{PAGE}/metrics", form(api.url)).status_code == 403
    assert nobody.get(PAGE).status_code == 404
    assert nobody.get(API).status_code == 404
    assert viewer.post(API, {"role": "metrics"}, "application/json").status_code == 403
    assert not api.server.asked


def test_rest(cluster: Cluster, api: MetricsApi) -> None:
    admin = caller(PLATFORM_ADMIN)
    body = {
        "role": "metrics", "url": api.url, "auth": "basic", "secret": {"username": "u", "password": SECRET},
        "tenant_header": "X-Scope-OrgID", "tenant_value": "gpu",
    }  # fmt: skip
    answer = admin.post(API, body, "application/json")
    assert answer.status_code == 200, answer.content
    assert SECRET not in answer.content.decode()
    assert api.server.asked[0].headers["x-scope-orgid"] == "gpu"
    assert [row["role"] for row in admin.get(API).json()] == ["metrics"]
    assert admin.get(f"{API}/metrics").json()["product"] == "prometheus"
    assert admin.post(f"{API}/metrics/pause", {"paused": True}, "application/json").json()["paused"] is True
    assert admin.post(f"{API}/metrics/test", {}, "application/json").status_code == 200
    assert admin.delete(f"{API}/metrics").status_code == 204
    assert admin.get(f"{API}/metrics").status_code == 404
    wrong = admin.post(API, {**body, "url": "nowhere"}, "application/json")
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/url")
    assert admin.get("/api/v1/clusters/alpha/telemetry").status_code == 404
    TelemetrySource.objects.create(cluster=cluster, read_until=AT)
    assert admin.get("/api/v1/clusters/alpha/telemetry").json()["interval_ms"] == 30_000
    for path in ("gaps", "hours"):
        assert admin.get(f"/api/v1/clusters/alpha/telemetry/{path}").json()["results"] == []
