"""The HTTPS face of one cluster: an ASGI application over the registry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from simulator import access, control, discovery, proxy
from simulator.access import User
from simulator.cluster import Cluster
from simulator.errors import ApiError, method_not_allowed, overloaded, status, unauthorized
from simulator.faults import Fault
from simulator.kinds import WRITE_VERBS
from simulator.reading import body_of, dumps, list_body
from simulator.request import Request, Target, find_target
from simulator.subresources import subresource
from simulator.verbs import carry_out
from simulator.watching import WatchCut

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

log = logging.getLogger("simulator")

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


class App:
    """Answers the requests to one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request.read(scope, await _body(receive))
        try:
            await self._answer(request, receive, send)
        except ApiError as error:
            await _refuse(send, error)
        except WatchCut:
            return
        except Exception as error:
            log.exception("%s %s failed", request.method, request.path)
            message = f"Internal error occurred: {type(error).__name__}: {error}"
            await _refuse(send, ApiError(500, status(500, "InternalError", message, {})))

    async def _answer(self, request: Request, receive: Receive, send: Send) -> None:
        path = request.path
        if path.split("/")[1] in ("healthz", "livez", "readyz"):
            await _reply(send, 200, b"ok", _TEXT)
            return
        user = self._user(request, optional=path == "/version")
        if path == "/version":
            await _reply(send, 200, dumps(discovery.version(self.cluster.spec.version)))
            return
        assert user
        if path.startswith("/sim/") or path == "/sim":
            body = control.answer(self.cluster, user, request)
            await _reply(send, 200, dumps(body))
            return
        reviewed = access.review(user, request)
        if reviewed is not None:
            await _reply(send, 201, dumps(reviewed))
            return
        absent = self.cluster.spec.absent_groups
        found = discovery.document(path, self.cluster.registry.kinds, absent, request.headers.get("host", ""))
        if found is not None:
            await self._faulty("get", "discovery", "", "", user, lambda: dumps(found), receive, send)
            return
        target = find_target(path, self.cluster.registry.kinds, absent)
        await self._on_resource(request, target, user, receive, send)

    def _user(self, request: Request, *, optional: bool) -> User | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else ""
        user = self.cluster.users.get(token) or self.cluster.tokens.user(token)
        if user is None and not optional:
            raise unauthorized()
        return user

    async def _on_resource(self, request: Request, target: Target, user: User, receive: Receive, send: Send) -> None:
        verb = target.verb(request)
        self.cluster.tally.count(verb, target.resource, user.name, dry_run=request.dry_run)
        fault = self.cluster.faults.take(verb, target.resource, target.namespace, target.name, user.name)
        if fault is not None and not fault.after and await self._play(fault, receive, send):
            return
        access.check(user, verb, target)
        request = replace(request, user=user.name, groups=user.groups)
        if verb == "watch" and not target.sub:
            if request.method != "GET":
                raise method_not_allowed(verb)
            await self._watch(request, target, receive, send)
            return
        before = self.cluster.store.version
        code, body, media, warnings = self._resource(request, target, verb)
        if verb in WRITE_VERBS and self.cluster.store.version != before:
            self.cluster.tally.changes += 1
        if fault is not None and fault.after and await self._play(fault, receive, send):
            return
        await _reply(send, code, body, media, [("Warning", f'299 - "{_escaped(text)}"') for text in warnings])

    def _resource(self, request: Request, target: Target, verb: str) -> tuple[int, bytes, str, list[str]]:
        """Code, body, media type and warnings for everything but a watch."""
        cluster = self.cluster
        if target.sub == "proxy":
            code, text, media = proxy.answer(cluster, target, request)
            return code, text, media, []
        if target.sub:
            code, body, media = subresource(cluster, request, target)
            return code, body, media, []
        if verb == "get":
            entry = cluster.registry.entry(target.kind, target.namespace, target.name)
            return 200, body_of(entry, request.metadata_only), _JSON, []
        if verb == "list":
            return 200, list_body(cluster.store, request, target), _JSON, []
        if verb not in WRITE_VERBS:
            raise method_not_allowed(verb)
        code, body, warnings = carry_out(cluster.registry, request, target, verb)
        return code, body, _JSON, warnings

    async def _faulty(
        self, verb: str, resource: str, namespace: str, name: str, user: User, body: Callable[[], bytes],
        receive: Receive, send: Send,
    ) -> None:  # fmt: skip
        fault = self.cluster.faults.take(verb, resource, namespace, name, user.name)
        if fault is not None and await self._play(fault, receive, send):
            return
        await _reply(send, 200, body())

    async def _play(self, fault: Fault, receive: Receive, send: Send) -> bool:
        """Play a fault; True if the request is thereby over."""
        if fault.latency:
            await asyncio.sleep(fault.latency)
        if fault.hang:
            await _gone(receive)
            return True
        if fault.cut:
            headers = _headers(_JSON, 1000)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"kind":"', "more_body": True})
            return True
        if not fault.status:
            return False
        if fault.body is not None:
            raise ApiError(fault.status, fault.body)
        if fault.status == 429:
            raise overloaded(fault.retry_after)
        message = fault.message or "the server is currently unable to handle the request"
        reasons = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout", 401: "Unauthorized",
                   403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired"}  # fmt: skip
        raise ApiError(fault.status, status(fault.status, reasons.get(fault.status, ""), message, {}))

    async def _watch(self, request: Request, target: Target, receive: Receive, send: Send) -> None:
        lines = self.cluster.hub.stream(request, target, self.cluster.timing.bookmark)
        gone = asyncio.ensure_future(_gone(receive))
        started = False
        step: asyncio.Future[bytes] | None = None
        try:
            while True:
                step = asyncio.ensure_future(anext(lines))
                if not started:
                    await asyncio.sleep(0)
                    if step.done() and isinstance(step.exception(), ApiError):
                        step.result()
                    headers = _headers(_JSON)
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                    await send({"type": "http.response.body", "body": b"", "more_body": True})
                    started = True
                await asyncio.wait({step, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not step.done():
                    return
                await send({"type": "http.response.body", "body": step.result(), "more_body": True})
        except StopAsyncIteration:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            if step is not None and not step.done():
                step.cancel()
                await asyncio.gather(step, return_exceptions=True)
            await lines.aclose()


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _gone(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _headers(media: str, length: int | None = None) -> list[tuple[bytes, bytes]]:
    headers = [(b"content-type", media.encode()), (b"cache-control", b"no-cache, private")]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    return headers


async def _reply(
    send: Send, code: int, body: bytes, media: str = _JSON, more: list[tuple[str, str]] | None = None
) -> None:
    headers = _headers(media, len(body))
    headers += [(key.encode(), value.encode("latin-1", "replace")) for key, value in more or []]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse(send: Send, error: ApiError) -> None:
    more = list(error.headers.items())
    if isinstance(error.body, str):
        await _reply(send, error.code, error.body.encode(), _TEXT, more)
    else:
        await _reply(send, error.code, dumps(error.body), _JSON, more)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
