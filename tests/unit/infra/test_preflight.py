"""The probe before a cluster is connected: each right is asked for, and each missing one is named."""

import json

import pytest

from infra.kube.access import reviews
from infra.kube.kubeconfig import Credentials
from infra.services.preflight import ClusterFacts, probe
from portal.kernel.problems import Invalid
from tests.unit.infra.kube.recorded import Canned, Replay, canned, serve

JSON = (("Content-Type", "application/json"),)
UID = "a9b1ba42-c7c4-43c3-9e46-1a3664f62e41"


def _answers(mode: str, *lacking: str) -> list[Canned]:
    allowed = [str(review) not in lacking for review in reviews(mode)]
    return [
        canned("api-version.json"),
        canned("api-namespace-terminating.json"),
        *(Canned(201, JSON, json.dumps({"status": {"allowed": each}}).encode()) for each in allowed),
    ]


@pytest.mark.parametrize("mode", ["observe", "manage"])
def test_every_right_of_the_mode_is_asked_for(mode: str) -> None:
    with serve(Replay(*_answers(mode))) as replay:
        assert probe(Credentials(server=replay.url), slug="eu-1", mode=mode) == ClusterFacts("v1.35.4", UID)
    asked = [json.loads(body)["spec"]["resourceAttributes"] for method, *_, body in replay.seen if method == "POST"]
    assert asked == [review.attributes() for review in reviews(mode)]


def test_missing_rights_are_named_one_by_one() -> None:
    answers = _answers("manage", "patch deployments.apps", "get pods/log")
    with serve(Replay(*answers)) as replay, pytest.raises(Invalid) as caught:
        probe(Credentials(server=replay.url), slug="eu-1", mode="manage")
    detail = caught.value.errors[0]["detail"]
    assert caught.value.errors[0]["pointer"] == "/kubeconfig"
    assert "lack these rights on cluster eu-1: patch deployments.apps, get pods/log." in detail
    assert "deploy/clusterroles/manage.yaml" in detail


def test_credentials_that_are_not_accepted_and_clusters_that_do_not_answer() -> None:
    with serve(Replay(canned("api-unauthorized-401.json"))) as replay, pytest.raises(Invalid, match="rotate"):
        probe(Credentials(server=replay.url), slug="eu-1", mode="observe")
    with pytest.raises(Invalid, match="no connection could be made"):
        probe(Credentials(server=replay.url), slug="eu-1", mode="observe")
