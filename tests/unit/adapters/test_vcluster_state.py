"""What runs, read from objects that a real vCluster left (tests/data/recorded), and from made-up ones at the edges."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.adapters.oidc import SignIn, authentication_configuration, member_kubeconfig
from infra.adapters.vcluster_state import (
    SecretRefused,
    cluster_role,
    control_plane_trouble,
    read_control_plane,
    read_credentials,
    refused_pods,
)
from infra.kube.kubeconfig import KubeconfigRefused, parse_kubeconfig
from infra.pod_reading import dump_evidence, read_pod
from portal.kernel.clock import utcnow
from tests.support.pki import Authority

RECORDED = Path(__file__).parents[2] / "data" / "recorded"


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"vcluster-{name}.json").read_text())


# --- what the host refuses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pods", ["inside-pods", "inside-pods-after-delete"])
def test_the_pods_that_wait_are_over_quota_and_the_harmless_events_say_nothing(pods: str):
    listed = recorded(pods)["items"]
    waiting = sorted(pod["metadata"]["name"] for pod in listed if pod["status"]["phase"] == "Pending")
    found = refused_pods(listed, recorded("inside-events")["items"])
    assert sorted(one.name for one in found) == waiting
    assert len(found) == 2
    for one in found:
        assert one.namespace == "research"
        assert one.over_quota
        assert one.sentence == "Over your quota on this cluster: 4 of 4 nvidia.com/gpu, 1 more asked for."


def test_only_the_newest_word_about_a_pod_counts():
    pod = {"metadata": {"namespace": "a", "name": "p"}, "spec": {}, "status": {"phase": "Pending"}}

    def event(message: str, when: str) -> dict[str, Any]:
        about = {"kind": "Pod", "namespace": "a", "name": "p"}
        return {"involvedObject": about, "reason": "SyncError", "message": message, "lastTimestamp": when}

    policy = event("pods is forbidden: hostPath is not allowed", "2026-11-30T00:00:02Z")
    race = event("the object has been modified; try again", "2026-11-30T00:00:03Z")
    (found,) = refused_pods([pod], [race, policy, event("an older one", "2026-11-30T00:00:01Z")])
    assert (found.over_quota, found.sentence) == (
        False, "The host cluster refuses it: pods is forbidden: hostPath is not allowed",
    )  # fmt: skip
    pod["spec"] = {"nodeName": "n"}
    assert refused_pods([pod], [policy]) == []


# --- the way in --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("tenant")


def secret(authority: Authority, **changes: Any) -> dict[str, Any]:
    """As the recorded one, with a real authority and a token in the place of what was taken out."""
    config = copy.deepcopy(recorded("tenant-kubeconfig"))
    cluster = config["clusters"][0]["cluster"]
    cluster["certificate-authority-data"] = base64.b64encode(authority.pem.encode()).decode()
    config["users"][0]["user"] = {"token": "inner-token"}
    for key, value in changes.items():
        cluster.pop(key) if value is None else cluster.update({key: value})
    return {"data": {"config": base64.b64encode(yaml.safe_dump(config).encode()).decode()}}


SERVER = "https://acme.tenants.example.invalid"


def test_the_way_in_is_taken_where_server_and_authority_are_right(authority: Authority):
    found = read_credentials(secret(authority), endpoint=SERVER, now=utcnow())
    assert (found.server, found.ca_data) == (SERVER, authority.pem)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"server": "https://localhost:8443"}, "EndpointDiffers"),
        ({"server": "http://acme.tenants.example.invalid"}, "KubeconfigRefused"),
        ({"certificate-authority-data": None}, "NoAuthority"),
        ({"insecure-skip-tls-verify": True}, "KubeconfigRefused"),
    ],
)
def test_another_server_or_one_that_can_not_be_known_is_refused(
    authority: Authority, changes: dict[str, Any], reason: str
):
    with pytest.raises(SecretRefused) as refused:
        read_credentials(secret(authority, **changes), endpoint=SERVER, now=utcnow())
    assert refused.value.reason == reason
    assert "inner-token" not in str(refused.value)


@pytest.mark.parametrize("data", [None, {}, {"config": "REDACTED"}, {"config": "////"}, {"config": ""}])
def test_a_secret_without_a_kubeconfig_is_told_as_such(data: Any):
    with pytest.raises(SecretRefused):
        read_credentials({"data": data}, endpoint=SERVER, now=utcnow())


# --- the control plane -------------------------------------------------------------------------------------------


def test_a_stateful_set_is_ready_when_its_controller_has_seen_the_newest_wish():
    live: dict[str, Any] = {
        "metadata": {"generation": 2, "annotations": {"loft.sh/paused": "true"}},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "syncer", "image": "i:1"}]}}},
        "status": {"observedGeneration": 1, "readyReplicas": 1},
    }
    found = read_control_plane(live)
    assert (found.is_ready, found.paused, found.image) == (False, True, "i:1")
    live["status"]["observedGeneration"] = 2
    assert read_control_plane(live).is_ready
    live["spec"]["replicas"] = live["status"]["readyReplicas"] = 0
    assert not read_control_plane(live).is_ready


def test_why_a_control_plane_does_not_start():
    waiting = {"name": "syncer", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
    pod = {"status": {"containerStatuses": [waiting]}}
    assert control_plane_trouble([pod], []) == ("Container syncer of the control plane: ImagePullBackOff. not found")
    quota = {
        "type": "Warning",
        "reason": "FailedCreate",
        "message": "exceeded quota",
        "lastTimestamp": "2026-11-30T00:00:00Z",
    }
    assert control_plane_trouble([], [quota]) == "FailedCreate on the host: exceeded quota"
    assert control_plane_trouble([], recorded("host-events")["items"]) == ""


def test_the_cluster_role_is_cut_as_the_chart_cuts_it():
    assert cluster_role("ml-team", "vc-ml-team") == "vc-ml-team-v-vc-ml-team"
    assert len(cluster_role("a" * 40, "vc-" + "a" * 40)) <= 63


# --- metering: host pods -----------------------------------------------------------------------------------------


def test_host_pods_keep_their_inner_names_and_never_a_token():
    pods = recorded("host-pods")["items"]
    tokens = [key for pod in pods for key in pod["metadata"]["annotations"] if "/token-" in key]
    assert len(tokens) == 4  # they are there to be dropped
    kept = [read_pod(pod, seen_at=utcnow()) for pod in pods]
    inner = sorted(
        (values["vcluster.loft.sh/object-namespace"], values["vcluster.loft.sh/object-name"])
        for one in kept
        if (values := dict(one.annotations)).get("vcluster.loft.sh/object-name")
    )
    assert len(inner) == 4
    assert {namespace for namespace, _ in inner} == {"research"}
    stored = json.dumps([dump_evidence(one) for one in kept])
    assert "token-" not in stored
    assert "REDACTED" not in stored
    assert all(dict(one.labels)["vcluster.loft.sh/managed-by"] == "acme" for one in kept if one.name.count("-x-"))


# --- signing in --------------------------------------------------------------------------------------------------

SIGN_IN = SignIn("https://sso.example/realms/ai-factory", "vc-ml-team", "-----BEGIN CERTIFICATE-----\nx\n")


def test_one_audience_a_tenant_and_no_name_of_the_system():
    config = yaml.safe_load(authentication_configuration(SIGN_IN))
    (jwt,) = config["jwt"]
    assert jwt["issuer"]["audiences"] == ["vc-ml-team"]
    assert jwt["claimMappings"]["username"] == {"claim": "sub", "prefix": "oidc:"}
    assert jwt["claimMappings"]["groups"] == {"claim": "groups", "prefix": "oidc:"}
    assert all("system:" in rule["expression"] for rule in jwt["userValidationRules"])
    assert "certificateAuthority" not in authentication_configuration(SignIn("https://x", "vc-a"))


def test_the_kubeconfig_for_people_holds_no_secret():
    text = member_kubeconfig(context="ml-team-east", server=SERVER, ca_pem="PEM", sign_in=SIGN_IN)
    config = yaml.safe_load(text)
    (cluster,) = [one["cluster"] for one in config["clusters"]]
    assert cluster == {"server": SERVER, "certificate-authority-data": base64.b64encode(b"PEM").decode()}
    (user,) = [one["user"] for one in config["users"]]
    assert set(user) == {"exec"}
    assert "--oidc-client-id=vc-ml-team" in user["exec"]["args"]
    assert "--oidc-issuer-url=https://sso.example/realms/ai-factory" in user["exec"]["args"]
    assert not any(word in text for word in ("token:", "client-key", "insecure", "client-secret"))
    with pytest.raises(KubeconfigRefused, match="it runs a program"):  # so nobody can connect with it
        parse_kubeconfig(text.replace(base64.b64encode(b"PEM").decode(), ""), now=utcnow())
