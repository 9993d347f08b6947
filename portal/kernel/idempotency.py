"""``Idempotency-Key`` for POST: the same request sent twice acts once and gets the same answer.

=====================================  =====================================================================
a key seen for the first time          the request runs, its answer is kept for 24 hours
the same key and body, answered        the kept answer, with ``Idempotent-Replayed: true``
the same key, another body             422
the same key, still running            409 with ``Retry-After``
the same key, its process died         409: nobody knows whether it acted, so it is not run again; look first
answers 409, 429, 5xx                  not kept: they are meant to be repeated
=====================================  =====================================================================
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.db import connection
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.kernel import crypto
from portal.kernel.actors import current_request
from portal.kernel.ids import uuid7
from portal.kernel.models import IdempotencyRecord
from portal.kernel.problems import BadRequest, Conflict, Invalid

HEADER = "Idempotency-Key"
LONGEST_KEY = 200
DEAD_AFTER = 120
"""Seconds after which a request that has not answered is taken for dead (twice the web server's own limit)."""
_KEPT_HEADERS = ("Location", "ETag")
_NOT_KEPT = frozenset({409, 425, 429})


class Idempotent(APIView):
    """Mixin for API views, put before the view class: handles the header of POST requests."""

    _idempotency_id: Any = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """After authentication and permissions: replay, refuse or note that the request runs."""
        super().initial(request, *args, **kwargs)
        key = request.headers.get(HEADER, "")
        if request.method != "POST" or not key:
            return
        if len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable():
            raise BadRequest(f"{HEADER} is at most {LONGEST_KEY} printable ASCII characters.")
        # The token's own id: a token of one team must not get what another one, or the browser, was answered.
        asking = current_request()
        actor = asking.actor if asking is not None else None
        principal = str(request.user.pk if actor is None else actor.id)
        route = f"{request.method} {request.path}"[:400]
        body = json.dumps(request.data, sort_keys=True, default=str).encode()
        digest = hashlib.sha256(body).hexdigest()
        self._idempotency_id = _begin(principal, route, key, digest)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Keep the answer, or forget the key."""
        final = super().finalize_response(request, response, *args, **kwargs)
        record_id, self._idempotency_id = self._idempotency_id, None
        if record_id is not None:
            _end(record_id, final)
        return final

    def handle_exception(self, exc: Exception) -> Response:
        """A replay comes up from :meth:`initial` as an exception."""
        if isinstance(exc, _Replay):
            return exc.response
        return super().handle_exception(exc)


class _Replay(Exception):
    def __init__(self, response: Response) -> None:
        self.response = response


def _begin(principal: str, route: str, key: str, digest: str) -> Any:
    """Note the request in a statement of its own; the loser of a race reads what the winner wrote."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO kernel_idempotencyrecord AS r"
            " (id, principal, route, key, body_digest, state, content_type, headers)"
            " VALUES (%s, %s, %s, %s, %s, 'running', '', '{}'::jsonb)"
            " ON CONFLICT (principal, route, key) DO UPDATE"
            " SET id = excluded.id, body_digest = excluded.body_digest, state = 'running', status = NULL,"
            "     body = NULL, created_at = now()"
            " WHERE r.created_at < now() - interval '24 hours'"
            " RETURNING id",
            [uuid7(), principal, route, key, digest],
        )
        row = cursor.fetchone()
        if row is not None:
            return row[0]
        cursor.execute(
            "SELECT body_digest, state, created_at < now() - make_interval(secs => %s)"
            " FROM kernel_idempotencyrecord WHERE principal = %s AND route = %s AND key = %s",
            [DEAD_AFTER, principal, route, key],
        )
        found = cursor.fetchone()
    if found is None:
        raise Conflict("A request with this key has just failed. Send it again.", retry_after=1)
    known_digest, state, dead = found
    if known_digest != digest:
        raise Invalid(f"This {HEADER} was used with another body. Use a new key for a new request.")
    if state == IdempotencyRecord.State.RUNNING:
        if dead:
            raise Conflict(
                "A request with this key was cut off, and it is not known whether it acted. Look at the object, "
                "then use a new key."
            )
        raise Conflict("A request with this key is still running.", retry_after=1)
    record = IdempotencyRecord.objects.get(principal=principal, route=route, key=key)
    body = crypto.decrypt(record.body) if record.body else b""
    headers = {**record.headers, "Idempotent-Replayed": "true"}
    raise _Replay(Response(json.loads(body) if body else None, status=record.status, headers=headers))


def _end(record_id: Any, response: Response) -> None:
    if response.status_code in _NOT_KEPT or response.status_code >= 500:
        IdempotencyRecord.objects.filter(pk=record_id).delete()
        return

    def keep(rendered: Response) -> None:
        IdempotencyRecord.objects.filter(pk=record_id).update(
            state=IdempotencyRecord.State.DONE,
            status=rendered.status_code,
            content_type=rendered.headers.get("Content-Type", "")[:120],
            headers={name: rendered[name] for name in _KEPT_HEADERS if rendered.has_header(name)},
            body=crypto.encrypt(rendered.content) if rendered.content else None,
        )

    response.add_post_render_callback(keep)
