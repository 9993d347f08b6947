"""What becomes of an open session when it is due, over, idle, or nobody can say."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from portal.accounts.models import User
from portal.auth.models import OidcSession
from portal.auth.oidc import sessions
from portal.kernel.clock import utcnow
from tenants.models import Member
from tests.support.provider import FakeProvider
from tests.support.tenants import make_tenant

pytestmark = pytest.mark.django_db
PAGE = "/account/tokens/"
HTMX = {"HTTP_HX_REQUEST": "true", "HTTP_HX_CURRENT_URL": "http://testserver/t/ml-team/deployments/?q=a"}


@pytest.fixture
def client(source: FakeProvider) -> Client:
    """Signed in, and due to be asked after."""
    made = Client()
    source.sign_in(made)
    due()
    source.asked.clear()
    return made


def due(**more: Any) -> None:
    OidcSession.objects.update(next_refresh_at=utcnow(), **more)


def over(source: FakeProvider) -> None:
    source.fails("/token", 400, {"error": "invalid_grant"})


def test_a_session_that_is_due_is_asked_after_once(client: Client, source: FakeProvider) -> None:
    for _ in range(3):
        assert client.get(PAGE).status_code == 200
    assert source.asked["/token"] == 1
    row = OidcSession.objects.get()
    assert timedelta(seconds=890) < row.next_refresh_at - utcnow() <= timedelta(seconds=900)
    due()
    assert client.get(PAGE).status_code == 200, "with the rotated token"


@pytest.mark.parametrize("method", ["get", "post", "put", "delete", "head"])
def test_every_method_is_looked_at(client: Client, source: FakeProvider, method: str) -> None:
    """The library looked at GET alone."""
    getattr(client, method)(PAGE)
    assert source.asked["/token"] == 1


def test_platform_roles_and_owners_are_asked_after_sooner(client: Client) -> None:
    user = User.objects.get()
    assert sessions.refresh_interval(user) == timedelta(minutes=15)
    Member.objects.create(tenant=make_tenant(), user=user, role="developer")
    assert sessions.refresh_interval(user) == timedelta(minutes=15)
    Member.objects.update(role="owner")
    assert sessions.refresh_interval(user) == timedelta(minutes=5)
    Member.objects.all().delete()
    user.platform_role = "platform-viewer"
    assert sessions.refresh_interval(user) == timedelta(minutes=5)


def test_a_local_session_and_a_token_have_nothing_to_do_with_it(client: Client, source: FakeProvider) -> None:
    """mozilla-django-oidc#578: the refresh ran for requests with an API key too."""
    over(source)
    local = Client()
    local.force_login(User.objects.create_user("local"), backend="portal.accounts.backends.LocalBackend")
    assert local.get(PAGE).status_code == 200
    assert client.get("/api/v1/me", HTTP_AUTHORIZATION="Bearer aif_pat_nothing").status_code == 401
    assert source.asked["/token"] == 0
    # A page does not look at the header, so the header does not spare it.
    assert client.get(PAGE, HTTP_AUTHORIZATION="Bearer x").status_code == 302


def test_over_and_a_page_is_asked_for(client: Client, source: FakeProvider) -> None:
    over(source)
    answer = client.get(PAGE + "?a=b")
    assert answer["Location"] == "/auth/oidc/login?next=%2Faccount%2Ftokens%2F%3Fa%3Db&silent=1"
    assert not OidcSession.objects.exists()
    assert client.get(PAGE)["Location"].startswith("/auth/login?next="), "it is not tried for ever"


def test_over_and_the_api_is_asked(client: Client, source: FakeProvider) -> None:
    over(source)
    answer = client.get("/api/v1/me")
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("here", "page"),
    [
        ("http://testserver/t/ml-team/deployments/?q=a", "/t/ml-team/deployments/?q=a"),
        ("https://elsewhere.example/t/ml-team/", "/"),
        ("http://testserver//elsewhere.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_over_and_a_fragment_is_asked_for(client: Client, source: FakeProvider, here: str, page: str) -> None:
    """hypha#4530, Anthias#3306: the sign-in page was swapped into the fragment; #363: next was the fragment's URL."""
    over(source)
    answer = client.get("/t/ml-team/deployments/", HTTP_HX_REQUEST="true", HTTP_HX_CURRENT_URL=here)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer["HX-Redirect"] == page
    assert "Location" not in answer


def test_over_and_a_change_comes_by_htmx(client: Client, source: FakeProvider) -> None:
    """The form around the fragment keeps what was typed: nothing is redirected."""
    over(source)
    answer = client.post(PAGE, {"name": "typed"}, **HTMX)
    assert answer.status_code == 401
    assert "HX-Redirect" not in answer
    assert "What you typed is still here" in answer.content.decode()
    assert "<html" not in answer.content.decode()


def kept_in(page: str) -> str:
    found = re.search(r'name="kept" value="([^"]+)"', page)
    assert found, page
    return found[1]


def test_over_and_a_form_is_sent(client: Client, source: FakeProvider) -> None:
    over(source)
    typed = {"name": "a token <b>", "scopes": ["read", "write"], "expires_at": "2026-12-31", "submission": "s" * 32}
    answer = client.post(PAGE, typed)
    page = answer.content.decode()
    assert answer.status_code == 403
    assert "Nothing was changed" in page
    assert "a token" not in page, "what was typed is in it encrypted: it may be a password"
    kept = kept_in(page)
    still_out = client.post("/auth/resend", {"kept": kept})
    assert (still_out.status_code, kept_in(still_out.content.decode())) == (403, kept)
    # In another tab of the same browser.
    source.answers["/token"] = lambda _: source.token_answer()
    source.sign_in(client, next="/auth/signed-in")
    assert "You are signed in" in client.get("/auth/signed-in").content.decode()
    form = client.post("/auth/resend", {"kept": kept}).content.decode()
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form)
    assert ("name", "a token &lt;b&gt;") in fields
    assert [value for name, value in fields if name == "scopes"] == ["read", "write"]
    assert f'action="{PAGE}"' in form
    assert client.post(PAGE, typed).status_code == 201


def test_what_was_kept_is_its_own_persons(client: Client, source: FakeProvider) -> None:
    over(source)
    kept = kept_in(client.post(PAGE, {"name": "x"}).content.decode())
    other = Client()
    other.force_login(User.objects.create_user("other"), backend="portal.accounts.backends.LocalBackend")
    assert other.post("/auth/resend", {"kept": kept}).status_code == 403
    assert other.post("/auth/resend", {"kept": kept[:-4]}).status_code == 400
    assert other.post("/auth/resend").status_code == 400


def test_a_forged_form_is_refused_before_anything_is_kept(source: FakeProvider) -> None:
    client = Client(enforce_csrf_checks=True)
    source.sign_in(client)
    due()
    over(source)
    answer = client.post(PAGE, {"name": "x"})
    assert answer.status_code == 403
    assert "kept" not in answer.content.decode()


def test_signing_out_works_however_the_session_is(client: Client, source: FakeProvider) -> None:
    over(source)
    assert "/logout?" in client.post("/auth/logout")["Location"]
    assert source.asked["/token"] == 0


def test_polling_keeps_nothing_alive(source: FakeProvider, settings: Any) -> None:
    client = Client()
    source.sign_in(client)
    ago = utcnow() - timedelta(seconds=settings.AIF_OIDC_IDLE_SECONDS - 60)
    due(active_at=ago)
    assert client.get(PAGE, HTTP_X_POLL="1", **HTMX).status_code == 200
    row = OidcSession.objects.get()
    assert row.active_at == ago, "asked after, but not alive by it"
    assert row.next_refresh_at > utcnow()
    OidcSession.objects.update(active_at=ago - timedelta(seconds=61))
    answer = client.get(PAGE, HTTP_X_POLL="1", **HTMX)
    assert answer.status_code == 204
    page = client.get(answer["HX-Redirect"])
    assert page["Location"].startswith("/auth/login?next="), "the sign-in page, not a silent way in"


def test_an_idle_session_ends_with_the_sign_in_page(client: Client) -> None:
    OidcSession.objects.update(active_at=utcnow() - timedelta(hours=2))
    answer = client.get(PAGE)
    assert answer["Location"] == "/auth/login?next=%2Faccount%2Ftokens%2F&over=idle"
    assert "nobody did anything here for 60 minutes" in client.get(answer["Location"]).content.decode()


def test_somebody_who_does_something_is_not_idle(client: Client) -> None:
    OidcSession.objects.update(active_at=utcnow() - timedelta(minutes=50))
    client.get(PAGE)
    assert utcnow() - OidcSession.objects.get().active_at < timedelta(minutes=1)


def test_no_answer_ends_nothing_for_a_while(client: Client, source: FakeProvider) -> None:
    source.fails("/token", 503)
    for _ in range(3):
        assert client.get(PAGE).status_code == 200
    assert source.asked["/token"] == 1, "not asked again at once"
    long_ago = utcnow() - timedelta(seconds=900 + 601)
    due(confirmed_at=long_ago)
    for _ in range(2):
        answer = client.get(PAGE)
        assert answer.status_code == 503
        assert "Nothing is lost" in answer.content.decode()
    assert client.get("/api/v1/me").status_code == 503
    assert OidcSession.objects.exists()
    source.answers["/token"] = lambda _: source.token_answer()
    due()
    assert client.get(PAGE).status_code == 200


@pytest.mark.parametrize(
    "changes",
    [{"sub": "somebody-else"}, {"aud": "another", "azp": "another"}, {"exp": 1}, {"iss": "https://x.example"}],
)
def test_an_answer_that_is_not_believed_ends_the_session(
    client: Client, source: FakeProvider, changes: dict[str, Any]
) -> None:
    """mozilla-django-oidc#547: the session stayed alive."""
    source.answers["/token"] = lambda _: source.token_answer(**changes)
    assert client.get(PAGE).status_code == 302
    assert not OidcSession.objects.exists()


def test_the_required_role_is_asked_for_again(client: Client, settings: Any) -> None:
    settings.AIF_OIDC_REQUIRED_ROLE = "ai-factory-user"
    assert client.get(PAGE).status_code == 302


def test_keys_of_encryption_that_are_gone_end_the_session(client: Client) -> None:
    OidcSession.objects.update(refresh_ciphertext=b"not ours")
    assert client.get(PAGE).status_code == 302


def test_switched_off_means_out(client: Client, settings: Any) -> None:
    settings.AIF_OIDC_ISSUER = ""
    assert client.get(PAGE).status_code == 302


def test_old_rows_are_removed(client: Client, settings: Any) -> None:
    sessions.clean()
    assert OidcSession.objects.exists()
    OidcSession.objects.update(started_at=utcnow() - timedelta(days=3))
    sessions.clean()
    assert not OidcSession.objects.exists()
