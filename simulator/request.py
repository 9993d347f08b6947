"""One HTTP request, and the part of its path that names a resource."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote

import yaml

from simulator.errors import ApiError, bad_request, not_simulated, page_not_found, unsupported_media
from simulator.kinds import Kind, KindTable, Obj

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PATCHES = {
    "application/apply-patch+yaml": "apply",
    "application/apply-patch+cbor": "",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/json-patch+json": "json",
}
_NAMESPACE_SUBS = ("status", "finalize")


@dataclass(frozen=True)
class Request:
    """What came over the wire, and from whom."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    user: str = ""
    groups: tuple[str, ...] = ()

    @classmethod
    def read(cls, scope: Any, body: bytes) -> Request:
        """From an ASGI scope."""
        parsed = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        query = {key: values[-1] for key, values in parsed.items()}
        return cls(scope["method"], unquote(scope["path"]), query, headers, body)

    def flag(self, name: str) -> bool:
        """A boolean query parameter."""
        return self.query.get(name, "").lower() in ("true", "1", "t")

    def number(self, name: str) -> int | None:
        """A whole number from the query; raises ApiError 400."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not text.lstrip("-").isdigit():
            raise bad_request(f"unable to decode query parameter {name}: invalid syntax {text!r}")
        return int(text)

    @property
    def dry_run(self) -> bool:
        """dryRun=All; raises ApiError 400 for another value."""
        value = self.query.get("dryRun", "")
        if value not in ("", "All"):
            raise bad_request(f'dryRun: Unsupported value: "{value}": supported values: "All"')
        return value == "All"

    @property
    def manager(self) -> str:
        """The field manager: as given, or the front of the user agent."""
        given = self.query.get("fieldManager", "")
        if not given and self.patch_form == "apply":
            raise bad_request("fieldManager is required for apply patch")
        return given or self.headers.get("user-agent", "").split("/")[0] or "unknown"

    @property
    def patch_form(self) -> str:
        """apply, merge, strategic or json, from the content type; '' for other methods."""
        if self.method != "PATCH":
            return ""
        media = self.headers.get("content-type", "").split(";")[0].strip()
        form = _PATCHES.get(media)
        if not form:
            raise unsupported_media(media)
        return form

    @property
    def metadata_only(self) -> bool:
        """True if the client asks for PartialObjectMetadata first."""
        return "PartialObjectMetadata" in self.headers.get("accept", "").split(",")[0]

    def data(self) -> Any:
        """The body, from JSON or YAML; None if there is none. Raises ApiError 400."""
        if not self.body.strip():
            return None
        media = self.headers.get("content-type", "application/json")
        try:
            return json.loads(self.body)
        except ValueError as error:
            if "yaml" not in media:
                raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error
        try:
            return yaml.safe_load(self.body)
        except yaml.YAMLError as error:
            raise bad_request(f"error decoding YAML: {error}") from error


@dataclass(frozen=True)
class Target:
    """The resource that a path names. `name` is '' for a collection; `rest` is what follows a `proxy`."""

    kind: Kind
    namespace: str
    name: str
    sub: str
    rest: str

    def verb(self, request: Request) -> str:
        """The verb as RBAC names it."""
        if request.method in ("GET", "HEAD"):
            if self.name:
                return "get"
            return "watch" if request.flag("watch") else "list"
        verb = _VERBS.get(request.method, request.method.lower())
        return "deletecollection" if verb == "delete" and not self.name else verb

    @property
    def resource(self) -> str:
        """`pods` or `pods/log`."""
        return f"{self.kind.plural}/{self.sub}" if self.sub else self.kind.plural


def find_target(path: str, kinds: KindTable, absent: frozenset[str]) -> Target:
    """The resource behind `/api/v1/…` or `/apis/GROUP/VERSION/…`.

    Raises ApiError: 404 as text for a group that is declared absent, 501 naming what is not simulated."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise not_simulated(f"the path {path}")
    if group in absent and group not in kinds.groups():
        raise page_not_found()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _NAMESPACE_SUBS):
        namespace, rest = rest[1], rest[2:]
    kind = kinds.find(group, version, rest[0])
    if kind is None:
        raise not_simulated(f"the kind {rest[0]} of {group + '/' if group else ''}{version}")
    if kind.namespaced and not namespace and len(rest) > 1:
        raise ApiError(404, "404 page not found\n")
    name = rest[1] if len(rest) > 1 else ""
    sub = rest[2] if len(rest) > 2 else ""
    return Target(kind, namespace, name, sub, "/".join(rest[3:]))


def delete_options(request: Request) -> Obj:
    """DeleteOptions from the body, with what the query adds."""
    body = request.data()
    options: Obj = dict(body) if isinstance(body, dict) else {}
    if request.query.get("propagationPolicy"):
        options["propagationPolicy"] = request.query["propagationPolicy"]
    if "gracePeriodSeconds" in request.query:
        options["gracePeriodSeconds"] = request.number("gracePeriodSeconds")
    if "orphanDependents" in request.query:
        options["propagationPolicy"] = "Orphan" if request.flag("orphanDependents") else "Background"
    return options
