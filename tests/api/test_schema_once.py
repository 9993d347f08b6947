"""The OpenAPI schema is for everybody, and takes seconds to make: nobody can have it made again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/schema"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """One entry for each time that it is made."""
    from portal.home import apidocs

    apidocs.forget()
    found: list[int] = []
    usual = SchemaGenerator.get_schema

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(1)
        return usual(self, *args, **kwargs)

    monkeypatch.setattr(SchemaGenerator, "get_schema", counted)
    yield found
    apidocs.forget()


def test_it_is_made_once_whoever_asks_and_however(made: list[int]) -> None:
    usual = Client().get(ADDRESS)
    assert usual.status_code == 200
    assert b"openapi: 3" in usual.content
    again = Client().get(f"{ADDRESS}?version=2", headers={"accept": "application/vnd.oai.openapi"})
    assert again.content == usual.content
    assert b"openapi" in Client().get(f"{ADDRESS}?format=json").content
    assert Client().get("/api/").status_code == 200
    assert len(made) == 1


def test_what_is_asked_for_is_in_no_header(made: list[int]) -> None:
    answer = Client().get(f"{ADDRESS}?version=a%0ab")
    assert answer.status_code == 200
    assert "a\nb" not in answer["Content-Disposition"]


def test_its_form_is_negotiated(made: list[int]) -> None:
    told = Client().get(ADDRESS, headers={"accept": "application/vnd.oai.openapi+json"})
    assert told["Content-Type"].startswith("application/vnd.oai.openapi+json")
    assert told.json()["openapi"].startswith("3")
    assert Client().get(ADDRESS)["Content-Type"].startswith("application/vnd.oai.openapi")
