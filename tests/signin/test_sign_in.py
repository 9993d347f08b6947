"""Signing in through the real Keycloak's pages, and what follows from its groups."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test import Client

from portal.accounts.models import Identity, User
from portal.auth.models import OidcSession
from portal.kernel.models import AuditEvent
from portal.kernel.scoping import system_scope
from tenants.models import Member, Tenant
from tenants.services.members import member_set
from tests.signin.conftest import ADMIN
from tests.support.keycloak import Keycloak, back

pytestmark = [pytest.mark.signin, pytest.mark.django_db]
PAGE = "/t/ml-team/members/"


def roles(username: str) -> dict[str, str]:
    return dict(Member.objects.filter(user__username=username).values_list("tenant__slug", "role"))


def audited(verb: str) -> list[AuditEvent]:
    with system_scope("test"):
        return list(AuditEvent.objects.filter(verb=verb).order_by("id"))


def test_a_member_signs_in_and_has_the_roles_of_the_groups(person: Any, keycloak: Keycloak) -> None:
    ml_owner = person("ml-owner")
    answer = ml_owner.sign_in(PAGE)
    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    page = ml_owner.client.get(PAGE)
    assert page.status_code == 200
    assert "from a group at sign-in" in page.content.decode()
    assert roles("ml-owner") == {"ml-team": "owner"}
    identity = Identity.objects.get()
    assert (identity.iss, identity.sub) == (keycloak.issuer, keycloak.user_id("ml-owner"))
    session = OidcSession.objects.get()
    assert session.sid
    assert b"eyJ" not in bytes(session.refresh_ciphertext) + bytes(session.id_token_ciphertext)
    assert not [key for key, _ in ml_owner.client.session.items() if "token" in key]
    told = ml_owner.client.get("/account/roles/").content.decode()
    assert "/ml-team/owners" in told
    assert "in force" in told
    assert [event.reason for event in audited("member_set")] == ["claim groups: /ml-team/owners"]
    assert audited("sign_in")


def test_the_request_carries_pkce_state_and_nonce(person: Any) -> None:
    sent = [parse_qs(urlsplit(Client().get("/auth/oidc/login")["Location"]).query) for _ in range(2)]
    person("ml-owner")
    for query in sent:
        assert query["code_challenge_method"] == ["S256"]
        assert len(query["state"][0]) == 32
        assert len(query["nonce"][0]) == 32
    for name in ("state", "nonce", "code_challenge"):
        assert sent[0][name] != sent[1][name]


@pytest.fixture(autouse=True)
def pointed(person: Any) -> None:
    """Every test here signs in there."""


def test_groups_added_and_removed_become_roles_at_the_next_refresh(person: Any, keycloak: Keycloak) -> None:
    developer = person("ml-developer")
    developer.sign_in()
    assert roles("ml-developer") == {"ml-team": "developer"}
    keycloak.add_to_group("ml-developer", "/team-vision/owners")
    assert developer.client.get("/t/team-vision/").status_code == 404, "not yet asked"
    developer.due()
    assert developer.client.get("/t/team-vision/").status_code == 200
    assert roles("ml-developer") == {"ml-team": "developer", "team-vision": "owner"}
    for path in ("/team-vision/owners", "/ml-team/developers"):
        keycloak.remove_from_group("ml-developer", path)
    developer.due()
    # In no group at all: Keycloak sends no claim, and ``complete_claims`` says that this means none.
    assert developer.client.get("/t/ml-team/").status_code == 404
    assert roles("ml-developer") == {}
    assert [event.object_name for event in audited("member_remove")] == ["ml-developer"] * 2
    assert developer.client.get("/api/v1/me").status_code == 200, "still signed in"
    keycloak.add_to_group("ml-developer", "/ml-team/developers")


def test_a_claim_that_is_not_sent_any_more_takes_nothing_away(person: Any, keycloak: Keycloak) -> None:
    owner = person("ml-owner")
    owner.sign_in()
    client = keycloak.client("ai-factory-portal")
    gone = [one for one in client["protocolMappers"] if one["config"]["claim.name"] in ("groups", "complete_claims")]
    path = f"/ai-factory/clients/{client['id']}/protocol-mappers/models"
    for mapper in gone:
        keycloak.admin.call("DELETE", f"{path}/{mapper['id']}")
    try:
        owner.due()
        assert owner.client.get(PAGE).status_code == 200
        assert roles("ml-owner") == {"ml-team": "owner"}
    finally:
        for mapper in gone:
            keycloak.admin.call("POST", path, mapper)


def test_a_role_given_by_hand_stays(person: Any, teams: dict[str, Tenant], keycloak: Keycloak) -> None:
    owner = person("vision-owner")
    owner.sign_in()
    member_set(tenant=teams["ml-team"], username="vision-owner", role="viewer", actor=ADMIN)
    keycloak.add_to_group("vision-owner", "/ml-team/owners")
    owner.due()
    assert owner.client.get("/t/ml-team/").status_code == 200
    assert roles("vision-owner") == {"ml-team": "viewer", "team-vision": "owner"}
    assert "viewer was given by hand" in owner.client.get("/account/roles/").content.decode()
    keycloak.remove_from_group("vision-owner", "/ml-team/owners")
    owner.due()
    assert owner.client.get("/t/ml-team/").status_code == 200
    assert roles("vision-owner") == {"ml-team": "viewer", "team-vision": "owner"}


def test_a_platform_role_comes_from_its_realm_role(person: Any, keycloak: Keycloak) -> None:
    admin = person("platform-admin")
    admin.sign_in()
    assert admin.client.get("/platform/groups/").status_code == 200
    page = admin.client.get("/platform/people/platform-admin/").content.decode()
    assert "realm_access.roles: platform-admin" in page
    keycloak.realm_role("platform-admin", "platform-admin", give=False)
    admin.due()
    assert admin.client.get("/platform/groups/").status_code == 404
    assert User.objects.get(username="platform-admin").platform_role == ""
    keycloak.realm_role("platform-admin", "platform-admin")
    admin.due()
    assert admin.client.get("/platform/groups/").status_code == 200
    assert len(audited("platform_role_set")) == 3


def test_a_local_account_of_the_same_name_is_not_taken_over(person: Any) -> None:
    local = User.objects.create_user("ml-owner", "correct horse battery", email="ml-owner@example.org")
    ml_owner = person("ml-owner")
    ml_owner.sign_in()
    me = ml_owner.client.get("/api/v1/me").json()
    assert me["id"] != str(local.pk)
    assert me["username"] == "ml-owner-2"


def test_a_new_name_and_address_are_labels_of_the_same_person(person: Any, keycloak: Keycloak) -> None:
    finance = person("platform-finance")
    finance.sign_in()
    before = finance.client.get("/api/v1/me").json()
    sub = keycloak.user_id("platform-finance")
    keycloak.admin.call("PUT", f"/ai-factory/users/{sub}", {"lastName": "Office", "email": "office@example.org"})
    finance.due()
    after = finance.client.get("/api/v1/me").json()
    assert after["id"] == before["id"]
    assert (after["display_name"], after["email"]) == ("Platform Office", "office@example.org")


def test_a_disabled_person_is_out_at_the_next_refresh(person: Any, keycloak: Keycloak) -> None:
    viewer = person("platform-viewer")
    viewer.sign_in()
    keycloak.enable("platform-viewer", False)
    try:
        assert viewer.client.get("/platform/").status_code == 200
        viewer.due()
        answer = viewer.client.get("/platform/")
        assert answer.status_code == 302
        assert answer["Location"].startswith("/auth/oidc/login?next=%2Fplatform%2F&silent=1")
        assert not OidcSession.objects.exists()
        # Silently first: Keycloak says that it needs its form, and shows it.
        silent = viewer.client.get(answer["Location"])
        assert "prompt=none" in silent["Location"]
        location, _ = viewer.browser.visit(silent["Location"])
        with_form = back(viewer.client, location)
        assert with_form["Location"] == "/auth/oidc/login?next=%2Fplatform%2F"
        location, page = viewer.browser.visit(
            viewer.client.get(with_form["Location"])["Location"],
            "platform-viewer",
            keycloak.passwords["platform-viewer"],
        )
        assert not location
        assert "disabled" in page.lower()
    finally:
        keycloak.enable("platform-viewer", True)


def test_signing_in_silently_where_the_session_there_goes_on(person: Any) -> None:
    owner = person("ml-owner")
    owner.sign_in()
    OidcSession.objects.update(refresh_ciphertext=b"")
    owner.due()
    answer = owner.client.get(PAGE + "?x=1")
    location, _ = owner.browser.visit(owner.client.get(answer["Location"])["Location"])
    assert back(owner.client, location)["Location"] == PAGE + "?x=1"
    assert owner.client.get(PAGE).status_code == 200


def test_a_code_works_once(person: Any) -> None:
    """The back button, a double click: the one who is signed in goes on, without another word to Keycloak."""
    owner = person("ml-owner")
    sent = owner.client.get("/auth/oidc/login")["Location"]
    location, _ = owner.browser.visit(sent, "ml-owner", owner.keycloak.passwords["ml-owner"])
    assert back(owner.client, location).status_code == 302
    again = back(owner.client, location)
    assert (again.status_code, again["Location"]) == (302, "/")
    # Somebody else with that address in another browser: one new try, then a page that explains.
    other = Client()
    first = back(other, location)
    assert first["Location"] == "/auth/oidc/login?again=1"
    to_provider = other.get(first["Location"])["Location"]
    other.cookies.clear()
    location, _ = owner.browser.visit(to_provider)
    last = back(other, location)
    assert last.status_code == 401
    assert "does not remember" in last.content.decode()


@pytest.mark.django_db(transaction=True)
def test_five_tabs_refresh_at_once_and_all_are_fine(person: Any) -> None:
    """The refresh token is good for one use (the realm says so); a second use would end the session."""
    owner = person("ml-owner")
    owner.sign_in()
    owner.due()
    sealed = bytes(OidcSession.objects.get().refresh_ciphertext)
    cookie = owner.client.cookies["aif_session"].value
    together, answers = threading.Barrier(5), []

    def tab() -> None:
        client = Client()
        client.cookies["aif_session"] = cookie
        together.wait()
        answers.append(client.get(PAGE).status_code)
        connection.close()

    tabs = [threading.Thread(target=tab) for _ in range(5)]
    for each in tabs:
        each.start()
    for each in tabs:
        each.join()
    assert answers == [200] * 5
    row = OidcSession.objects.get()
    assert bytes(row.refresh_ciphertext) != sealed
    owner.due()
    assert owner.client.get(PAGE).status_code == 200, "the rotated token was kept"


def test_without_the_lock_five_tabs_burn_the_token(person: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the lock is for: the same refresh token used twice is refused, and ends the session."""
    from portal.auth.oidc.errors import ProviderRefused
    from portal.auth.oidc.exchange import refreshed
    from portal.kernel import crypto

    owner = person("ml-owner")
    owner.sign_in()
    token = crypto.decrypt(OidcSession.objects.get().refresh_ciphertext).decode()
    assert refreshed(token)["refresh_token"] != token
    with pytest.raises(ProviderRefused, match="invalid_grant"):
        refreshed(token)
    owner.due()
    assert owner.client.get(PAGE).status_code == 302
