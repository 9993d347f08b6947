"""The command that makes the first person."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from portal.accounts.models import User

pytestmark = pytest.mark.django_db


def run(monkeypatch: pytest.MonkeyPatch, password: str, *arguments: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(password + "\n"))
    call_command("user_create", *arguments, stdout=io.StringIO())


def test_the_first_admin(monkeypatch: pytest.MonkeyPatch):
    run(monkeypatch, "a long and quiet sentence", "platform-admin", "--platform-role", "platform-admin")
    user = User.objects.get(username="platform-admin")
    assert user.platform_role == "platform-admin"
    assert user.check_password("a long and quiet sentence")


@pytest.mark.parametrize("password", ["", "short", "password1234", "123456789012"])
def test_weak_passwords_are_refused(monkeypatch: pytest.MonkeyPatch, password: str):
    with pytest.raises(CommandError):
        run(monkeypatch, password, "somebody")
    assert not User.objects.exists()


def test_a_name_is_taken_once(monkeypatch: pytest.MonkeyPatch):
    run(monkeypatch, "a long and quiet sentence", "somebody")
    with pytest.raises(CommandError, match="taken"):
        run(monkeypatch, "a long and quiet sentence", "somebody")
