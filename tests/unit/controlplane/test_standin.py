"""The stand-in for vCluster writes what a real one was recorded to write; and the pure parts of chart and Flux."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.standin.authn import configuration
from controlplane.standin.chart import render
from controlplane.standin.conditions import changed, condition
from controlplane.standin.events import Events
from controlplane.standin.flux import rolled_out
from controlplane.standin.release import Release, seconds
from controlplane.standin.translate import TOKEN_MARKER, host_name, host_pod
from controlplane.standin.values import ValuesRefused, merged

RECORDED = Path(__file__).resolve().parents[2] / "data" / "recorded"
NAME, NAMESPACE = "infer-77f7f7fbb8-2cb46", "research"


def recorded(what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RECORDED / f"vcluster-{what}.json").read_text())["items"]
    return found


def named(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["metadata"]["name"] == name)


@pytest.fixture
def inner() -> dict[str, Any]:
    return named(recorded("inside-pods"), NAME)


@pytest.fixture
def host() -> dict[str, Any]:
    return named(recorded("host-pods"), f"{NAME}-x-{NAMESPACE}-x-acme")


def translated(pod: dict[str, Any], owner: dict[str, Any], **rest: Any) -> dict[str, Any]:
    labels = {"kubernetes.io/metadata.name": NAMESPACE}
    reference = {key: owner[key] for key in ("name", "uid")}
    return host_pod(pod, labels, "vc-acme", "acme", reference, **{"token_secrets": False, **rest})


def test_a_pod_on_the_host_is_as_it_was_recorded(inner: dict[str, Any], host: dict[str, Any]) -> None:
    made = translated(inner, host["metadata"]["ownerReferences"][0])
    want, got = host["metadata"], made["metadata"]
    assert (got["name"], got["namespace"]) == (want["name"], want["namespace"])
    assert got["labels"] == want["labels"]
    assert got["ownerReferences"] == want["ownerReferences"]
    tokens = [{key for key in each["annotations"] if "/token-" in key} for each in (want, got)]
    assert [len(each) for each in tokens] == [1, 1]
    plain = [{k: v for k, v in each["annotations"].items() if "/token-" not in k} for each in (want, got)]
    assert plain[1] == plain[0]
    assert got["annotations"][tokens[1].pop()] == TOKEN_MARKER
    for key in (
        "automountServiceAccountToken",
        "serviceAccountName",
        "enableServiceLinks",
        "hostname",
        "restartPolicy",
    ):
        assert made["spec"][key] == host["spec"][key], key
    assert made["spec"]["containers"][0]["envFrom"] == host["spec"]["containers"][0]["envFrom"]
    assert made["spec"]["containers"][0]["resources"] == host["spec"]["containers"][0]["resources"]
    (volume,), (seen,) = made["spec"]["volumes"], host["spec"]["volumes"]
    sources = [[next(iter(row)) for row in each["projected"]["sources"]] for each in (volume, seen)]
    assert sources[0] == sources[1]
    assert volume["projected"]["sources"][1:] == [
        {k: _without_versions(v) for k, v in row.items()} for row in seen["projected"]["sources"][1:]
    ]
    assert "nodeName" not in made["spec"]


def _without_versions(value: Any) -> Any:
    """The API server fills in an apiVersion in each fieldRef."""
    if isinstance(value, dict):
        return {k: _without_versions(v) for k, v in value.items() if k != "apiVersion"}
    return [_without_versions(one) for one in value] if isinstance(value, list) else value


def test_no_token_is_written_where_the_values_want_secrets(inner: dict[str, Any]) -> None:
    made = translated(inner, {"name": "acme", "uid": "1"}, token_secrets=True)
    assert TOKEN_MARKER not in json.dumps(made)
    assert not [key for key in made["metadata"]["annotations"] if "/token-" in key]


def test_the_pod_inside_is_not_changed(inner: dict[str, Any]) -> None:
    before = json.dumps(inner)
    translated(inner, {"name": "acme", "uid": "1"})
    assert json.dumps(inner) == before


def test_the_tenants_release_label_is_renamed_and_all_others_are_kept(inner: dict[str, Any]) -> None:
    inner["metadata"]["labels"] |= {"release": "mine", "hami.io/webhook": "ignore"}
    made = translated(inner, {"name": "acme", "uid": "1"})
    assert "release" not in made["metadata"]["labels"]
    assert "mine" in made["metadata"]["labels"].values()
    assert made["metadata"]["labels"]["hami.io/webhook"] == "ignore"


def test_long_names_are_cut_to_what_a_name_may_be() -> None:
    assert host_name("web", "research", "acme") == "web-x-research-x-acme"
    long = host_name("w" * 60, "research", "acme")
    assert len(long) == 63
    assert long.startswith("w" * 52 + "-")
    assert long != host_name("w" * 61, "research", "acme")


class Inner:
    """The tenant's API server, as far as events need it."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.changes: list[dict[str, Any]] = []

    def create(self, obj: dict[str, Any]) -> None:
        self.made.append(obj)

    def merge(self, path: str, patch: dict[str, Any]) -> None:
        self.changes.append(patch)


def test_a_refusal_is_an_event_of_the_recorded_form() -> None:
    seen = next(one for one in recorded("inside-events") if "exceeded quota" in one["message"])
    pod = {"metadata": seen["involvedObject"]}
    inner = Inner()
    events = Events(inner)  # type: ignore[arg-type]
    for _ in range(3):
        events.sync_error(pod, seen["message"])
    (made,) = inner.made
    for key in ("type", "reason", "action", "reportingComponent", "message"):
        assert made[key] == seen[key], key
    assert set(made["involvedObject"]) == set(seen["involvedObject"])
    assert [row["series"]["count"] for row in inner.changes] == [2, 3]
    assert set(inner.changes[0]["series"]) == set(seen["series"])


def test_quota_values_merge_with_the_charts_defaults_and_null_takes_one_away() -> None:
    values = merged(
        {
            "policies": {
                "resourceQuota": {"enabled": True, "quota": {"requests.nvidia.com/gpu": 8, "count/secrets": None}}
            }
        }
    )
    objects = {(one["kind"], one["metadata"]["name"]): one for one in render("acme", "vc-acme", "0.35.3", values)}
    hard = objects["ResourceQuota", "vc-acme"]["spec"]["hard"]
    assert (hard["requests.nvidia.com/gpu"], hard["count/pods"]) == ("8", "20")
    assert "count/secrets" not in hard
    assert ("LimitRange", "vc-acme") in objects, "either turns on both"
    none = render("acme", "vc-acme", "0.35.3", merged({}))
    assert {one["kind"] for one in none} == {
        "Secret", "ServiceAccount", "Role", "RoleBinding", "Service", "StatefulSet",
    }  # fmt: skip


def test_an_unknown_key_is_refused_as_helm_words_it() -> None:
    with pytest.raises(ValuesRefused, match="Additional property vcluster is not allowed"):
        merged({"vcluster": {}, "telemetry": {"enabled": False}})


def test_changed_values_roll_the_control_plane() -> None:
    def template(values: dict[str, Any]) -> Any:
        objects = render("acme", "vc-acme", "0.35.3", merged(values))
        return next(one for one in objects if one["kind"] == "StatefulSet")["spec"]["template"]["metadata"]

    assert template({}) == template({})
    assert template({}) != template({"telemetry": {"enabled": False}})


@pytest.mark.parametrize(("issuer", "believed"), [("https://kc.example/realms/a", True), ("http://kc.example", False)])
def test_sign_in_flags_become_an_authentication_configuration(issuer: str, believed: bool) -> None:
    flags = [
        f"--oidc-issuer-url={issuer}", "--oidc-client-id=vc-acme", "--oidc-username-claim=sub",
        "--oidc-username-prefix=oidc:", "--oidc-groups-claim=groups", "--oidc-groups-prefix=oidc:",
    ]  # fmt: skip
    values = merged({"controlPlane": {"distro": {"k8s": {"apiServer": {"extraArgs": flags}}}}})
    text = configuration(values, "vc-acme", None)  # type: ignore[arg-type]
    assert (text is not None) == believed, "API servers take https issuers only"
    if text is not None:
        (row,) = yaml.safe_load(text)["jwt"]
        assert row["issuer"] == {"url": issuer, "audiences": ["vc-acme"]}
        assert row["claimMappings"]["groups"] == {"claim": "groups", "prefix": "oidc:"}


def test_the_time_of_a_condition_changes_with_its_status_only() -> None:
    first = changed([], 1, [condition("Ready", "False", "ArtifactFailed", "no such host")])
    first[0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    again = changed(first, 2, [condition("Ready", "False", "InstallFailed", "other")])
    assert (again[0]["lastTransitionTime"], again[0]["observedGeneration"]) == ("2026-01-01T00:00:00Z", 2)
    ready = changed(again, 2, [condition("Ready", "True", "InstallSucceeded", "")])
    assert ready[0]["lastTransitionTime"] != "2026-01-01T00:00:00Z"


def test_a_release_is_named_as_helm_controller_names_it() -> None:
    def release(**spec: Any) -> Release:
        return Release({"metadata": {"name": "acme", "namespace": "flux"}, "spec": spec})

    assert (release().name, release().namespace) == ("acme", "flux")
    assert release(targetNamespace="vc-acme").name == "vc-acme-acme"
    assert release(targetNamespace="vc-acme", releaseName="acme").name == "acme"
    assert (release(timeout="1m30s").timeout, release().timeout) == (90.0, 300.0)
    assert seconds("nonsense") == 0


def test_a_set_is_rolled_out_when_its_controller_has_seen_the_newest_wish() -> None:
    found: dict[str, Any] = {
        "metadata": {"generation": 2},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, "readyReplicas": 1, "updatedReplicas": 1},
    }
    assert not rolled_out(found)
    found["status"]["observedGeneration"] = 2
    assert rolled_out(found)
    found["status"]["readyReplicas"] = 0
    assert not rolled_out(found)
