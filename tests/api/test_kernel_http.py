"""The HTTP contract that every address keeps: problems, clean input, idempotency, headers, tokens."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import include, path
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.accounts import services
from portal.accounts.models import ApiToken, User
from portal.kernel.actors import Actor
from portal.kernel.idempotency import Idempotent
from portal.kernel.models import IdempotencyRecord
from portal.kernel.problems import Conflict, NotFound
from tests.support.threads import at_once

PASSWORD = "correct horse battery"
SYSTEM = Actor.system("test")


class Things(Idempotent, APIView):
    """Counts what it did; ``fail`` makes it raise."""

    done: list[Any] = []
    gate: threading.Event | None = None

    def get(self, request: Request) -> Response:
        raise {
            "missing": lambda: NotFound("There is no thing."),
            "conflict": lambda: Conflict("In the way.", retry_after=3, quota=8),
            "unique": _unique,
            "fault": lambda: RuntimeError("password=hunter2hunter2"),
        }[request.query_params["fail"]]()

    def post(self, request: Request) -> Response:
        if "fail" in request.data:
            raise Conflict("Not now.")
        if self.gate is not None:
            self.gate.wait(5)
        Things.done.append(request.data)
        return Response({"number": len(Things.done)}, status=201, headers={"Location": "/api/v1/things/1"})


def _unique() -> Exception:
    try:
        with transaction.atomic():
            for _ in range(2):
                IdempotencyRecord.objects.create(principal="a", route="b", key="c", body_digest="")
    except IntegrityError as error:
        return error
    raise AssertionError("the constraint is gone")


def page(request: HttpRequest) -> HttpResponse:
    if request.GET.get("fail") == "fault":
        raise RuntimeError("password=hunter2hunter2")
    if request.GET.get("fail") == "missing":
        raise NotFound("There is no thing.")
    return HttpResponse("fine")


urlpatterns = [path("api/v1/things", Things.as_view()), path("page", page), path("", include("portal.urls"))]
handler400 = "portal.kernel.problems.web.bad_request"
handler403 = "portal.kernel.problems.web.forbidden"
handler404 = "portal.kernel.problems.web.not_found"
handler500 = "portal.kernel.problems.web.server_error"

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    Things.done = []
    Things.gate = None


def bearer(scopes: tuple[str, ...] = ("read", "write"), name: str = "mia") -> tuple[ApiToken, dict[str, str]]:
    user = User.objects.filter(username=name).first() or services.user_create(
        username=name, password=PASSWORD, actor=SYSTEM
    )
    token, text = services.token_create(
        user_id=user.id, name="ci", scopes=scopes, expires_at=timezone.now() + timedelta(days=1),
        actor=services.user_actor(user),
    )  # fmt: skip
    return token, {"authorization": f"Bearer {text}"}


def post(headers: dict[str, str], body: Any = None, client: Client | None = None) -> Any:
    raw = body if isinstance(body, str | bytes) else json.dumps(body or {})
    return (client or Client()).post("/api/v1/things", raw, content_type="application/json", headers=headers)


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = json.loads(response.content)
    assert body["status"] == status
    assert set(body) >= {"type", "title", "detail", "instance", "request_id"}
    assert body["request_id"] == response["X-Request-ID"]
    return body


@pytest.mark.parametrize(
    ("fail", "status", "detail"),
    [
        ("missing", 404, "There is no thing."),
        ("conflict", 409, "In the way."),
        ("unique", 409, "exists already"),
        ("fault", 500, "our side"),
    ],
)
def test_every_error_of_the_api_is_a_problem(fail: str, status: int, detail: str) -> None:
    _, headers = bearer()
    response = Client(raise_request_exception=False).get(f"/api/v1/things?fail={fail}", headers=headers)
    body = problem(response, status)
    assert detail in body["detail"]
    assert b"hunter2" not in response.content
    if fail == "conflict":
        assert (body["quota"], response["Retry-After"]) == (8, "3")


def test_addresses_and_methods_that_are_not_there() -> None:
    _, headers = bearer()
    problem(Client().get("/api/v1/nothing", headers=headers), 404)
    problem(Client().delete("/api/v1/things", headers=headers), 405)
    problem(Client().post("/api/v1/things", "a=b", content_type="text/csv", headers=headers), 415)
    assert Client().get("/nothing").status_code == 404


def test_pages_show_a_sentence_and_no_traceback() -> None:
    client = Client(raise_request_exception=False)
    missing = client.get("/page?fail=missing")
    assert missing.status_code == 404
    assert b"There is no thing." in missing.content
    fault = client.get("/page?fail=fault")
    assert fault.status_code == 500
    assert b"hunter2" not in fault.content
    assert fault["X-Request-ID"].encode() in fault.content


@pytest.mark.parametrize(
    "body",
    [
        '{"a": "\\u0000"}',
        '{"a": ["\\ud800"]}',
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": 9223372036854775808}',
        '{"a": 1, "a": 2}',
        '{"a": ',
        "[" * 100_000,
        b'{"a": "\xff"}',
    ],
)
def test_bodies_that_can_not_be_kept_are_refused(body: str | bytes) -> None:
    _, headers = bearer()
    problem(post(headers, body), 400)
    assert Things.done == []


@pytest.mark.parametrize("address", ["/page?a=%00", "/page?%00=a", "/page%00", "/api/v1/things?fail=%00"])
def test_nul_in_an_address_is_refused(address: str) -> None:
    assert Client().get(address).status_code == 400


def test_nul_in_a_form_or_header_is_refused() -> None:
    assert Client().post("/page", {"name": "a\x00b"}).status_code == 400
    assert Client().get("/page", headers={"x-thing": "a\x00b"}).status_code == 400


def test_the_same_key_acts_once_and_answers_the_same() -> None:
    _, headers = bearer()
    headers["idempotency-key"] = "one"
    first, second = post(headers, {"a": 1}), post(headers, {"a": 1})
    assert (first.status_code, first.content) == (second.status_code, second.content) == (201, b'{"number":1}')
    assert second["Idempotent-Replayed"] == "true"
    assert second["Location"] == "/api/v1/things/1"
    assert not first.has_header("Idempotent-Replayed")
    assert len(Things.done) == 1
    problem(post(headers, {"a": 2}), 422)
    _, leo = bearer(name="leo")
    assert post({**leo, "idempotency-key": "one"}, {"a": 1}).status_code == 201, "keys are a person's own"


def test_kept_answers_are_encrypted() -> None:
    _, headers = bearer()
    post({**headers, "idempotency-key": "one"}, {"a": 1})
    record = IdempotencyRecord.objects.get()
    assert record.body is not None
    assert b"number" not in bytes(record.body)


def test_a_refusal_that_may_be_repeated_is_not_kept() -> None:
    _, headers = bearer()
    headers["idempotency-key"] = "one"
    problem(post(headers, {"fail": True}), 409)
    assert IdempotencyRecord.objects.count() == 0


def test_a_request_that_was_cut_off_is_not_run_again() -> None:
    _, headers = bearer()
    headers["idempotency-key"] = "one"
    post(headers, {"a": 1})
    IdempotencyRecord.objects.update(state="running")
    assert problem(post(headers, {"a": 1}), 409)["detail"].startswith("A request with this key is still running")
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(minutes=5))
    assert "cut off" in problem(post(headers, {"a": 1}), 409)["detail"]
    assert len(Things.done) == 1
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert post(headers, {"a": 1}).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_twenty_at_once_with_one_key_act_once() -> None:
    _, headers = bearer()
    Things.gate = threading.Event()
    careless = at_once([lambda: post(headers, {"a": 1}).status_code] * 2 + [_open_gate])
    assert careless[:2] == [201, 201], "without a key both act"
    assert len(Things.done) == 2

    Things.done, Things.gate = [], threading.Event()
    headers["idempotency-key"] = "one"
    answers = at_once([lambda: post(headers, {"a": 1}).status_code] * 20 + [_open_gate])
    assert set(answers[:20]) <= {201, 409}
    assert 201 in answers
    assert len(Things.done) == 1


def _open_gate() -> int:
    import time

    time.sleep(0.5)
    assert Things.gate is not None
    Things.gate.set()
    return 0


def _revoke(token: ApiToken) -> None:
    services.token_revoke(token_id=token.id, actor=SYSTEM)


def _expire(token: ApiToken) -> None:
    ApiToken.objects.update(expires_at=timezone.now())


def _deactivate(token: ApiToken) -> None:
    services.user_deactivate(user_id=token.user_id, actor=SYSTEM)


@pytest.mark.parametrize("end", [_revoke, _expire, _deactivate])
def test_a_token_that_is_over_gets_401(end: Callable[[ApiToken], None]) -> None:
    token, headers = bearer()
    assert Client().get("/api/v1/me", headers=headers).json()["username"] == "mia"
    end(token)
    response = Client().get("/api/v1/me", headers=headers)
    problem(response, 401)
    assert response["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("header", ["Bearer", "Bearer x", "Bearer aif_pat_a b", f"Bearer {'x' * 5000}", "Bearer \xff"])
def test_other_text_is_no_token(header: str) -> None:
    problem(Client().get("/api/v1/me", headers={"authorization": header}), 401)


def test_scopes_hold_for_every_view() -> None:
    _, reader = bearer(("read",))
    assert Client().get("/api/v1/me", headers=reader).status_code == 200
    problem(post(reader, {"a": 1}), 403)
    assert Things.done == []


def test_last_used_is_written_once_a_minute(django_assert_num_queries) -> None:
    _, headers = bearer()
    Client().get("/api/v1/me", headers=headers)
    used = ApiToken.objects.get().last_used_at
    assert used is not None
    with django_assert_num_queries(1):  # the token with its person
        Client().get("/api/v1/me", headers=headers)
    assert ApiToken.objects.get().last_used_at == used


def test_tokens_are_made_and_ended_over_the_api() -> None:
    mia = services.user_create(username="mia", password=PASSWORD, actor=SYSTEM)
    client = Client()
    client.force_login(mia)
    asked = {"name": "ci", "scopes": ["read"], "expires_at": (timezone.now() + timedelta(days=3)).isoformat()}
    made = client.post("/api/v1/tokens", asked, content_type="application/json")
    assert made.status_code == 201, made.content
    text = made.json()["token"]
    listed = client.get("/api/v1/tokens").json()["results"]
    assert [token["id"] for token in listed] == [made.json()["id"]]
    assert text not in json.dumps(listed)
    bearer_only = {"authorization": f"Bearer {text}"}
    problem(Client().post("/api/v1/tokens", asked, content_type="application/json", headers=bearer_only), 403)
    assert client.delete(f"/api/v1/tokens/{made.json()['id']}").status_code == 204
    problem(client.delete(f"/api/v1/tokens/{uuid.uuid4()}"), 404)
    problem(client.post("/api/v1/tokens", {"name": ""}, content_type="application/json"), 422)


def test_a_session_needs_the_csrf_token_to_change_things() -> None:
    mia = services.user_create(username="mia", password=PASSWORD, actor=SYSTEM)
    client = Client(enforce_csrf_checks=True)
    client.force_login(mia)
    problem(client.post("/api/v1/things", {}, content_type="application/json"), 403)


def test_headers_of_every_answer() -> None:
    mia = services.user_create(username="mia", password=PASSWORD, actor=SYSTEM)
    client = Client()
    anonymous = client.get("/page")
    policy = anonymous["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert anonymous["X-Frame-Options"] == "DENY"
    assert anonymous["X-Content-Type-Options"] == "nosniff"
    client.force_login(mia)
    assert client.get("/page")["Cache-Control"] == "no-store"
    assert client.get("/page", headers={"x-request-id": "my-request-1"})["X-Request-ID"] == "my-request-1"
    assert client.get("/page", headers={"x-request-id": "bad id!"})["X-Request-ID"] != "bad id!"


@override_settings(AIF_BROKER_URL="redis://127.0.0.1:1/0")
def test_readiness_tells_database_and_broker_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().get("/healthz").json() == {"status": "ok"}
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert (answer.json()["database"], answer.json()["broker"]) == ("ok", "does not answer")
    with override_settings(AIF_BROKER_URL="memory://"):
        assert Client().get("/readyz").status_code == 200

        def fail() -> None:
            from django.db import OperationalError

            raise OperationalError("gone")

        monkeypatch.setattr(connection, "cursor", fail)
        answer = Client().get("/readyz")
        assert (answer.status_code, answer.json()["database"], answer.json()["broker"]) == (
            503,
            "does not answer",
            "ok",
        )
