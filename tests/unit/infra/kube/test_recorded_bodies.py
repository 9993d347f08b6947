"""Every recorded body of the API server is handled in its class, through the real transport."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from infra.kube import errors
from infra.kube.client import KubeClient
from infra.kube.errors import Call, KubeError
from infra.kube.kubeconfig import Credentials
from infra.kube.transport import Request
from infra.kube.watching import EventType
from tests.unit.infra.kube.recorded import INDEX, RECORDED, Replay, canned, serve


@dataclass(frozen=True)
class Expected:
    """The class of an answer, its values, and words that its sentence must have."""

    cls: type[KubeError]
    values: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()


WEB = (".spec.replicas", '.spec.template.spec.containers[name="main"].image')
UNDECLARED = Expected(errors.SchemaRefused, {"path": ".spec.colour", "status": 500}, (".spec.colour", "CRD"))
GPUS = "requests.nvidia.com/gpu"

# Each file that carries an error; the rest must be taken as a success.
ERRORS: dict[str, Expected] = {
    "api-already-exists-409.json": Expected(errors.AlreadyExists, {}, ("already",)),
    "api-apply-conflict-409.json": Expected(
        errors.ApplyConflict, {"managers": ("portal",), "fields": WEB}, ("portal owns", ".spec.replicas")
    ),
    "api-apply-conflict-back-409.json": Expected(
        errors.ApplyConflict, {"managers": ("gitops",), "fields": WEB}, ("gitops owns", WEB[1])
    ),
    "api-put-stale-409.json": Expected(errors.StaleWrite),
    "api-crd-apply-unknown-field.json": UNDECLARED,
    "api-crd-apply-unknown-field-strict.json": UNDECLARED,
    "api-crd-apply-unknown-field-ignore.json": UNDECLARED,
    "api-crd-create-unknown-field-strict.json": Expected(errors.Invalid, {"status": 400}, ("spec.colour",)),
    "api-crd-invalid-422.json": Expected(errors.Invalid, {"status": 422}, ("spec.gpus", "99")),
    "api-crd-not-installed-404.txt": Expected(errors.ApiMissing, {"status": 404}, ("no API", "CRD")),
    "api-eviction-429.json": Expected(
        errors.EvictionBlocked, {"retry_after": None}, ("needs 2 healthy pods", "PodDisruptionBudget")
    ),
    "api-forbidden-403.json": Expected(errors.Forbidden, {}, ("may not list nodes", "ClusterRole")),
    "api-invalid-422.json": Expected(errors.Invalid, {"status": 422}, ("metadata.name",)),
    "api-list-continue-expired-410.json": Expected(errors.Gone, {"status": 410}),
    "api-list-exact-old-410.json": Expected(errors.Gone, {"continue_token": ""}),
    "api-list-future-504.json": Expected(errors.Retryable, {"retry_after": 1.0, "status": 504}),
    "api-namespace-terminating-create-403.json": Expected(
        errors.NamespaceTerminating, {}, ("closing", "being deleted")
    ),
    "api-not-found-404.json": Expected(errors.NotFound, {"status": 404}, ("pods none",)),
    "api-overload-429-fairness.txt": Expected(errors.Retryable, {"retry_after": 1.0}, ("overloaded",)),
    "api-overload-429-inflight.txt": Expected(errors.Retryable, {"retry_after": 1.0}, ("overloaded",)),
    "api-policy-refused-422-expression.json": Expected(
        errors.PolicyRefused, {"policy": "gpu-pods"}, ("at most 8 GPUs a container",)
    ),
    "api-policy-refused-422-message.json": Expected(
        errors.PolicyRefused, {"policy": "gpu-pods"}, ("needs the label lab.example/project",)
    ),
    "api-policy-refused-dry-run.json": Expected(errors.PolicyRefused, {"policy": "gpu-pods"}),
    "api-quota-403.json": Expected(
        errors.QuotaRefused,
        {"quota": "gpu", "requested": {GPUS: "4"}, "used": {GPUS: "1"}, "limited": {GPUS: "2"}},
        ("asked 4", "used 1", "limit 2"),
    ),
    "api-unauthorized-401.json": Expected(errors.Unauthorized, {}, ("rotate",)),
}
RETRYABLE = (
    errors.StaleWrite, errors.EvictionBlocked, errors.Gone, errors.NamespaceTerminating, errors.QuotaRefused,
    errors.Retryable,
)  # fmt: skip
STREAMS = sorted(file for file in INDEX if file.endswith(".jsonl"))
SUCCESSES = sorted(set(INDEX) - set(ERRORS) - set(STREAMS))


def _client(replay: Replay, name: str = "eu-1") -> KubeClient:
    return KubeClient(Credentials(server=replay.url, token="s3cret-bearer-token"), name=name)


def _request(entry: dict[str, Any], call: Call) -> Request:
    return Request(entry["method"], entry["path"], call, body=entry.get("request_body"))


def test_the_table_names_every_recorded_file() -> None:
    on_disk = {path.name for path in RECORDED.glob("api-*")} - {"api-index.json"}
    assert on_disk == set(INDEX)
    assert set(ERRORS) <= set(INDEX)
    assert all(INDEX[file]["status"] >= 400 for file in ERRORS)
    assert all(INDEX[file]["status"] < 300 for file in SUCCESSES + STREAMS)


@pytest.mark.parametrize("file", sorted(ERRORS))
def test_an_error_is_of_its_class(file: str) -> None:
    expected = ERRORS[file]
    call = Call("eu-1", "apply", "Model", "closing", "m")
    with serve(Replay(canned(file))) as replay, pytest.raises(KubeError) as caught:
        _client(replay)._transport.send(_request(INDEX[file], call))
    error = caught.value
    assert type(error) is expected.cls
    assert isinstance(error, errors.Retryable) == issubclass(expected.cls, RETRYABLE)
    assert isinstance(error, errors.Permanent) != isinstance(error, errors.Retryable)
    for name, value in expected.values.items():
        assert getattr(error, name) == value, name
    for words in ("eu-1", *expected.words):
        assert words in error.sentence
    assert str(error) == error.sentence
    assert "s3cret" not in f"{error!r} {error.sentence} {error.message} {vars(error)}"


@pytest.mark.parametrize("file", SUCCESSES)
def test_a_success_is_the_body(file: str) -> None:
    with serve(Replay(canned(file))) as replay:
        answer = _client(replay)._transport.send(_request(INDEX[file], Call("eu-1", "get")))
    assert answer.status == INDEX[file]["status"]
    assert answer.body == canned(file).body
    assert answer.complete


def test_a_watch_brings_typed_events_although_the_network_cuts_its_lines() -> None:
    with serve(Replay(canned("api-watch-pods.jsonl"))) as replay:
        events = list(_client(replay).watch("v1", "Pod", namespace="watched", resource_version="413"))
    lines = [json.loads(line) for line in canned("api-watch-pods.jsonl").body.splitlines()]
    assert [event.type.value for event in events] == [line["type"] for line in lines]
    assert {event.type for event in events} == set(EventType)
    assert [event.object for event in events] == [line["object"] for line in lines]
    bookmarks = [event for event in events if event.type is EventType.BOOKMARK]
    assert all(event.resource_version.isdecimal() and not event.initial_events_end for event in bookmarks)
    [(_, path, _, _)] = replay.seen
    assert "watch=true" in path
    assert "allowWatchBookmarks=true" in path
    assert "resourceVersion=413" in path


def test_a_watch_that_begins_with_the_present_says_where_that_ends() -> None:
    with serve(Replay(canned("api-watch-pods-initial-events.jsonl"))) as replay:
        events = list(_client(replay).watch("v1", "Pod", namespace="watched", resource_version="", initial_events=True))
    ends = [event.initial_events_end for event in events]
    assert ends.count(True) == 1
    assert [event.type for event in events[: ends.index(True)]] == [EventType.ADDED, EventType.ADDED]
    assert "sendInitialEvents=true" in replay.seen[0][1]


def test_a_watch_for_metadata_only() -> None:
    with serve(Replay(canned("api-watch-metadata-only.jsonl"))) as replay:
        events = list(_client(replay).watch("v1", "Pod", resource_version="559", metadata_only=True))
    assert events
    assert {event.object["kind"] for event in events} == {"PartialObjectMetadata"}


def test_a_watch_from_an_old_version_is_gone_although_the_answer_is_a_200() -> None:
    with serve(Replay(canned("api-watch-too-old-410.jsonl"))) as replay, pytest.raises(errors.Gone) as caught:
        list(_client(replay).watch("v1", "Pod", resource_version="1"))
    assert caught.value.status == 410


def test_the_streams_are_all_tested() -> None:
    assert STREAMS == [
        "api-watch-metadata-only.jsonl",
        "api-watch-pods-initial-events.jsonl",
        "api-watch-pods.jsonl",
        "api-watch-too-old-410.jsonl",
    ]


def test_pages_of_a_list() -> None:
    files = ("api-list-page-1.json", "api-list-page-2.json", "api-list-page-3.json")
    with serve(Replay(*map(canned, files))) as replay:
        pages = list(_client(replay).list_pages("v1", "ConfigMap", namespace="paged", limit=2, metadata_only=True))
    names = [item["metadata"]["name"] for page in pages for item in page.items]
    assert len(names) == len(set(names)) == 6
    assert len({page.resource_version for page in pages}) == 1
    assert not any(page.restarted for page in pages)
    tokens = [path.partition("continue=")[2].partition("&")[0] for _, path, _, _ in replay.seen]
    assert tokens[0] == ""
    assert len(set(tokens)) == 3


def test_a_list_whose_version_is_compacted_away_begins_anew() -> None:
    files = (
        "api-list-page-1.json",
        "api-list-continue-expired-410.json",
        "api-list-page-1.json",
        "api-list-page-2.json",
        "api-list-page-3.json",
    )
    with serve(Replay(*map(canned, files))) as replay:
        listed = _client(replay).list_all("v1", "ConfigMap", namespace="paged", limit=2)
    names = [item["metadata"]["name"] for item in listed.items]
    assert len(names) == len(set(names)) == 6
    assert "continue=" not in replay.seen[2][1]


def test_a_list_that_is_compacted_away_again_and_again_is_given_up() -> None:
    files = ["api-list-page-1.json", "api-list-continue-expired-410.json"] * 4
    with serve(Replay(*map(canned, files))) as replay, pytest.raises(errors.Gone) as caught:
        _client(replay).list_all("v1", "ConfigMap", limit=2)
    assert caught.value.continue_token == json.loads(canned(files[1]).body)["metadata"]["continue"]


def test_an_apply_sends_what_server_side_apply_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.kube.client.require_writable", lambda cluster_id, call: None)
    manifest = INDEX["api-apply-created.json"]["request_body"]
    manifest = {**manifest, "metadata": {**manifest["metadata"], "namespace": "applied"}}
    with serve(Replay(canned("api-apply-created.json"), canned("api-apply-same-again.json"))) as replay:
        client = _client(replay)
        first = client.apply(manifest)
        version = first.object["metadata"]["resourceVersion"]
        second = client.apply(manifest, known_resource_version=version, force=True, dry_run=True)
    assert (first.created, first.changed) == (True, True)
    assert (second.created, second.changed) == (False, False)
    (method, path, headers, body), (_, forced, _, _) = replay.seen
    assert (method, headers["Content-Type"]) == ("PATCH", "application/apply-patch+yaml")
    assert path.startswith("/apis/apps/v1/namespaces/applied/deployments/web?fieldManager=aifactory-portal&")
    assert "force" not in path
    assert "force=true" in forced
    assert "dryRun=All" in forced
    assert json.loads(body) == manifest


@pytest.mark.parametrize("key", ["resourceVersion", "managedFields", "uid"])
def test_an_apply_never_sends_what_the_server_owns(key: str) -> None:
    client = KubeClient(Credentials(server="http://127.0.0.1:9"), name="eu-1")
    with pytest.raises(ValueError, match=f"metadata.{key}"):
        client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", key: "1"}})


def test_the_version() -> None:
    with serve(Replay(canned("api-version.json"))) as replay:
        assert _client(replay).version()["gitVersion"] == "v1.35.4"
    assert replay.seen[0][2]["Authorization"] == "Bearer s3cret-bearer-token"
