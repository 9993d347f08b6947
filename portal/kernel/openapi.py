"""OpenAPI: every operation's problem answers, added in one place."""

from typing import Any

PROBLEM = {
    "type": "object",
    "description": "RFC 9457 problem details.",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What, where and what to do, in a sentence."},
        "instance": {"type": "string", "format": "uri-reference"},
        "code": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {"type": "string", "description": "RFC 6901 pointer into the request."},
                    "detail": {"type": "string"},
                },
                "required": ["pointer", "detail"],
            },
        },
    },
    "required": ["type", "title", "status", "detail"],
}
ALWAYS = {"400": "Bad request", "401": "Not signed in", "403": "Not allowed", "404": "Not found"}
CHANGES = {
    "409": "Conflict",
    "412": "Changed in the meantime",
    "415": "Unsupported media type",
    "422": "Invalid",
    "428": "If-Match is missing",
    "429": "Too many requests",
}
METHODS = frozenset({"get", "post", "put", "patch", "delete"})


def add_problem_responses(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """drf-spectacular's post-processing hook."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = PROBLEM
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path in result.get("paths", {}).values():
        for method, operation in path.items():
            if method not in METHODS:
                continue
            answers = ALWAYS | (CHANGES if method != "get" else {})
            for status, description in answers.items():
                operation["responses"].setdefault(status, {"description": description, "content": content})
    return result
