"""Refusals in the form of a Kubernetes API server: the `Status` bodies, worded as a 1.35 server words them."""

from __future__ import annotations

import base64
import json
from typing import Any

from simulator.kinds import Kind, Obj

_NO_CONTENT_LEFT = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
    "the results. Continuing with the provided token results in an inconsistent list - objects that were "
    "created, modified, or deleted between the time the first chunk was returned and now may show up in the "
    "list."
)


class ApiError(Exception):
    """An answer other than 2xx: a Status body, or plain text where a real server sends text."""

    def __init__(self, code: int, body: Obj | str, headers: dict[str, str] | None = None) -> None:
        super().__init__(body if isinstance(body, str) else body.get("message", ""))
        self.code = code
        self.body = body
        self.headers = headers or {}

    @property
    def reason(self) -> str:
        """The Status reason, '' for text."""
        return "" if isinstance(self.body, str) else str(self.body.get("reason", ""))


def status(
    code: int,
    reason: str,
    message: str,
    details: Obj | None = None,
    metadata: Obj | None = None,
) -> Obj:
    """A Status of failure."""
    body: Obj = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": metadata or {},
        "status": "Failure",
        "message": message,
    }
    if reason:
        body["reason"] = reason
    if details is not None:
        body["details"] = details
    body["code"] = code
    return body


def _details(kind: Kind, name: str = "", *, as_kind: bool = False, **more: Any) -> Obj:
    details: Obj = {}
    if name:
        details["name"] = name
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.kind if as_kind else kind.plural
    details.update(more)
    return details


def not_found(kind: Kind, name: str) -> ApiError:
    """404 for an object that is not there."""
    return ApiError(404, status(404, "NotFound", f'{kind.qualified} "{name}" not found', _details(kind, name)))


def page_not_found() -> ApiError:
    """404 as text: the API group is not installed."""
    return ApiError(404, "404 page not found\n")


def already_exists(kind: Kind, name: str) -> ApiError:
    """409 AlreadyExists."""
    message = f'{kind.qualified} "{name}" already exists'
    return ApiError(409, status(409, "AlreadyExists", message, _details(kind, name)))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    """409 Conflict: an old resourceVersion, or a precondition that does not hold."""
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return ApiError(409, status(409, "Conflict", message, _details(kind, name)))


def stale(kind: Kind, name: str) -> ApiError:
    """409 Conflict of an update with an old resourceVersion."""
    return conflict(
        kind,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def apply_conflict(conflicts: list[tuple[str, str]]) -> ApiError:
    """409 of a server-side apply: (manager as printed, path) for each field somebody else owns."""
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path} for who, path in conflicts
    ]
    if len(conflicts) == 1:
        who, path = conflicts[0]
        message = f"Apply failed with 1 conflict: conflict with {who}: {path}"
    else:
        parts = []
        for who in sorted({who for who, _ in conflicts}):
            lines = "\n".join(f"- {path}" for w, path in conflicts if w == who)
            parts.append(f"conflicts with {who}:\n{lines}")
        message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(parts)
    return ApiError(409, status(409, "Conflict", message, {"causes": causes}))


def forbidden(kind: Kind, name: str, why: str, causes: list[Obj] | None = None) -> ApiError:
    """403 of admission: quota, limit range, a namespace that is going."""
    details = _details(kind, name)
    if causes:
        details["causes"] = causes
    return ApiError(403, status(403, "Forbidden", f'{kind.qualified} "{name}" is forbidden: {why}', details))


def not_allowed(user: str, verb: str, kind: Kind, namespace: str, name: str, sub: str = "") -> ApiError:
    """403 of authorization."""
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    resource = f"{kind.plural}/{sub}" if sub else kind.plural
    subject = f'{kind.qualified} "{name}"' if name else kind.qualified
    message = (
        f'{subject} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "{kind.group}" {where}'
    )
    return ApiError(403, status(403, "Forbidden", message, _details(kind, name)))


def path_not_allowed(user: str, verb: str, path: str) -> ApiError:
    """403 of authorization for a path that is no resource."""
    message = f'forbidden: User "{user}" cannot {verb} path "{path}"'
    return ApiError(403, status(403, "Forbidden", message, {}))


def terminating(kind: Kind, name: str, namespace: str) -> ApiError:
    """403: the namespace is being deleted."""
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(kind, name, why, [cause])


def unauthorized() -> ApiError:
    """401 for a missing or wrong token."""
    body = status(401, "Unauthorized", "Unauthorized")
    return ApiError(401, body, {"WWW-Authenticate": 'Bearer realm="kubernetes-master"'})


class FieldError(Exception):
    """One field that does not hold, before it is known of which object."""

    def __init__(self, field: str, reason: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.cause: Obj = {"reason": reason, "message": message, "field": field}


def bad_value(field: str, value: Any, why: str) -> FieldError:
    """`Invalid value`, with the value in the message as the server prints it."""
    shown = json.dumps(value, separators=(",", ":"))
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")


def required(field: str, why: str = "") -> FieldError:
    """`Required value`."""
    return FieldError(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def prohibited(field: str, why: str) -> FieldError:
    """`Forbidden` on a field (immutable ones, mostly)."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {why}")


def invalid(kind: Kind, name: str, problems: list[FieldError]) -> ApiError:
    """422 with each field that does not hold."""
    texts = [str(problem) for problem in problems]
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = _details(kind, name, as_kind=True, causes=[problem.cause for problem in problems])
    return ApiError(422, status(422, "Invalid", f'{kind.qualified_kind} "{name}" is invalid: {text}', details))


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, status(400, "BadRequest", message))


def not_in_schema(kind: Kind, namespace: str, name: str, path: str) -> ApiError:
    """500 without a reason: a server-side apply with a field that the schema lacks."""
    who = f"{namespace}/{name}; {kind.api_version}, Kind={kind.kind}"
    message = f"failed to create typed patch object ({who}): {path}: field not declared in schema"
    return ApiError(500, status(500, "", message))


def unsupported_media(got: str) -> ApiError:
    """415 for a body the verb does not take."""
    message = f"the body of the request was in an unknown format - got {got!r}"
    return ApiError(415, status(415, "UnsupportedMediaType", message))


def method_not_allowed(verb: str) -> ApiError:
    """405."""
    message = f"the server does not allow this method on the requested resource ({verb})"
    return ApiError(405, status(405, "MethodNotAllowed", message, {}))


def not_simulated(what: str) -> ApiError:
    """501: the simulator does not know this; the message names it."""
    return ApiError(501, status(501, "NotImplemented", f"the simulator does not speak {what}", {"name": what}))


def gone(message: str) -> ApiError:
    """410 Expired."""
    return ApiError(410, status(410, "Expired", message))


def too_old(asked: int, oldest: int) -> Obj:
    """The Status inside a watch's ERROR line."""
    return status(410, "Expired", f"too old resource version: {asked} ({oldest})")


def continue_expired(start: str) -> ApiError:
    """410 of a paged list, with the token that goes on from the same place at the newest version."""
    token = encode_continue(-1, start.lstrip("/"))
    return ApiError(410, status(410, "Expired", _NO_CONTENT_LEFT, metadata={"continue": token}))


def future_version(asked: int, current: int) -> ApiError:
    """504: a resourceVersion that does not exist yet."""
    body = status(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )
    return ApiError(504, body, {"Retry-After": "1"})


def overloaded(retry_after: int = 1) -> ApiError:
    """429 of overload: text, with Retry-After."""
    return ApiError(429, "Too many requests, please try again later.\n", {"Retry-After": str(retry_after)})


def encode_continue(version: int, start: str) -> str:
    """A continue token: URL-safe base64, without padding, of version and the key to go on from."""
    raw = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def decode_continue(token: str) -> tuple[int, str]:
    """(version, start) of a continue token; raises ApiError 400 if it is none."""
    try:
        raw = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(raw["rv"]), str(raw["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request("continue key is not valid: illegal base64 data") from error
