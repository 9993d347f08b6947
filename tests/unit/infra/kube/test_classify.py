"""Answers that were not recorded but are known, and what no error may carry."""

import json
from typing import Any

import pytest

from infra.kube import errors
from infra.kube.classify import classify
from infra.kube.errors import Call, clean

CALL = Call("eu-1", "apply", "Pod", "t-acme", "web")


def status(code: int, message: str, reason: str = "", details: dict[str, Any] | None = None) -> errors.KubeError:
    body = {"kind": "Status", "code": code, "message": message, "reason": reason, "details": details or {}}
    return classify(code, {}, json.dumps(body).encode(), CALL)


def test_admission_webhooks_and_pod_security_are_policies_whatever_their_code() -> None:
    webhook = 'admission webhook "validate.kyverno.svc" denied the request: no latest tag'
    for code in (400, 403, 422):
        error = status(code, webhook, "Forbidden")
        assert isinstance(error, errors.PolicyRefused)
        assert error.policy == "validate.kyverno.svc"
        assert "no latest tag" in error.sentence
    error = status(403, 'pods "web" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true')
    assert isinstance(error, errors.PolicyRefused)
    assert error.policy == 'PodSecurity "restricted:latest"'


def test_a_patch_that_names_another_uid_is_stale() -> None:
    """As a real API server answers it: 422, each field told once or more often."""
    message = 'ConfigMap "a" is invalid: metadata.uid: Invalid value: "0": field is immutable'
    cause = {
        "reason": "FieldValueInvalid",
        "field": "metadata.uid",
        "message": 'Invalid value: "0": field is immutable',
    }
    for causes in ([cause], [cause, cause]):
        body = {"kind": "Status", "code": 422, "reason": "Invalid", "message": message, "details": {"causes": causes}}
        assert isinstance(classify(422, {}, json.dumps(body).encode(), CALL), errors.StaleWrite)
    causes = [cause, {"reason": "FieldValueInvalid", "field": "spec.x", "message": "is wrong"}]
    body = {"kind": "Status", "code": 422, "reason": "Invalid", "message": message, "details": {"causes": causes}}
    assert isinstance(classify(422, {}, json.dumps(body).encode(), CALL), errors.Invalid)


def test_a_limit_range_is_not_taken_for_a_missing_right() -> None:
    error = status(403, 'pods "web" is forbidden: maximum cpu usage per Container is 2, but limit is 4', "Forbidden")
    assert type(error) is errors.PolicyRefused
    error = status(403, 'pods "web" is forbidden: failed quota: gpu: must specify limits.cpu for: main', "Forbidden")
    assert isinstance(error, errors.PolicyRefused)
    assert "limits.cpu" in error.sentence


def test_a_path_that_is_no_resource_needs_a_right_too() -> None:
    error = status(403, 'forbidden: User "ada" cannot get path "/metrics"', "Forbidden")
    assert type(error) is errors.Forbidden
    assert "may not get /metrics" in error.sentence


def test_a_webhook_that_does_not_answer_is_tried_again() -> None:
    message = 'Internal error occurred: failed calling webhook "x": context deadline exceeded'
    assert type(status(500, message, "InternalError")) is errors.Retryable


def test_a_precondition_that_does_not_hold_is_a_stale_write() -> None:
    message = (
        'Operation cannot be fulfilled on pods "web": Precondition failed: UID in precondition: a, UID in object '
        "meta: b"
    )
    assert type(status(409, message, "Conflict", {"name": "web", "kind": "pods"})) is errors.StaleWrite


def test_a_kind_that_is_missing_in_a_group_is_no_missing_object() -> None:
    error = status(404, "the server could not find the requested resource", "NotFound")
    assert type(error) is errors.ApiMissing
    assert not isinstance(error, errors.NotFound)


def test_a_conflict_names_the_manager_without_its_operation() -> None:
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl-edit" using v1', "field": ".spec"}
    error = status(409, "Apply failed", "Conflict", {"causes": [cause]})
    assert isinstance(error, errors.ApplyConflict)
    assert error.managers == ("kubectl-edit",)


@pytest.mark.parametrize("value", ["5", "0"])
def test_retry_after_is_read_whatever_its_case(value: str) -> None:
    error = classify(503, {"retry-after": value}, b"later", CALL)
    assert isinstance(error, errors.Retryable)
    assert error.retry_after == float(value)


def test_odd_bodies_are_classified_by_their_code() -> None:
    for body in (
        b"",
        b"[]",
        b"null",
        b'{"kind": "Status"}',
        b"\xff\xfe",
        b'{"kind":"Status","details":{"causes":[1]}}',
    ):
        for code in (400, 401, 403, 404, 409, 410, 422, 429, 500, 503):
            error = classify(code, {}, body, CALL)
            assert error.status == code
            assert "eu-1" in error.sentence


@pytest.mark.parametrize(
    "secret",
    [
        "Bearer abcdefghijklmnop",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln",
        "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----",
        "https://user:hunter2@host/path",
    ],
)
def test_what_looks_like_a_secret_is_taken_out_of_messages(secret: str) -> None:
    error = status(403, f"denied with {secret}, sorry")
    for part in (secret, "abcdefghijklmnop", "eyJhbGci", "MIIB", "hunter2"):
        assert part not in error.sentence + error.message
    assert "[removed]" in error.message


def test_messages_are_one_line_and_cut() -> None:
    assert clean("a\n\tb") == "a b"
    assert len(clean("x" * 5000)) == 600
