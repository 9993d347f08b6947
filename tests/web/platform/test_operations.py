"""For whoever is on call: readiness, the switch for all writing, the work queue, metrics."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client, override_settings
from prometheus_client.parser import text_string_to_metric_families

from infra.models import AppliedObject, Cluster, WriteStop
from infra.services.operations import writes_resume, writes_stop
from infra.services.work import work_item_retry
from portal.accounts.models import User
from portal.kernel import heartbeat, workqueue
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_VIEWER, Actor
from portal.kernel.clock import utcnow
from portal.kernel.conditions import Condition, set_condition
from portal.kernel.ids import uuid7
from portal.kernel.models import AuditEvent, Heartbeat, WorkItem
from portal.kernel.problems import Conflict, Forbidden, Invalid, NotFound
from portal.kernel.scoping import system_scope
from tenants.models import Tenant
from tests.support.fleet import make_cluster
from tests.support.tenants import make_tenant

pytestmark = pytest.mark.django_db

ADMIN = Actor(kind="user", name="ops-admin", user_id=uuid7(), platform_role=PLATFORM_ADMIN)
VIEWER = Actor(kind="user", name="ops-viewer", user_id=uuid7(), platform_role=PLATFORM_VIEWER)
REASON = "the wrong image is rolling out"


def browser(role: str) -> Client:
    client = Client()
    client.force_login(User.objects.create_user(f"a-{role or 'person'}", platform_role=role))
    return client


def events(verb: str) -> list[AuditEvent]:
    with system_scope("test"):
        return list(AuditEvent.objects.filter(verb=verb))


def reachable(cluster: Cluster, status: Any, message: str = "") -> None:
    cluster.conditions = set_condition([], Condition("Reachable", status, "Test", message), now=utcnow())
    cluster.last_seen_at = utcnow()
    cluster.save()


# ---- readiness --------------------------------------------------------------------------------------------


def test_readiness_tells_parts_apart_and_stays_ready_without_clusters(settings: Any) -> None:
    settings.AIF_BROKER_URL = "memory://"
    answer = Client().get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok", "database": "ok", "broker": "ok", "worker": "silent", "beat": "silent", "tasks": "silent",
        "watcher": "silent", "clusters": "ok",
    }  # fmt: skip
    for kind in ("worker", "beat", "tasks", "watcher"):
        heartbeat.beat(kind)
        assert Client().get("/readyz").json()[kind] == "ok"
    cluster = make_cluster("secret-name")
    assert Client().get("/readyz").json()["clusters"] == "some are not known"
    reachable(cluster, "False", "secret-name does not answer")
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["clusters"]) == (200, "some do not answer")
    assert "secret-name" not in answer.content.decode()
    reachable(cluster, "True")
    assert Client().get("/readyz").json()["clusters"] == "ok"
    Cluster.objects.update(last_seen_at=utcnow() - timedelta(minutes=10))
    assert Client().get("/readyz").json()["clusters"] == "some are not known", "what was true long ago is not known"


def test_a_process_that_is_silent_for_a_minute_is_told(settings: Any) -> None:
    settings.AIF_BROKER_URL = "memory://"
    heartbeat.beat("worker")
    Heartbeat.objects.update(seen_at=utcnow() - timedelta(seconds=heartbeat.SILENT_SECONDS + 5))
    assert Client().get("/readyz").json()["worker"] == "silent"


def test_the_page_has_the_details_for_platform_roles_alone() -> None:
    reachable(make_cluster("alpha"), "False", "alpha refuses the connection")
    heartbeat.beat("watcher", "host-7:12")
    page = browser(PLATFORM_VIEWER).get("/platform/operations/")
    assert page.status_code == 200
    text = page.content.decode()
    assert "alpha refuses the connection" in text
    assert "host-7:12" in text
    assert "Stop all writing</button>" not in text, "a viewer is offered nothing that is refused"
    assert browser("").get("/platform/operations/").status_code == 404


# ---- the switch -------------------------------------------------------------------------------------------


def test_stopping_and_resuming_with_a_reason_that_everybody_reads() -> None:
    make_cluster("alpha")
    with pytest.raises(Invalid, match="at least 10 characters"):
        writes_stop(reason="no", actor=ADMIN)
    with pytest.raises(Forbidden):
        writes_stop(reason=REASON, actor=VIEWER)
    writes_stop(reason=REASON, actor=ADMIN)
    with pytest.raises(Conflict, match=f"ops-admin: {REASON}"):
        writes_stop(reason="another reason that is long", actor=ADMIN)
    assert WriteStop.objects.count() == 1
    viewer = browser(PLATFORM_VIEWER)
    for address in ("/platform/", "/platform/clusters/alpha/", "/platform/work/", "/platform/tenants/"):
        assert REASON in viewer.get(address).content.decode(), address
    with pytest.raises(Forbidden):
        writes_resume(actor=VIEWER)
    writes_resume(actor=ADMIN)
    assert REASON not in viewer.get("/platform/").content.decode()
    with pytest.raises(Conflict):
        writes_resume(actor=ADMIN)
    assert [event.after for event in events("writes_stop") if event.outcome == "done"] == [{"reason": REASON}]
    (resumed,) = [event for event in events("writes_resume") if event.outcome == "done"]
    assert resumed.before is not None
    assert resumed.before["stopped_by"] == "ops-admin"


def test_what_waited_is_looked_at_when_writing_is_resumed() -> None:
    cluster = make_cluster("alpha")
    writes_stop(reason=REASON, actor=ADMIN)
    workqueue.mark("replica", uuid7(), cluster_id=cluster.pk)
    later = utcnow() + timedelta(hours=1)
    WorkItem.objects.update(next_attempt_at=later, not_before=later, attempts=5)
    writes_resume(actor=ADMIN)
    item = WorkItem.objects.get(kind="replica")
    assert item.next_attempt_at is not None
    assert item.next_attempt_at <= utcnow()
    assert item.attempts == 0


def test_the_switch_on_the_page_and_over_rest() -> None:
    admin = browser(PLATFORM_ADMIN)
    make_cluster("alpha", mode="manage")
    assert admin.post("/platform/operations/stop", {"reason": "short"}).status_code == 422
    assert admin.post("/platform/operations/stop", {"reason": REASON}).status_code == 303
    page = admin.get("/platform/operations/").content.decode()
    assert 'data-label="Writing"><span class="state state-bad">stopped' in page, "nowhere allowed, while it is stopped"
    told = admin.get("/api/v1/operations/write-stop").json()
    assert (told["stopped"], told["reason"], told["by_setting"]) == (True, REASON, False)
    again = admin.post("/api/v1/operations/write-stop", {"reason": REASON}, content_type="application/json")
    assert again.status_code == 409
    assert admin.post("/api/v1/operations/write-stop/resume").json()["stopped"] is False
    assert admin.post("/platform/operations/resume").status_code == 303
    viewer = browser(PLATFORM_VIEWER)
    assert viewer.post("/platform/operations/stop", {"reason": REASON}).status_code == 403
    assert viewer.post("/api/v1/operations/write-stop/resume").status_code == 403
    assert not WriteStop.objects.exists()


def test_the_setting_is_the_harder_one(settings: Any) -> None:
    settings.AIF_STOP_WRITES = True
    admin = browser(PLATFORM_ADMIN)
    page = admin.get("/platform/operations/").content.decode()
    assert "AIF_STOP_WRITES" in page
    assert "Write again</button>" not in page
    assert admin.get("/api/v1/operations/write-stop").json()["by_setting"] is True


def test_the_parts_over_rest() -> None:
    reachable(make_cluster("alpha"), "False", "alpha refuses the connection")
    answer = browser(PLATFORM_VIEWER).get("/api/v1/operations").json()
    assert answer["parts"]["clusters"] == "some do not answer"
    (cluster,) = answer["clusters"]
    assert (cluster["cluster"], cluster["reached"], cluster["credentials_state"]) == ("alpha", False, "unknown")


# ---- the work queue ---------------------------------------------------------------------------------------


@pytest.fixture
def items() -> tuple[Cluster, Tenant, WorkItem]:
    """A stalled item of a tenant on alpha, and a fresh one on beta."""
    alpha, beta, tenant = make_cluster("alpha"), make_cluster("beta"), make_tenant()
    workqueue.mark("replica", uuid7(), cluster_id=alpha.pk, tenant_id=tenant.pk)
    stalled = WorkItem.objects.get()
    later = utcnow() + timedelta(minutes=4)
    WorkItem.objects.update(
        attempts=9, stalled_at=utcnow(), last_error="QuotaRefused: 4 of 4 are used", next_attempt_at=later
    )
    workqueue.mark("cluster", beta.pk, cluster_id=beta.pk)
    return alpha, tenant, stalled


def test_items_are_narrowed_by_state_kind_cluster_and_tenant(items: tuple[Cluster, Tenant, WorkItem]) -> None:
    client = browser(PLATFORM_VIEWER)

    def shown(query: str) -> tuple[bool, bool]:
        text = client.get(f"/platform/work/?{query}").content.decode()
        body = text[text.index("<tbody>") :]
        return "4 of 4 are used" in body, ">cluster</td>" in body

    assert shown("") == (True, True)
    assert shown("state=stalled") == (True, False)
    assert shown("kind=cluster") == (False, True)
    assert shown("cluster=alpha") == (True, False)
    assert shown("tenant=ml-team") == (True, False)
    assert shown("state=due") == (False, True)
    rest = client.get("/api/v1/operations/work-items?state=stalled").json()["results"]
    assert [row["last_error"] for row in rest] == ["QuotaRefused: 4 of 4 are used"]
    assert client.get("/api/v1/operations/work-items?cluster=beta").json()["results"][0]["kind"] == "cluster"
    assert client.get("/api/v1/operations/work-items?state=lost").status_code == 400
    assert client.get("/api/v1/operations/work-items?tenant_id=x").status_code == 400


def test_retrying_ends_the_back_off_and_is_audited(items: tuple[Cluster, Tenant, WorkItem]) -> None:
    _, _, stalled = items
    with pytest.raises(Forbidden):
        work_item_retry(item_id=stalled.pk, actor=VIEWER)
    with pytest.raises(NotFound):
        work_item_retry(item_id=uuid7(), actor=ADMIN)
    admin = browser(PLATFORM_ADMIN)
    assert admin.post(f"/platform/work/{stalled.pk}/retry").status_code == 303
    stalled.refresh_from_db()
    assert stalled.next_attempt_at is not None
    assert stalled.next_attempt_at <= utcnow()
    assert stalled.attempts == 0
    (event,) = [one for one in events("work_item_retry") if one.outcome == "done"]
    assert event.before == {"attempts": 9, "last_error": "QuotaRefused: 4 of 4 are used"}
    assert admin.post(f"/api/v1/operations/work-items/{stalled.pk}/retry").status_code == 200
    assert browser(PLATFORM_VIEWER).post(f"/api/v1/operations/work-items/{stalled.pk}/retry").status_code == 403


# ---- a cluster that is lost -------------------------------------------------------------------------------


def test_an_abandoned_cluster_lists_everything_of_ours_on_it() -> None:
    alpha, beta = make_cluster("alpha"), make_cluster("beta")
    ours = [
        ("replica", "apps/v1", "Deployment", "t-ml-team", "web-0"),
        ("namespace", "v1", "Namespace", "", "t-ml-team"),
        ("tenantcluster", "helm.toolkit.fluxcd.io/v2", "HelmRelease", "vc-ml-team", "vc"),
        ("kueue", "kueue.x-k8s.io/v1beta1", "ClusterQueue", "", "aif-ml-team"),
        ("isolation", "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "", "aif-images"),
    ]
    for cluster in (alpha, beta):
        for owner, version, kind, namespace, name in ours:
            AppliedObject.objects.create(
                cluster=cluster, owner_kind=owner, owner_id=uuid7(), api_version=version, kind=kind,
                namespace=namespace, name=name, generation=1,
            )  # fmt: skip
    AppliedObject.objects.filter(cluster=alpha, kind="Deployment").update(deleted_at=utcnow())
    admin = browser(PLATFORM_ADMIN)
    answer = admin.post(
        "/api/v1/clusters/alpha/abandon", {"reason": "the site has burnt down"}, content_type="application/json"
    )
    assert answer.status_code == 200
    assert sorted(answer.json()["leftovers"]) == [
        "ClusterQueue aif-ml-team", "HelmRelease vc-ml-team/vc", "Namespace t-ml-team",
        "ValidatingAdmissionPolicy aif-images",
    ]  # fmt: skip
    page = admin.get("/platform/clusters/alpha/").content.decode()
    assert all(name in page for name in ("aif-ml-team", "vc-ml-team/vc", "aif-images"))
    assert "web-0" not in page, "what the cluster said is gone is no leftover"
    alpha.refresh_from_db()
    assert (bytes(alpha.kubeconfig_ciphertext), alpha.credential_expires_at) == (b"", None)
    assert [one["cluster"] for one in admin.get("/api/v1/operations").json()["clusters"]] == ["beta"]
    assert 'cluster="alpha"' not in metrics_text()


def metrics_text() -> str:
    with override_settings(AIF_METRICS_ALLOW=["127.0.0.1"]):
        return Client().get("/metrics").content.decode()


def test_the_switch_from_the_command_line() -> None:
    with pytest.raises(CommandError, match="at least 10 characters"):
        call_command("stop_writes", "no")
    call_command("stop_writes", REASON)
    assert WriteStop.objects.get().stopped_by == "system: command line"
    with pytest.raises(CommandError, match="stopped already"):
        call_command("stop_writes", REASON)
    call_command("resume_writes")
    assert not WriteStop.objects.exists()
    with pytest.raises(CommandError, match="not stopped"):
        call_command("resume_writes")


# ---- metrics ----------------------------------------------------------------------------------------------


def scraped(client: Client, **headers: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.content
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


def test_metrics_are_nobodys_by_default(settings: Any) -> None:
    for client in (Client(), browser(PLATFORM_ADMIN)):
        assert client.get("/metrics").status_code == 404
    settings.AIF_METRICS_TOKEN = "scrape-me"
    assert Client().get("/metrics", headers={"authorization": "Bearer wrong"}).status_code == 404
    assert Client().get("/metrics", headers={"authorization": "scrape-me"}).status_code == 404
    assert Client().get("/metrics", headers={"authorization": "Bearer scrape-me"}).status_code == 200
    settings.AIF_METRICS_TOKEN = ""
    settings.AIF_METRICS_ALLOW = ["10.0.0.0/8"]
    assert Client().get("/metrics").status_code == 404
    assert Client(REMOTE_ADDR="10.1.2.3").get("/metrics").status_code == 200
    settings.AIF_METRICS_ALLOW = ["127.0.0.1"]
    assert Client().get("/metrics").status_code == 200


def test_a_scraper_inside_the_cluster_speaks_plain_http(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.ALLOWED_HOSTS = ["portal.example.org", "10.0.0.7"]
    settings.AIF_METRICS_TOKEN = "scrape-me"
    scraper = Client(HTTP_HOST="10.0.0.7:8000")
    assert scraper.get("/metrics", headers={"authorization": "Bearer scrape-me"}).status_code == 200
    assert scraper.get("/metrics").status_code == 404
    assert scraper.get("/").status_code == 301, "people are sent to https"


def test_metrics_tell_queue_fleet_and_processes_and_no_tenant(
    items: tuple[Cluster, Tenant, WorkItem], settings: Any
) -> None:
    alpha, tenant, _ = items
    settings.AIF_METRICS_ALLOW = ["127.0.0.1"]
    reachable(alpha, "False", "gone")
    end = utcnow().replace(microsecond=0)
    Cluster.objects.filter(slug="beta").update(
        paused=True, credential_expires_at=end, credential_issued_at=end - timedelta(hours=6)
    )
    heartbeat.beat("worker")
    Client().get("/platform/clusters/alpha/")
    text = Client().get("/metrics").content.decode()
    assert tenant.slug not in text
    assert str(tenant.pk) not in text
    assert str(alpha.pk) not in text
    found = scraped(Client())

    def value(name: str, **labels: str) -> float | None:
        return found.get((name, tuple(sorted(labels.items()))))

    assert value("aif_work_items", kind="replica", state="stalled") == 1
    assert value("aif_work_items", kind="replica", state="delayed") == 1
    assert value("aif_work_items", kind="cluster", state="due") == 1
    assert value("aif_cluster_reachable", cluster="alpha") == 0
    assert value("aif_cluster_reachable", cluster="beta") is None, "not known is no 0"
    assert value("aif_cluster_paused", cluster="beta") == 1
    assert value("aif_writes_stopped") == 0
    assert value("aif_cluster_credentials_end_timestamp_seconds", cluster="beta") == end.timestamp()
    assert value("aif_cluster_credentials_warn_timestamp_seconds", cluster="beta") == end.timestamp() - 3600
    assert value("aif_processes", kind="worker") == 1
    assert value("aif_processes", kind="watcher") == 0, "none is a figure, not a silence"
    assert value("aif_build_info", version=settings.VERSION) == 1
    assert value("aif_metrics_complete", part="billing") == 1
    route = "platform/clusters/<slug:slug>/"
    assert value("aif_http_request_seconds_count", method="GET", route=route, status="3xx")
    assert not [key for key in found if "alpha" in dict(key[1]).get("route", "")], "addresses are told as patterns"


def test_a_part_that_does_not_answer_costs_the_others_nothing(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import connection

    from portal.kernel.metrics import collect

    settings.AIF_METRICS_ALLOW = ["127.0.0.1"]
    monkeypatch.setattr(collect, "LONGEST_QUESTION_MS", 50)

    def slow() -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(10)")
        return []

    monkeypatch.setitem(collect._collectors, "slow", slow)
    found = scraped(Client())
    assert found["aif_metrics_complete", (("part", "slow"),)] == 0
    assert found["aif_metrics_complete", (("part", "fleet"),)] == 1


def test_a_scrape_asks_as_many_questions_for_many_items_as_for_few(
    settings: Any, django_assert_max_num_queries: Any
) -> None:
    settings.AIF_METRICS_ALLOW = ["127.0.0.1"]
    for number in range(30):
        cluster = make_cluster(f"c-{number}")
        workqueue.mark("cluster", cluster.pk, cluster_id=cluster.pk)
    with django_assert_max_num_queries(60):
        scraped(Client())
