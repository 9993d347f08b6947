"""Namespaces, rules and rights over REST."""

from __future__ import annotations

import pytest

from billing.services.metering import meter_cluster
from infra.models import ClaimRule, Cluster, NamespaceClaim
from portal.kernel import workqueue
from tests.api.billing.conftest import Clients
from tests.billing.estate import NOW, Estate
from tests.billing.factories import observe, pod_evidence

pytestmark = pytest.mark.django_db

NEW = {
    "kind": "name", "pattern": "lab-*", "cluster": "east", "tenant": "audio", "valid_from": "2026-12-01T00:00:00Z",
}  # fmt: skip


@pytest.fixture
def lab(estate: Estate) -> Estate:
    """Since the 1st of December a namespace that is nobody's holds two cards."""
    start = NOW.replace(day=1, hour=0, minute=0)
    observe(estate.cluster, pod_evidence("sweep", namespace="lab-sweep", node="node-0", gpu=2, start=start))
    meter_cluster(estate.cluster.pk)
    return estate


def test_namespaces_with_their_cost(lab: Estate, client_of: Clients) -> None:
    viewer = client_of("platform-viewer")
    rows = viewer.get("/api/v1/namespaces?standing=unmapped").json()
    [row] = [row for row in rows if row["namespace"] == "lab-sweep"]
    assert (row["cards"], row["pods"], row["tenant"], row["claim"]) == (2_000_000, 1, None, None)
    assert row["held"]["unattributed"] == "73"
    assert row["would_cost"] == {"amount": "182.5", "currency": "EUR", "unpriced": False}
    one = viewer.get("/api/v1/clusters/east/adoption").json()
    assert one["tenants"][0]["tenant"] == "vision"
    assert one["would_cost"]["amount"] == "182.5"
    assert one["writes"] is None, "nobody knows how it was connected"
    assert client_of("owner").get("/api/v1/namespaces").status_code == 404


def test_rules(lab: Estate, client_of: Clients) -> None:
    admin, viewer = client_of("platform-admin"), client_of("platform-viewer")
    preview = admin.post("/api/v1/claim-rules/preview", NEW, format="json")
    assert preview.status_code == 200, preview.json()
    [change] = preview.json()
    assert (change["namespace"], change["tenant"], change["gains"], change["card_hours"]) == (
        "lab-sweep", "audio", True, "73",
    )  # fmt: skip
    assert not ClaimRule.objects.exists()
    made = admin.post("/api/v1/claim-rules", NEW, format="json")
    assert made.status_code == 201
    workqueue.run_due()
    assert NamespaceClaim.objects.get(namespace="lab-sweep").tenant_id == lab.other.pk
    assert [row["pattern"] for row in viewer.get("/api/v1/claim-rules").json()] == ["lab-*"]
    path = f"/api/v1/claim-rules/{made.json()['id']}"
    assert viewer.post(f"{path}/end").status_code == 403
    assert admin.post(f"{path}/move", {"position": 1}, format="json").json()["position"] == 1
    assert admin.post(f"{path}/end").status_code == 200
    assert viewer.get("/api/v1/claim-rules").json() == []
    for body, pointer in (
        (NEW | {"cluster": "nowhere"}, "/cluster"), (NEW | {"tenant": "nobody"}, "/tenant"),
        (NEW | {"pattern": "A*"}, "/pattern"),
    ):  # fmt: skip
        answer = admin.post("/api/v1/claim-rules", body, format="json")
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


def test_several_claims_at_once(lab: Estate, client_of: Clients) -> None:
    admin = client_of("platform-admin")
    body = {
        "tenant": "audio", "valid_from": "2026-12-01T00:00:00Z",
        "namespaces": [{"cluster": "east", "namespace": "lab-sweep"}, {"cluster": "east", "namespace": "v"}],
    }  # fmt: skip
    answer = admin.post("/api/v1/namespace-claims/many", body, format="json")
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/namespaces/1"]
    assert not NamespaceClaim.objects.filter(namespace="lab-sweep").exists()
    answer = admin.post("/api/v1/namespace-claims/many", body | {"namespaces": body["namespaces"][:1]}, format="json")
    assert [row["namespace"] for row in answer.json()] == ["lab-sweep"]


def test_rights(lab: Estate, client_of: Clients) -> None:
    admin, viewer = client_of("platform-admin"), client_of("platform-viewer")
    assert viewer.get("/api/v1/clusters/east/rights").json() == {"checked_at": None, "rights": None}
    assert viewer.post("/api/v1/clusters/east/rights").status_code == 403
    assert admin.post("/api/v1/clusters/east/rights").status_code == 202
    answer = admin.post("/api/v1/clusters/preflight", {"kubeconfig": "nonsense", "mode": "observe"}, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/kubeconfig")
    assert Cluster.objects.count() == 1
