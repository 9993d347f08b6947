"""The probe before a cluster is connected: each right is asked for, and each missing one is named."""

import json

import pytest

from infra.kube.access import NOT_NEEDED, OPTIONAL, Review, reviews, whys
from infra.kube.kubeconfig import Credentials
from infra.rights import RightsReport, kubectl, rights_report
from infra.services.preflight import probe
from portal.kernel.problems import Invalid
from tests.unit.infra.kube.recorded import Canned, Replay, canned, serve

JSON = (("Content-Type", "application/json"),)
UID = "a9b1ba42-c7c4-43c3-9e46-1a3664f62e41"


def asked(mode: str) -> list[Review]:
    """Everything that is asked for in a mode, in its order."""
    more = [*whys(OPTIONAL), *(whys(NOT_NEEDED) if mode == "observe" else ())]
    return list(dict.fromkeys([*reviews(mode), *more]))


def _answers(mode: str, *lacking: str, excess: tuple[str, ...] = (), subject: str = "") -> list[Canned]:
    unwanted = {str(review) for review in whys(NOT_NEEDED)} if mode == "observe" else set()
    allowed = [
        str(review) in excess if str(review) in unwanted else str(review) not in lacking for review in asked(mode)
    ]
    answers = [
        canned("api-version.json"),
        canned("api-namespace-terminating.json"),
        *(Canned(201, JSON, json.dumps({"status": {"allowed": each}}).encode()) for each in allowed),
    ]
    if subject:
        answers.append(Canned(201, JSON, json.dumps({"status": {"userInfo": {"username": subject}}}).encode()))
    return answers


@pytest.mark.parametrize("mode", ["observe", "manage"])
def test_every_right_of_the_mode_is_asked_for(mode: str) -> None:
    with serve(Replay(*_answers(mode))) as replay:
        facts = probe(Credentials(server=replay.url), slug="eu-1", mode=mode)
    assert (facts.version, facts.identity) == ("v1.35.4", UID)
    assert facts.rights is not None
    assert facts.rights.complete
    assert not facts.rights.lacking
    assert not facts.rights.excess
    bodies = [json.loads(body)["spec"]["resourceAttributes"] for method, *_, body in replay.seen if method == "POST"]
    assert bodies == [review.attributes() for review in asked(mode)]


def test_missing_rights_are_named_one_by_one() -> None:
    answers = _answers("manage", "patch deployments.apps", "get pods/log", subject="system:serviceaccount:ops:reader")
    with serve(Replay(*answers)) as replay, pytest.raises(Invalid) as caught:
        probe(Credentials(server=replay.url), slug="eu-1", mode="manage")
    detail = caught.value.errors[0]["detail"]
    assert caught.value.errors[0]["pointer"] == "/kubeconfig"
    assert "lack these rights on cluster eu-1: patch deployments.apps, get pods/log." in detail
    assert "deploy/clusterroles/manage.yaml" in detail
    report = RightsReport.load(caught.value.extra["rights"])
    assert report is not None
    assert [(str(right), right.need) for right in report.missing] == [
        ("patch deployments.apps", "required"), ("get pods/log", "required"),
    ]  # fmt: skip
    assert report.missing[0].command == (
        "kubectl create clusterrole aifactory-manage-patch-deployments --verb=patch --resource=deployments.apps && "
        "kubectl create clusterrolebinding aifactory-manage-patch-deployments "
        "--clusterrole=aifactory-manage-patch-deployments --serviceaccount=ops:reader"
    )


def test_optional_rights_may_lack_and_what_could_write_is_told() -> None:
    answers = _answers("observe", "get jobs.batch", excess=("delete pods", "get secrets"), subject="jane")
    with serve(Replay(*answers)) as replay:
        report = probe(Credentials(server=replay.url), slug="eu-1", mode="observe").rights
    assert report is not None
    assert [str(right) for right in report.lacking] == ["get jobs.batch"]
    assert report.lacking[0].command.endswith("--user=jane")
    assert [str(right) for right in report.excess] == ["delete pods", "get secrets"]
    assert report.could_write
    assert not any(right.command for right in report.excess), "nobody is told how to get what is not needed"


def test_reading_secrets_is_more_than_needed_but_no_writing() -> None:
    report = rights_report("observe", lambda review: review.verb in ("get", "list", "watch"), lambda: "")
    assert report.complete
    assert report.excess
    assert not report.could_write


def test_a_report_is_stored_and_read_back() -> None:
    report = rights_report("observe", lambda review: review.resource != "nodes", lambda: "system:serviceaccount:a:b")
    assert RightsReport.load(json.loads(json.dumps(report.dump()))) == report
    assert RightsReport.load({}) is None


def test_a_right_in_one_namespace_gets_a_role_there() -> None:
    line = kubectl(Review("get", "", "services", "proxy", "monitoring", "prometheus:9090"), "observe", "o'neill")
    assert line.startswith(
        "kubectl create role aifactory-observe-get-services-proxy-monitoring -n monitoring --verb=get "
        "--resource=services/proxy --resource-name=prometheus:9090 && kubectl create rolebinding "
    )
    assert line.endswith("""--user='o'"'"'neill'"""), "a name can't break out of the line"


def test_credentials_that_are_not_accepted_and_clusters_that_do_not_answer() -> None:
    with serve(Replay(canned("api-unauthorized-401.json"))) as replay, pytest.raises(Invalid, match="rotate"):
        probe(Credentials(server=replay.url), slug="eu-1", mode="observe")
    with pytest.raises(Invalid, match="no connection could be made"):
        probe(Credentials(server=replay.url), slug="eu-1", mode="observe")
