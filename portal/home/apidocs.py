"""The REST API as a page: every operation with its summary, made from the OpenAPI schema itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator

METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True)
class Operation:
    """One method of one address."""

    method: str
    path: str
    summary: str
    parameters: tuple[tuple[str, str], ...]
    body: str


@lru_cache(maxsize=1)
def operations() -> tuple[Operation, ...]:
    """All operations by path and method. The schema is code, so it is made once a process."""
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    found = []
    for path, item in sorted(schema["paths"].items()):
        for method in METHODS:
            if method not in item:
                continue
            told = item[method]
            parameters = tuple(
                (each["name"], each.get("description", ""))
                for each in told.get("parameters", ())
                if each["in"] != "path"
            )
            content = told.get("requestBody", {}).get("content", {})
            reference = next((each.get("schema", {}).get("$ref", "") for each in content.values()), "")
            found.append(
                Operation(
                    method=method.upper(),
                    path=path,
                    summary=(told.get("description") or "").strip().split("\n")[0],
                    parameters=parameters,
                    body=reference.rpartition("/")[2],
                )
            )
    return tuple(found)


@require_safe
def api_docs(request: HttpRequest) -> HttpResponse:
    """Public, like the schema: it tells of the code, not of anybody's data."""
    return render(request, "home/api_docs.html", {"operations": operations()})
