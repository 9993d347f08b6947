"""The estate with an API client for each of its people."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from rest_framework.test import APIClient

from tests.billing.estate import Estate, at, make_estate

Clients = Callable[[str], APIClient]


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
def client_of(estate: Estate) -> Clients:
    """A client that is signed in as that person."""

    def of(role: str) -> APIClient:
        client = APIClient()
        client.force_login(estate.people[role])
        return client

    return of
