"""A small client of an API server, for furnishing it: JSON in, JSON out."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import urllib3
import yaml

Obj = dict[str, Any]
FIELD_MANAGER = "controlplane"


class ApiError(RuntimeError):
    """The server refused; `status` is the HTTP status."""

    def __init__(self, status: int, message: str, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self._body = body

    @property
    def told(self) -> str:
        """The server's own sentence: `message` of its Status, or the answer's text."""
        try:
            return str(json.loads(self._body)["message"])
        except (ValueError, KeyError, TypeError):
            return self._body.decode(errors="replace").strip() or str(self)


class Api:
    """Calls with one kubeconfig's token; as somebody else where `acting_as` names a user (impersonation)."""

    def __init__(self, kubeconfig: Path, *, acting_as: str = "", manager: str = FIELD_MANAGER) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server: str = cluster["server"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._pool = urllib3.PoolManager(ssl_context=ssl.create_default_context(cadata=authority), maxsize=8)
        self._headers = {"Authorization": f"Bearer {user['token']}", "User-Agent": f"{manager}/1"}
        if acting_as:
            self._headers["Impersonate-User"] = acting_as
        self._manager = manager

    def call(self, method: str, path: str, body: Any = None, *, media: str = "application/json") -> Obj:
        """One request; raises ApiError for any status from 400 on, urllib3's HTTPError where no answer came."""
        data = json.dumps(body).encode() if body is not None else None
        answer = self._pool.request(
            method, self.server + path, body=data, headers={**self._headers, "Content-Type": media}, timeout=30,
            retries=False,
        )  # fmt: skip
        if answer.status >= 400:
            raise ApiError(
                answer.status, f"{method} {path} answered {answer.status}: {answer.data[:500].decode()}", answer.data
            )
        found: Obj = json.loads(answer.data) if answer.data.startswith(b"{") else {"text": answer.data.decode()}
        return found

    def answers(self, path: str = "/readyz") -> bool:
        """Whether a GET is answered with 200."""
        try:
            self.call("GET", path)
        except (ApiError, urllib3.exceptions.HTTPError):
            return False
        return True

    def apply(self, obj: Obj) -> Obj:
        """Server-side apply."""
        path = f"{path_of(obj)}/{obj['metadata']['name']}?fieldManager={self._manager}&force=true"
        return self.call("PATCH", path, obj, media="application/apply-patch+yaml")

    def find(self, path: str) -> Obj | None:
        """GET of one object; None where the server says that there is none."""
        try:
            return self.call("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str) -> list[Obj]:
        """The objects of a collection; their kind and apiVersion are filled in from the list's."""
        found = self.call("GET", path)
        kind, version = str(found.get("kind", "")).removesuffix("List"), found.get("apiVersion", "")
        return [{"apiVersion": version, "kind": kind, **one} for one in found.get("items") or []]

    def merge(self, path: str, patch: Obj) -> Obj:
        """A merge patch."""
        return self.call("PATCH", path, patch, media="application/merge-patch+json")

    def delete(self, path: str, propagation: str = "Background", uid: str = "") -> bool:
        """Delete one object (with `uid`: that one only); False where it was gone already."""
        options: Obj = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self.call("DELETE", path, options)
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    def create(self, obj: Obj) -> Obj | None:
        """Create; None where it is there already."""
        try:
            return self.call("POST", path_of(obj), obj)
        except ApiError as error:
            if error.status == 409:
                return None
            raise

    def watch(self, path: str, version: str) -> Iterator[Obj]:
        """The events after a version, until the server ends the stream (after five minutes)."""
        answer = self._pool.request(
            "GET", f"{self.server}{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion={version}",
            headers=self._headers, preload_content=False, retries=False,
            timeout=urllib3.Timeout(connect=10, read=330),
        )  # fmt: skip
        try:
            if answer.status >= 400:
                raise ApiError(answer.status, f"watch {path} answered {answer.status}: {answer.read(500).decode()}")
            rest = b""
            for piece in answer.stream(65536, decode_content=True):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line:
                        yield json.loads(line)
        finally:
            answer.close()


def path_of(obj: Obj) -> str:
    """The path of the collection that an object belongs to."""
    group = obj["apiVersion"]
    root = f"/api/{group}" if "/" not in group else f"/apis/{group}"
    kind = obj["kind"]
    lower = kind.lower()
    many = f"{lower[:-1]}ies" if lower.endswith(("cy", "ry")) else lower + ("es" if lower.endswith("s") else "s")
    namespace = obj["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{many}" if namespace else f"{root}/{many}"
