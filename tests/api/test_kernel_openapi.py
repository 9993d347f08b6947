"""The OpenAPI document: no warnings, valid, and every operation tells of its problems."""

from __future__ import annotations

import io
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from openapi_spec_validator import validate


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    out = io.StringIO()
    call_command("spectacular", "--fail-on-warn", "--validate", stdout=out)
    return yaml.safe_load(out.getvalue())


def test_it_is_valid(schema: dict[str, Any]) -> None:
    validate(schema)


def test_every_operation_documents_its_problems(schema: dict[str, Any]) -> None:
    for address, methods in schema["paths"].items():
        for method, operation in methods.items():
            if method in ("get", "post", "put", "patch", "delete"):
                assert {"400", "401", "403", "404"} <= set(operation["responses"]), f"{method} {address}"
                assert method == "get" or "409" in operation["responses"]


def test_operations_need_a_token_or_a_session(schema: dict[str, Any]) -> None:
    for address, methods in schema["paths"].items():
        for method, operation in methods.items():
            if address != "/api/v1/schema" and method in ("get", "post", "put", "patch", "delete"):
                assert {"token": []} in operation["security"], f"{method} {address}"
