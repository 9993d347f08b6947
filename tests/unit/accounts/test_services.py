"""People and tokens: who may, what is stored, what is audited."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.contrib.auth import authenticate
from django.utils import timezone

from portal.accounts import ports, services
from portal.accounts.authentication import find_token
from portal.accounts.models import ApiToken, User
from portal.kernel.actors import Actor
from portal.kernel.models import AuditEvent
from portal.kernel.problems import Forbidden, Invalid, NotFound
from portal.kernel.scoping import system_scope

pytestmark = pytest.mark.django_db
SYSTEM = Actor.system("test")
PASSWORD = "correct horse battery"


def person(name: str = "mia", role: str = "") -> User:
    return services.user_create(username=name, password=PASSWORD, actor=SYSTEM, platform_role=role)


def audit_verbs() -> list[tuple[str, str]]:
    with system_scope("test"):
        return [(event.verb, event.outcome) for event in AuditEvent.objects.order_by("id")]


def token_for(user: User, **changes: object) -> tuple[ApiToken, str]:
    values: dict[str, object] = {
        "user_id": user.id,
        "name": "ci",
        "scopes": ["read"],
        "expires_at": timezone.now() + timedelta(days=1),
        "actor": services.user_actor(user),
    }
    return services.token_create(**(values | changes))  # type: ignore[arg-type]


def test_only_an_admin_makes_people() -> None:
    mia = person()
    with pytest.raises(Forbidden):
        services.user_create(username="leo", password=PASSWORD, actor=services.user_actor(mia))
    admin = person("ada", "platform-admin")
    services.user_create(username="leo", password=None, actor=services.user_actor(admin))
    assert not User.objects.get(username="leo").has_usable_password()


@pytest.mark.parametrize(("name", "role"), [("", ""), ("a b", ""), ("x" * 151, ""), ("MIA", ""), ("kim", "root")])
def test_bad_people_are_refused(name: str, role: str) -> None:
    person("mia")
    with pytest.raises(Invalid):
        services.user_create(username=name, password=PASSWORD, actor=SYSTEM, platform_role=role)


def test_signing_in_locally(settings) -> None:
    person()
    assert authenticate(username="MIA", password=PASSWORD) is not None
    assert authenticate(username="mia", password="wrong") is None
    assert authenticate(username="nobody", password=PASSWORD) is None
    assert ("sign_in", "refused") in audit_verbs()
    settings.AIF_LOCAL_ACCOUNTS = False
    assert authenticate(username="mia", password=PASSWORD) is None


def test_guessing_locks_for_a_while() -> None:
    mia = person()
    for _ in range(services.FREE_TRIES + 1):
        authenticate(username="mia", password="wrong")
        User.objects.update(locked_until=None)
    authenticate(username="mia", password="wrong")
    assert authenticate(username="mia", password=PASSWORD) is None, "locked, though the password is right"
    mia.refresh_from_db()
    assert mia.locked_until is not None
    User.objects.update(locked_until=timezone.now())
    assert authenticate(username="mia", password=PASSWORD) is not None
    mia.refresh_from_db()
    assert mia.failed_sign_ins == 0


def test_a_token_is_shown_once_and_stored_as_a_digest() -> None:
    mia = person()
    token, text = token_for(mia)
    stored = str(ApiToken.objects.values().get())
    secret = text.split("_")[3]
    assert secret not in stored
    assert find_token(text) == token
    assert find_token(text.replace(secret, token.digest[:43])) is None, "the stored digest opens nothing"
    with system_scope("test"):
        assert all(secret not in str(event.after) for event in AuditEvent.objects.all())


def test_tokens_that_are_over_open_nothing() -> None:
    mia = person()
    token, text = token_for(mia)
    ApiToken.objects.update(expires_at=timezone.now())
    assert find_token(text) is None
    ApiToken.objects.update(expires_at=timezone.now() + timedelta(days=1))
    assert find_token(text) is not None
    services.token_revoke(token_id=token.id, actor=services.user_actor(mia))
    services.token_revoke(token_id=token.id, actor=services.user_actor(mia))
    assert find_token(text) is None
    assert audit_verbs().count(("token_revoke", "done")) == 1


def test_tokens_of_others_are_not_there() -> None:
    token, _ = token_for(person())
    with pytest.raises(NotFound):
        services.token_revoke(token_id=token.id, actor=services.user_actor(person("leo")))


def test_a_token_can_not_have_more_than_its_person(monkeypatch) -> None:
    mia = person()
    with pytest.raises(Forbidden):
        token_for(mia, scopes=["platform"])
    with pytest.raises(NotFound):
        token_for(mia, tenant_id=uuid.uuid4())
    monkeypatch.setattr(ports, "_membership", [lambda user_id, tenant_id: user_id == mia.id])
    assert token_for(mia, tenant_id=uuid.uuid4())[0].tenant_id is not None
    with pytest.raises(Forbidden):
        token_for(person("leo"), actor=services.user_actor(mia))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": " "},
        {"scopes": []},
        {"scopes": ["root"]},
        {"expires_at": timezone.now() - timedelta(days=1)},
        {"expires_at": timezone.now() + timedelta(days=4000)},
        {"scopes": ["platform"], "tenant_id": uuid.uuid4()},
    ],
)
def test_bad_tokens_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        token_for(person(), **changes)


def test_deactivating_shuts_out() -> None:
    mia = person()
    person("ada", "platform-admin")
    _, text = token_for(mia)
    services.user_deactivate(user_id=mia.id, actor=SYSTEM)
    assert find_token(text) is None
    assert authenticate(username="mia", password=PASSWORD) is None


def test_the_last_admin_stays() -> None:
    ada = person("ada", "platform-admin")
    with pytest.raises(Invalid):
        services.user_deactivate(user_id=ada.id, actor=services.user_actor(ada))
    person("eve", "platform-admin")
    services.user_deactivate(user_id=ada.id, actor=services.user_actor(ada))
