"""The simulator's answers beside those recorded from a real API server, body by body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from simulator.errors import decode_continue
from tests.support.simulator import SimulatedCluster, simulator
from tests.unit.simulator.conftest import RECORDED, Client, bare, recorded, wait_for

INDEX = {row["file"]: row for row in recorded("api-index.json")}
WEB = "/apis/apps/v1/namespaces/applied/deployments/web"
APPLY = "application/apply-patch+yaml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedCluster]:
    """One cluster for this file: the recorded paths name their namespaces."""
    with simulator(tmp_path_factory.mktemp("recorded"), clusters=("gpu-fra-1",)) as running:
        yield running["gpu-fra-1"]


def replay(cluster: SimulatedCluster, file: str) -> tuple[int, Any]:
    """Send the recorded request; compares the HTTP status."""
    row = INDEX[file]
    media = row.get("request_content_type", "application/json")
    code, body = cluster.call(row["method"], row["path"], row.get("request_body"), media=media)
    assert code == row["status"], (file, body)
    return code, body


def test_apply_answers(cluster: SimulatedCluster) -> None:
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "applied"}})
    _, created = replay(cluster, "api-apply-created.json")
    assert bare(created) == bare(recorded("api-apply-created.json"))
    # the same again, before the controllers have touched it or after: who owns what stays
    _, again = replay(cluster, "api-apply-same-again.json")
    owned = [row for row in again["metadata"]["managedFields"] if row["manager"] == "portal"]
    assert bare(owned) == bare(recorded("api-apply-same-again.json")["metadata"]["managedFields"])
    for file in ("api-apply-conflict-409.json", "api-apply-forced.json", "api-apply-conflict-back-409.json"):
        _, body = replay(cluster, file)
        wanted = recorded(file)
        if body["kind"] == "Status":
            assert body == wanted
        else:
            assert bare(body["spec"]) == bare(wanted["spec"])
            assert body["metadata"]["generation"] == 2

            def appliers(obj: Any) -> Any:
                rows = [row for row in obj["metadata"]["managedFields"] if row["operation"] == "Apply"]
                return bare(sorted(rows, key=lambda row: row["manager"]))

            assert appliers(body) == appliers(wanted)
    _, live = cluster.call("GET", WEB)
    live["metadata"]["resourceVersion"] = "1"
    code, stale = cluster.call("PUT", WEB, live)
    assert (code, stale) == (409, recorded("api-put-stale-409.json"))
    _, body = replay(cluster, "api-not-found-404.json")
    assert body == recorded("api-not-found-404.json")
    _, body = replay(cluster, "api-already-exists-409.json")
    assert body == recorded("api-already-exists-409.json")
    _, body = replay(cluster, "api-invalid-422.json")
    assert body == recorded("api-invalid-422.json")


def test_custom_resources(cluster: SimulatedCluster) -> None:
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "applied"}})
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"gpus": {"type": "integer", "maximum": 8}}}},
    }
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "models.lab.example"},
        "spec": {
            "group": "lab.example",
            "scope": "Namespaced",
            "names": {"kind": "Model", "plural": "models"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    code, _ = cluster.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    assert code == 201
    for file in (
        "api-crd-apply-unknown-field.json",
        "api-crd-apply-unknown-field-strict.json",
        "api-crd-apply-unknown-field-ignore.json",
    ):
        _, body = replay(cluster, file)
        # the recorded server left the namespace out of the message for custom resources
        assert body["message"].replace("(applied/m;", "(/m;") == recorded(file)["message"]
        assert "reason" not in body
    _, body = replay(cluster, "api-crd-create-unknown-field-strict.json")
    assert body == recorded("api-crd-create-unknown-field-strict.json")
    _, body = replay(cluster, "api-crd-create-unknown-field-warn.json")
    wanted = recorded("api-crd-create-unknown-field-warn.json")
    assert bare(body, ("managedFields",)) == bare(wanted, ("managedFields",))
    fields = body["metadata"]["managedFields"][0]["fieldsV1"]
    assert fields == wanted["metadata"]["managedFields"][0]["fieldsV1"]
    _, body = replay(cluster, "api-crd-invalid-422.json")
    assert body == recorded("api-crd-invalid-422.json")
    code, text = cluster.call("GET", INDEX["api-crd-not-installed-404.txt"]["path"])
    assert (code, text) == (404, "404 page not found\n")


def test_quota_and_access(cluster: SimulatedCluster) -> None:
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "quota"}})
    quota = {"metadata": {"name": "gpu"}, "spec": {"hard": {"requests.nvidia.com/gpu": "2"}}}
    cluster.call("POST", "/api/v1/namespaces/quota/resourcequotas", quota)
    first = dict(INDEX["api-quota-403.json"]["request_body"])
    first = {**first, "metadata": {"name": "a"}}
    first["spec"] = {"containers": [{"name": "m", "image": "x:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    assert cluster.call("POST", "/api/v1/namespaces/quota/pods", first)[0] == 201
    _, body = replay(cluster, "api-quota-403.json")
    assert body == recorded("api-quota-403.json")
    status = wait_for(
        lambda: cluster.call("GET", "/api/v1/namespaces/quota/resourcequotas/gpu")[1].get("status"),
        "the quota's status",
    )
    assert status == {"hard": {"requests.nvidia.com/gpu": "2"}, "used": {"requests.nvidia.com/gpu": "1"}}
    code, body = cluster.call("POST", "/api/v1/namespaces/quota/pods", first, observe=True)
    assert code == 403
    message = 'pods is forbidden: User "{}" cannot create resource "pods" in API group "" in the namespace "quota"'
    assert body["message"] == message.format("system:serviceaccount:aifactory:portal-observe")
    wanted = recorded("api-forbidden-403.json")
    assert {**body, "message": "", "details": {}} == {**wanted, "message": "", "details": {}}
    assert body["details"] == {"kind": "pods"}


def test_wrong_token_and_version(cluster: SimulatedCluster, tmp_path: Any) -> None:
    whole = Client(cluster, tmp_path)
    code, body = cluster.call("GET", "/version")
    assert (code, body) == (200, recorded("api-version.json"))
    answer = whole.api.rest_client.pool_manager.request(
        "GET", whole.cluster.server + "/api/v1/nodes", headers={"Authorization": "Bearer nonsense"}
    )
    assert (answer.status, answer.json()) == (401, recorded("api-unauthorized-401.json"))


PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def pages(client: Client, path: str) -> tuple[int, Any, Any]:
    token = client.authorization
    answer = client.api.rest_client.pool_manager.request(
        "GET", client.cluster.server + path, headers={"Authorization": token, "Accept": PARTIAL}
    )
    return answer.status, answer.json(), answer.headers


def test_paging(cluster: SimulatedCluster, tmp_path: Any) -> None:
    client = Client(cluster, tmp_path)
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "paged"}})
    for number in range(5):
        body = {"metadata": {"name": f"c{number}"}, "data": {"a": "b"}}
        cluster.call("POST", "/api/v1/namespaces/paged/configmaps?fieldManager=unknown", body)
    wait_for(
        lambda: cluster.call("GET", "/api/v1/namespaces/paged/configmaps/kube-root-ca.crt")[0] == 200, "the root CA"
    )
    path = "/api/v1/namespaces/paged/configmaps?limit=2"
    token, first, seen = "", "", []
    for number in (1, 2, 3):
        code, body, _ = pages(client, path + (f"&continue={token}" if token else ""))
        wanted = recorded(f"api-list-page-{number}.json")
        assert code == 200
        assert bare(body, ("continue",)) == bare(wanted, ("continue",))
        assert ("continue" in body["metadata"]) == ("continue" in wanted["metadata"])
        token = body["metadata"].get("continue", "")
        if token:
            assert decode_continue(token)[1] == decode_continue(wanted["metadata"]["continue"])[1]
        first = first or token
        seen += [row["metadata"]["name"] for row in body["items"]]
    assert seen == ["c0", "c1", "c2", "c3", "c4", "kube-root-ca.crt"]

    # the list stays the one of the first page while the rest changes
    cluster.call("DELETE", "/api/v1/namespaces/paged/configmaps/c3")
    _, body, _ = pages(client, f"{path}&continue={first}")
    assert [row["metadata"]["name"] for row in body["items"]] == ["c2", "c3"]

    cluster.sim("POST", "history/compact")
    code, body, _ = pages(client, f"{path}&continue={first}")
    assert (code, body) == (410, recorded("api-list-continue-expired-410.json"))
    code, body, _ = pages(client, f"{path}&continue={body['metadata']['continue']}")
    assert code == 200
    assert [row["metadata"]["name"] for row in body["items"]] == ["c2", "c4"]
    code, body = cluster.call("GET", "/api/v1/namespaces/paged/pods?resourceVersion=1&resourceVersionMatch=Exact")
    assert (code, body) == (410, recorded("api-list-exact-old-410.json"))
    code, body, headers = pages(client, "/api/v1/namespaces/paged/pods?resourceVersion=99999999")
    wanted = recorded("api-list-future-504.json")
    current = body["message"].rsplit(" ", 1)[1]
    assert (code, headers["Retry-After"]) == (504, "1")
    assert body == {**wanted, "message": wanted["message"].replace("540", current)}


def test_namespace_that_ends(cluster: SimulatedCluster) -> None:
    cluster.call("POST", "/api/v1/namespaces?fieldManager=unknown", {"metadata": {"name": "closing"}})
    held = {"metadata": {"name": "held", "finalizers": ["lab.example/keep"]}}
    cluster.call("POST", "/api/v1/namespaces/closing/configmaps", held)
    _, body = replay(cluster, "api-namespace-delete-answer.json")
    assert bare(body) == bare(recorded("api-namespace-delete-answer.json"))

    def settled() -> Any:
        found = cluster.call("GET", "/api/v1/namespaces/closing")[1]
        rows = found.get("status", {}).get("conditions") or []
        return found if rows and "has 1 resource" in rows[3]["message"] else None

    body = wait_for(settled, "the conditions of the namespace")
    wanted = recorded("api-namespace-terminating.json")
    assert bare(body["status"]) == bare(wanted["status"])
    for found in (body, wanted):
        found["metadata"]["managedFields"].sort(key=lambda row: row["manager"])
    assert bare(body["metadata"]) == bare(wanted["metadata"])
    _, body = replay(cluster, "api-namespace-terminating-create-403.json")
    assert body == recorded("api-namespace-terminating-create-403.json")
    _, body = replay(cluster, "api-namespace-terminating-delete-again.json")
    assert bare(body["status"]) == bare(wanted["status"])
    patch = {"metadata": {"finalizers": None}}
    path = "/api/v1/namespaces/closing/configmaps/held"
    assert cluster.call("PATCH", path, patch, media="application/merge-patch+json")[0] == 200
    wait_for(lambda: cluster.call("GET", "/api/v1/namespaces/closing")[0] == 404, "the namespace to be gone")


def test_overload_is_text(cluster: SimulatedCluster, tmp_path: Any) -> None:
    client = Client(cluster, tmp_path)
    client.cluster.sim("POST", "faults", {"verb": "list", "resource": "nodes", "status": 429, "count": 1})
    token = client.authorization
    answer = client.api.rest_client.pool_manager.request(
        "GET", client.cluster.server + "/api/v1/nodes", headers={"Authorization": token}, retries=False
    )
    row = INDEX["api-overload-429-inflight.txt"]
    headers = dict(row["headers"])
    assert answer.status == 429
    assert answer.headers["Retry-After"] == headers["Retry-After"]
    assert answer.headers["Content-Type"] == headers["Content-Type"]
    assert answer.data == (RECORDED / row["file"]).read_bytes()
