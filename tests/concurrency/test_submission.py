"""A form that is sent many times at once acts once. First what happens where each is taken for another form."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from portal.accounts.models import ApiToken, User
from portal.kernel import submission
from tests.support.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)
PATH = "/account/tokens/"
THREADS = 8


def send(client: Client, token: str) -> int:
    """One click."""
    expires = (timezone.now() + timedelta(days=30)).date().isoformat()
    fields = {"name": "ci", "scopes": ["read"], "expires_at": expires, submission.FIELD: token}
    return client.post(PATH, fields).status_code


@pytest.fixture
def clients() -> list[Client]:
    """The same person in several windows."""
    user = User.objects.create_user("mia")
    out = [Client() for _ in range(THREADS)]
    for client in out:
        client.force_login(user)
    return out


def test_with_a_token_for_each_click_each_of_them_acts(clients: list[Client]) -> None:
    at_once([lambda client=client: send(client, submission.new_token()) for client in clients])
    assert ApiToken.objects.count() == THREADS


def test_with_one_token_for_all_clicks_one_of_them_acts(clients: list[Client]) -> None:
    token = submission.new_token()
    answers = at_once([lambda client=client: send(client, token) for client in clients])
    assert ApiToken.objects.count() == 1
    assert sorted(map(str, answers)) == ["201"] + ["303"] * (THREADS - 1)
