"""The estate with a browser for each of its people."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.test import Client

from tests.billing.estate import Estate, at, make_estate

Browsers = Callable[[str], Client]


@pytest.fixture
def estate(db: None) -> Estate:
    """November closed, December running."""
    return make_estate()


@pytest.fixture(autouse=True)
def december() -> Iterator[None]:
    """It is the 2nd of December, half past twelve."""
    with at():
        yield


@pytest.fixture
def browser(estate: Estate) -> Browsers:
    """A browser in which that person is signed in."""

    def of(role: str) -> Client:
        client = Client()
        client.force_login(estate.people[role])
        return client

    return of
