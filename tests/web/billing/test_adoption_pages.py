"""From a pasted kubeconfig to a cluster whose pods are all somebody's: the pages, and what they refuse."""

from __future__ import annotations

import csv
import io

import pytest

from billing.services.metering import meter_cluster
from infra.kube.access import Review
from infra.models import ClaimRule, Cluster, NamespaceClaim, PodObservation
from infra.rights import rights_report
from infra.services.clusters import cluster_set_mode
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.models import AuditEvent, WorkItem
from portal.kernel.scoping import system_scope
from tests.billing.estate import NOW, Estate
from tests.billing.factories import observe, pod_evidence
from tests.web.billing.conftest import Browsers
from tests.web.billing.test_figures import page, plain

pytestmark = pytest.mark.django_db

ADMIN = Actor(kind="user", name="platform-admin", platform_role="platform-admin")
ADOPTION = "/platform/clusters/east/adoption/"
LIST, RULES, MAP = "/platform/adoption/", "/platform/adoption/rules/", "/platform/adoption/map"
DECEMBER = "2026-12-01 00:00"


@pytest.fixture
def lab(estate: Estate) -> Estate:
    """In December two namespaces hold cards that are nobody's."""
    start = NOW.replace(day=1, hour=0, minute=0)
    observe(
        estate.cluster,
        pod_evidence("notebook", namespace="lab-notes", node="node-0", gpu=1, start=start),
        pod_evidence("sweep", namespace="lab-sweep", node="node-0", gpu=2, start=start, end=NOW),
    )
    meter_cluster(estate.cluster.pk)
    return estate


def test_the_page_of_a_cluster_says_whose_everything_is(lab: Estate, browser: Browsers) -> None:
    text = page(browser("platform-viewer"), ADOPTION)
    assert "GPU pods now 2" in text
    assert "Nobody's, card-hours 109.500" in text.replace("&#x27;", "'")
    assert "273.75 EUR" in text, "36.5 h of three cards at 2.50"
    order = [text.index(name) for name in ("lab-sweep", "lab-notes")]
    assert order == sorted(order), "the dearest first"
    assert "vision" in text
    assert "16.25 EUR" in text, "6.5 h of one card"
    assert "2 December" not in text
    assert "known until 2026-12-02 12:30" in text
    assert 'name="tenant"' not in browser("platform-viewer").get(ADOPTION).content.decode(), "readers change nothing"


def test_writes_are_nought_where_the_audit_proves_it(lab: Estate, browser: Browsers) -> None:
    client = browser("platform-viewer")
    assert "Writes not counted" in page(client, ADOPTION), "its connecting is not in the audit"
    with system_scope("test"):
        audit.record(
            "cluster_connect", actor=ADMIN, tenant_id=None, object_kind="cluster", object_id=lab.cluster.pk,
            object_name="east", after={"mode": "observe"},
        )  # fmt: skip
    assert "Writes 0" in page(client, ADOPTION)
    Cluster.objects.update(mode="manage")
    cluster_set_mode(cluster=lab.cluster, mode="observe", actor=ADMIN)
    with system_scope("test"):
        AuditEvent.objects.get(verb="cluster_set_mode")
        audit.record(
            "cluster_set_mode", actor=ADMIN, tenant_id=None, object_kind="cluster", object_id=lab.cluster.pk,
            object_name="east", after={"mode": "manage"},
        )  # fmt: skip
    assert "Writes not counted" in page(client, ADOPTION), "it was managed once"


def test_the_list_is_filtered_and_exported(lab: Estate, browser: Browsers) -> None:
    client = browser("platform-viewer")
    text = page(client, f"{LIST}?standing=unmapped")
    assert "lab-sweep" in text
    assert "vision" not in text.partition("Namespaces with GPU")[0].split("Show")[-1]
    answer = client.get("/platform/adoption.csv?cluster=east")
    rows = {row["namespace"]: row for row in csv.DictReader(io.StringIO(answer.content.decode(), newline=""))}
    assert rows["lab-sweep"]["standing"] == "unmapped"
    assert (rows["lab-sweep"]["card_hours"], rows["lab-sweep"]["would_cost"]) == ("73", "182.5")
    assert (rows["v"]["tenant"], rows["v"]["by"], rows["v"]["currency"]) == ("vision", "set in the portal", "EUR")
    assert client.get("/platform/adoption.csv?cluster=nowhere").content.count(b"\n") == 1


def test_several_namespaces_are_given_at_once(lab: Estate, browser: Browsers) -> None:
    admin = browser("platform-admin")
    body = {"namespace": ["east/lab-notes", "east/lab-sweep"], "tenant": "vision", "valid_from": DECEMBER}
    answer = admin.post(MAP, {**body, "next": ADOPTION})
    assert (answer.status_code, answer["Location"]) == (303, ADOPTION)
    assert NamespaceClaim.objects.filter(namespace__startswith="lab-", tenant_id=lab.tenant.pk).count() == 2
    workqueue.run_due()
    meter_cluster(lab.cluster.pk)
    assert "Every namespace with GPU pods is somebody" in page(admin, f"{ADOPTION}")
    again = admin.post(MAP, {**body, "valid_from": "2026-11-01 00:00"})
    assert again.status_code == 422
    assert plain(again.content.decode()).count("is claimed from") == 2
    assert 'value="east/lab-notes"' in again.content.decode()
    assert admin.post(MAP, {**body, "next": "https://elsewhere.example/"})["Location"] == LIST, "nowhere else"
    assert "Choose at least one" in admin.post(MAP, {**body, "namespace": []}).content.decode()
    assert "There is no cluster nowhere" in admin.post(MAP, {**body, "namespace": "nowhere/x"}).content.decode()
    assert browser("platform-viewer").post(MAP, body).status_code == 403


def test_a_rule_is_looked_at_then_made_moved_and_ended(lab: Estate, browser: Browsers) -> None:
    admin = browser("platform-admin")
    body = {"kind": "name", "pattern": "lab-*", "cluster": "east", "tenant": "audio", "valid_from": DECEMBER}
    text = plain(admin.post(RULES, {**body, "preview": "1"}).content.decode())
    assert "lab-notes becomes audio" in text.replace("&#x27;", "'")
    assert "36.500" in text
    assert not ClaimRule.objects.exists()
    assert admin.post(RULES, body).status_code == 303
    other = {**body, "pattern": "lab-notes", "tenant": "vision"}
    assert admin.post(RULES, other).status_code == 303
    first, second = ClaimRule.objects.order_by("position")
    assert admin.post(f"{RULES}{second.pk}/move", {"position": "1"}).status_code == 303
    assert list(ClaimRule.objects.order_by("position")) == [second, first]
    assert admin.post(f"{RULES}{second.pk}/move", {"position": "x"}).status_code == 422
    assert "lab-* on east" in page(admin, RULES)
    assert admin.post(f"{RULES}{first.pk}/end").status_code == 303
    assert "has ended" in page(admin, RULES)
    assert "lab-* on east" not in page(admin, RULES)
    for bad in ({**body, "pattern": "LAB"}, {**body, "cluster": ""}, {**body, "tenant": ""}):
        answer = admin.post(RULES, bad)
        assert answer.status_code == 422
        assert "errorlist" in answer.content.decode()
    assert browser("platform-viewer").post(RULES, body).status_code == 403


def test_a_claim_by_a_rule_is_marked_and_not_ended_by_a_button(lab: Estate, browser: Browsers) -> None:
    admin = browser("platform-admin")
    body = {"kind": "name", "pattern": "lab-*", "cluster": "east", "tenant": "audio", "valid_from": DECEMBER}
    admin.post(RULES, body)
    workqueue.run_due()
    claim = NamespaceClaim.objects.get(namespace="lab-notes")
    assert "by rule lab-* on east" in page(admin, LIST)
    assert f"/platform/namespaces/{claim.pk}/end" not in admin.get("/platform/namespaces/").content.decode()
    assert admin.post(f"/platform/namespaces/{claim.pk}/end").status_code == 409


# ---- rights -----------------------------------------------------------------------------------------------


def test_the_rights_of_a_cluster_and_asking_again(lab: Estate, browser: Browsers) -> None:
    viewer, admin = browser("platform-viewer"), browser("platform-admin")
    path = "/platform/clusters/east/rights"
    assert "not been asked" in page(viewer, path)

    def may(review: Review) -> bool:
        return str(review) not in ("watch nodes", "get jobs.batch") and review.resource != "secrets"

    report = rights_report("observe", may, lambda: "system:serviceaccount:aifactory:portal")
    Cluster.objects.update(rights=report.dump(), rights_checked_at=NOW)
    text = page(viewer, path)
    assert "watch nodes" in text
    assert "kubectl create clusterrole aifactory-observe-watch-nodes --verb=watch --resource=nodes" in text
    assert "This kubeconfig could write; the portal never does in observe mode" in text
    assert "create pods" in text
    assert "get secrets" not in text, "what is neither needed nor held is not worth a line"
    assert viewer.post(path).status_code == 403
    assert admin.post(path).status_code == 303
    assert Cluster.objects.get(pk=lab.cluster.pk).rights_checked_at is None
    assert WorkItem.objects.filter(kind="cluster", object_id=lab.cluster.pk).exists()


def test_checking_a_kubeconfig_stores_nothing_and_shows_nothing_of_it(lab: Estate, browser: Browsers) -> None:
    admin = browser("platform-admin")
    assert admin.get("/platform/clusters/preflight").status_code == 200
    answer = admin.post("/platform/clusters/preflight", {"mode": "observe", "kubeconfig": "secret-token: {"})
    assert answer.status_code == 422
    assert b"secret-token" not in answer.content
    assert browser("platform-viewer").get("/platform/clusters/preflight").status_code == 403


# ---- usage by workload ------------------------------------------------------------------------------------


def test_usage_and_the_line_show_what_made_the_pods(lab: Estate, browser: Browsers) -> None:
    PodObservation.objects.filter(name__in=["train", "serve"]).update(
        workload_kind="Job", workload_name="bert", workload_known="owner not readable", queue="gpu"
    )
    owner = browser("owner")
    text = page(owner, "/t/vision/usage/")
    assert "Job/bert owner not readable v gpu 6.500 16.25" in text
    line = next(row for row in lab.lines() if row.sharing == "whole")
    path = f"/t/vision/bills/{lab.bill().pk}/lines/{line.pk}"
    assert "Job/bert · gpu owner not readable" in page(owner, f"{path}/")
    row, *_ = csv.DictReader(io.StringIO(owner.get(f"{path}.csv").content.decode(), newline=""))
    assert (row["workload"], row["workload_known"], row["queue"]) == ("Job/bert", "owner not readable", "gpu")
