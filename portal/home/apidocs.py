"""The REST API told: the OpenAPI schema, and a page of every operation with its summary, made from it.

Both are for everybody and take seconds to make. The schema is code, so it is made once a process.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request

METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True)
class Operation:
    """One method of one address."""

    method: str
    path: str
    summary: str
    parameters: tuple[tuple[str, str], ...]
    body: str


_making = threading.Lock()


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return made


@lru_cache(maxsize=8)
def _written(media_type: str) -> bytes:
    renderer = next(one for one in SpectacularAPIView.renderer_classes if one.media_type == media_type)
    text = renderer().render(_schema(), renderer_context={})
    return text.encode() if isinstance(text, str) else text


def forget() -> None:
    """Have everything made anew (tests)."""
    for kept in (_schema, _written, operations):
        kept.cache_clear()


class SchemaView(SpectacularAPIView):
    """The schema as YAML or JSON. Nothing of a request goes into it, so nobody can have it made for themselves."""

    permission_classes = [AllowAny]

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """In the form that is asked for."""
        renderer = request.accepted_renderer
        with _making:  # of many who ask at first one makes it, and the others wait
            text = _written(renderer.media_type)
        name = f'inline; filename="openapi.{renderer.format}"'
        return HttpResponse(text, content_type=renderer.media_type, headers={"Content-Disposition": name})


@lru_cache(maxsize=1)
def operations() -> tuple[Operation, ...]:
    """All operations by path and method."""
    with _making:
        schema = _schema()
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
