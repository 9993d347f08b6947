"""Credentials that are renewed: when, with what right, and never by ones that the cluster does not take."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.credentials import LONGEST_WARNING, renew_at, service_account_token, token_issued_at, warn_from
from infra.kube.access import Review
from infra.kube.errors import Call, Forbidden, Unauthorized
from infra.kube.kubeconfig import Credentials
from infra.models import Cluster
from infra.reconcilers import renewal
from infra.reconcilers.renewal import CREDENTIALS_RENEWED, renew
from infra.services.renewal import renewal_store
from portal.kernel import crypto
from portal.kernel.conditions import Condition, set_condition
from portal.kernel.models import AuditEvent
from portal.kernel.scoping import system_scope
from tests.unit.infra.kube.test_guard import make_cluster

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ISSUED = NOW - 20 * DAY
ENDS = ISSUED + 30 * DAY
ENDLESS = base64.urlsafe_b64encode(b'{"sub":"system:serviceaccount:a:b","iat":true,"exp":1e400}').decode()
AUDIENCES = ["https://kubernetes.default.svc"]


def jwt(issued: datetime, ends: datetime, *, subject: str = "system:serviceaccount:aifactory:portal") -> str:
    claims = {"sub": subject, "iat": int(issued.timestamp()), "exp": int(ends.timestamp()), "aud": AUDIENCES}
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJSUzI1NiJ9.{body}.c2ln"


@given(st.integers(0, 10 * 365), st.integers(600, 400 * 86400))
def test_renewed_before_anybody_is_warned(days: int, seconds: int) -> None:
    issued = NOW - timedelta(days=days)
    ends = issued + timedelta(seconds=seconds)
    due, warned = renew_at(issued, ends), warn_from(issued, ends)
    assert due is not None
    assert issued < due < warned < ends
    assert ends - warned <= LONGEST_WARNING


def test_without_a_begin_the_last_fourteen_days_are_warned_of() -> None:
    assert renew_at(None, ENDS) is None
    assert warn_from(None, ENDS) == ENDS - LONGEST_WARNING


@pytest.mark.parametrize(
    "text",
    [
        None, "", "opaque", "a.b.c", jwt(ISSUED, ENDS, subject="ml-owner"), jwt(ENDS, ISSUED),
        jwt(ISSUED, ENDS, subject="system:serviceaccount:aifactory"), "e30.bnVsbA.x", "e30.W10.x",
        f"e30.{ENDLESS}.x",
    ],
)  # fmt: skip
def test_what_is_no_token_of_a_service_account_that_ends(text: str | None) -> None:
    assert service_account_token(text) is None


def test_what_a_token_says_of_itself() -> None:
    token = service_account_token(jwt(ISSUED, ENDS))
    assert token is not None
    assert (token.namespace, token.name, token.life, token.audiences) == (
        "aifactory", "portal", 30 * DAY, tuple(AUDIENCES),
    )  # fmt: skip
    assert token_issued_at(jwt(ISSUED, ENDS)) == ISSUED


class Api:
    """The cluster's answers, in the place of a client; also of the one that tries the new token."""

    def __init__(self, *, may: bool = True, token: str = "", accepts: bool = True) -> None:
        self.may, self.token, self.accepts = may, token, accepts
        self.asked: list[Any] = []

    def access_review(self, review: Review) -> bool:
        self.asked.append(str(review))
        return self.may

    def request_token(self, namespace: str, name: str, *, seconds: int, audiences: Any) -> str:
        self.asked.append((namespace, name, seconds, tuple(audiences)))
        if not self.token:
            raise Forbidden(Call("eu-1", "ask"), "The credentials lack a right.")
        return self.token

    def require_identity(self) -> None:
        self.asked.append("tried")
        if not self.accepts:
            raise Unauthorized(Call("eu-1", "identify"), "eu-1 does not accept the credentials.")

    def close(self) -> None:
        self.asked.append("closed")


def cluster_with(token: str) -> Cluster:
    stored = Credentials(server="https://127.0.0.1:9", token=token, expires_at=ENDS)
    return make_cluster(
        kubeconfig_ciphertext=crypto.encrypt(stored.dumps()), credential_expires_at=ENDS, credential_issued_at=ISSUED
    )


def run(cluster: Cluster, api: Api, monkeypatch: pytest.MonkeyPatch, *, now: datetime = NOW, ask: bool = True) -> Any:
    monkeypatch.setattr(renewal, "KubeClient", lambda *args, **kwargs: api)
    return renew(api, cluster, now, ask=ask)  # type: ignore[arg-type]  # as much of a client as it needs


pytest_db = pytest.mark.django_db


@pytest_db
def test_at_two_thirds_it_is_renewed_tried_and_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = jwt(NOW, NOW + 30 * DAY)
    cluster, api = cluster_with(jwt(ISSUED, ENDS)), Api(token=fresh)
    found = run(cluster, api, monkeypatch)
    assert (found.condition.status, found.condition.reason) == ("True", "Renewed")
    assert api.asked[1:] == [("aifactory", "portal", 30 * 86400, tuple(AUDIENCES)), "tried", "closed"]
    before = bytes(cluster.kubeconfig_ciphertext)
    with system_scope("test"):
        assert renewal_store(cluster, found.credentials, instead_of=before)
        (event,) = AuditEvent.objects.filter(verb="cluster_renew_credentials")
    cluster.refresh_from_db()
    assert Credentials.loads(crypto.decrypt(cluster.kubeconfig_ciphertext)).token == fresh
    assert (cluster.credential_issued_at, cluster.credential_expires_at) == (NOW, NOW + 30 * DAY)
    assert fresh not in f"{event.before}{event.after}{found.condition}", "no token in audit or condition"


@pytest_db
def test_somebody_who_rotated_meanwhile_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, api = cluster_with(jwt(ISSUED, ENDS)), Api(token=jwt(NOW, NOW + 30 * DAY))
    found = run(cluster, api, monkeypatch)
    read = bytes(cluster.kubeconfig_ciphertext)
    cluster.kubeconfig_ciphertext = crypto.encrypt(b"by hand")
    with system_scope("test"):
        assert not renewal_store(cluster, found.credentials, instead_of=read)
    assert crypto.decrypt(cluster.kubeconfig_ciphertext) == b"by hand"


@pytest_db
@pytest.mark.parametrize(
    ("api", "reason", "says"),
    [
        (Api(may=False), "RightMissing", "--resource-name=portal"),
        (Api(), "Forbidden", "could not be renewed"),
        (Api(token=jwt(NOW, NOW + 30 * DAY), accepts=False), "Unauthorized", "does not accept"),
        (Api(token=jwt(NOW, NOW + DAY)), "NotLonger", "Rotate them by hand"),
        (Api(token="opaque"), "NotLonger", "does not say"),
    ],
)
def test_what_does_not_work_leaves_the_old_ones_and_says_why(
    api: Api, reason: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(cluster_with(jwt(ISSUED, ENDS)), api, monkeypatch)
    assert found.credentials is None
    assert (found.condition.status, found.condition.reason) == ("False", reason)
    assert says in found.condition.message


@pytest_db
def test_nothing_is_asked_before_it_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, api = cluster_with(jwt(ISSUED, ENDS)), Api(token=jwt(NOW, NOW + 30 * DAY))
    assert run(cluster, api, monkeypatch, now=ISSUED + DAY, ask=False) is None
    assert api.asked == []
    early = run(cluster, api, monkeypatch, now=ISSUED + DAY)
    assert (early.condition.status, early.condition.reason, early.credentials) == ("True", "WillRenew", None)
    cluster.conditions = set_condition([], early.condition, now=NOW)
    assert run(cluster, api, monkeypatch, ask=False).condition.reason == "Renewed", (
        "when due, whatever the rights' turn"
    )


@pytest_db
def test_certificates_and_endless_tokens_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, api = cluster_with("opaque"), Api()
    assert run(cluster, api, monkeypatch) is None
    was = Condition(CREDENTIALS_RENEWED, "True", "WillRenew")
    cluster.conditions = set_condition([], was, now=NOW)
    assert run(cluster, api, monkeypatch).condition.reason == "ByHand"
    assert api.asked == []
