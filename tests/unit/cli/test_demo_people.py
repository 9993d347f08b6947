"""The demonstration's people: one password each, at Keycloak and here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from portal.accounts.models import User
from portal.demo.people import people_ensure

pytestmark = pytest.mark.django_db(transaction=True)  # the seed writes from threads, which commit


def test_a_password_that_keycloak_was_told_already_is_kept(tmp_path: Path) -> None:
    """Keycloak's realm may be made before the seed, from the same file."""
    logins = tmp_path / "logins.json"
    logins.write_text(json.dumps({"ml-owner": "told-to-keycloak-before"}))
    told = {row["username"]: row["password"] for row in people_ensure(logins)}
    assert told["ml-owner"] == "told-to-keycloak-before"
    assert User.objects.get(username="ml-owner").check_password("told-to-keycloak-before")
    assert json.loads(logins.read_text()) == told
    assert {row["username"]: row["password"] for row in people_ensure(logins)} == told
