"""Members of a team, and a person's API tokens."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from portal.accounts.models import ApiToken, User
from tenants.models import Member, Tenant
from tests.web.tenants.conftest import form_data, text_of

pytestmark = pytest.mark.django_db
MEMBERS = "/t/ml-team/members/"
TOKENS = "/account/tokens/"


def role_of(username: str) -> str | None:
    return Member.objects.filter(tenant__slug="ml-team", user__username=username).values_list("role", flat=True).first()


def test_an_owner_adds_changes_and_removes(owner: Client, people: dict[str, User]) -> None:
    assert owner.post(MEMBERS, {"username": " Outsider ", "role": "viewer"}).status_code == 303
    assert role_of("outsider") == "viewer"
    assert owner.post(MEMBERS, {"username": "outsider", "role": "developer"}).status_code == 303
    assert role_of("outsider") == "developer"
    assert owner.post(f"{MEMBERS}outsider/remove").status_code == 303
    assert role_of("outsider") is None
    assert owner.post(f"{MEMBERS}outsider/remove").status_code == 404


def test_bad_members(owner: Client, people: dict[str, User]) -> None:
    unknown = owner.post(MEMBERS, {"username": "nobody", "role": "viewer"})
    assert unknown.status_code == 422
    assert "There is no active user nobody" in text_of(unknown)
    assert "id_username_error" in text_of(unknown)
    assert owner.post(MEMBERS, {"username": "outsider", "role": "king"}).status_code == 422
    last = owner.post(MEMBERS, {"username": "owner-1", "role": "viewer"})
    assert last.status_code == 422
    assert "needs an owner" in text_of(last)
    gone = owner.post(f"{MEMBERS}owner-1/remove")
    assert gone.status_code == 409
    assert "needs an owner" in text_of(gone)
    assert role_of("owner-1") == "owner"


def test_only_owners_see_the_forms(browser, tenant: Tenant) -> None:
    assert "Add a person" in text_of(browser("owner").get(MEMBERS))
    page = text_of(browser("viewer").get(MEMBERS))
    assert "Add a person" not in page
    assert "<select" not in page


def token_data(client: Client, **values: object) -> dict[str, object]:
    page = text_of(client.get(TOKENS))
    expires = re.findall(r'name="expires_at" value="([0-9-]+)"', page)[0]
    return form_data(client, TOKENS, **{"name": "ci", "scopes": ["read"], "expires_at": expires, **values})


def test_a_token_is_shown_once_and_works_until_revoked(owner: Client, tenant: Tenant) -> None:
    made = owner.post(TOKENS, token_data(owner, tenant_id=str(tenant.pk)))
    assert made.status_code == 201
    text = re.findall(r"aif_pat_[a-z0-9]{8}_[A-Za-z0-9_-]{43}_[0-9a-f]{8}", text_of(made))[0]
    assert "no-store" in made["Cache-Control"]
    page = text_of(owner.get(TOKENS))
    assert text not in page
    assert text[-4:] in page
    assert "ml-team" in page
    script = Client(headers={"Authorization": f"Bearer {text}"})
    assert script.get("/api/v1/me").status_code == 200
    token = ApiToken.objects.get()
    assert owner.post(f"{TOKENS}{token.pk}/revoke").status_code == 303
    assert script.get("/api/v1/me").status_code == 401
    assert "revoked" in text_of(owner.get(TOKENS))


def test_a_token_form_sent_twice_makes_one(owner: Client, tenant: Tenant) -> None:
    sent = token_data(owner)
    assert owner.post(TOKENS, sent).status_code == 201
    assert owner.post(TOKENS, sent).status_code == 303
    assert ApiToken.objects.count() == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", ""), ("scopes", []), ("scopes", ["root"]), ("scopes", ["platform"]), ("expires_at", "2020-01-01"),
     ("expires_at", "2199-01-01"), ("expires_at", "soon"), ("tenant_id", "00000000-0000-0000-0000-000000000000")],
)  # fmt: skip
def test_bad_tokens(owner: Client, tenant: Tenant, field: str, value: object) -> None:
    answer = owner.post(TOKENS, token_data(owner, **{field: value}))
    assert answer.status_code == 422
    assert f"id_{field}_error" in text_of(answer)
    assert not ApiToken.objects.exists()


def test_somebody_elses_token_is_not_there(owner: Client, browser, tenant: Tenant) -> None:
    owner.post(TOKENS, token_data(owner))
    token = ApiToken.objects.get()
    other = browser("outsider")
    assert "aif_pat_" not in text_of(other.get(TOKENS))
    assert other.post(f"{TOKENS}{token.pk}/revoke").status_code == 404
    assert other.get(f"{TOKENS}{token.pk}/revoke").status_code == 405
    token.refresh_from_db()
    assert token.revoked_at is None


def test_somebody_unknown_is_asked_to_sign_in() -> None:
    assert Client().get(TOKENS)["Location"] == "/auth/login?next=/account/tokens/"
