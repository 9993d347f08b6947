"""Requests to the provider: bounded in time and size, no redirects, each failure a sentence."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

import requests
from django.conf import settings
from urllib3.exceptions import HTTPError

from portal.auth.oidc.errors import ProviderRefused, ProviderUnavailable

logger = logging.getLogger(__name__)
LARGEST = 1024 * 1024
"""Bytes of an answer that are read."""


def ask(
    method: str, url: str, what: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> tuple[str, bytes]:
    """The content type and body of a 200.

    Args:
        what: names the address in errors: ``the token endpoint``.

    Raises:
        ProviderUnavailable: no answer within ``OIDC_TIMEOUT`` seconds, a 429 or 5xx, a redirect, or too large.
        ProviderRefused: another 4xx, with the provider's own error code.
    """
    try:
        with requests.request(
            method,
            url,
            data=form,
            headers=dict(headers or {}),
            timeout=settings.OIDC_TIMEOUT,
            allow_redirects=False,
            stream=True,
        ) as answer:
            body = _read(answer)
    except (requests.RequestException, HTTPError, OSError, ValueError) as error:  # HTTPError: while the body is read
        # The exception's text may hold the address with its query, never a secret: those are in the body.
        logger.warning("the identity provider does not answer", extra={"what": what, "cause": type(error).__name__})
        raise ProviderUnavailable(f"The identity provider does not answer ({what}). Try again in a minute.") from error
    if answer.status_code == 200 and len(body) <= LARGEST:
        return answer.headers.get("Content-Type", "").lower(), body
    if 400 <= answer.status_code < 500 and answer.status_code not in (404, 408, 429):
        code = _error_code(body)
        logger.info("the identity provider refused", extra={"what": what, "status": answer.status_code, "code": code})
        raise ProviderRefused(f"The identity provider refused ({what}: {code or answer.status_code}). Sign in again.")
    logger.warning("the identity provider is in trouble", extra={"what": what, "status": answer.status_code})
    raise ProviderUnavailable(
        f"The identity provider answered {answer.status_code} ({what}). Try again in a minute; if it stays so, "
        "tell the platform team."
    )


def _read(answer: requests.Response) -> bytes:
    """The body, of which one byte more than ``LARGEST`` at most, within the time for a whole answer.

    Raises:
        TimeoutError: it comes too slowly.
    """
    until, body = time.monotonic() + settings.OIDC_TIMEOUT, b""
    while len(body) <= LARGEST and (part := answer.raw.read1(LARGEST, decode_content=True)):
        body += part
        if time.monotonic() > until:
            raise TimeoutError
    return body


def ask_json(method: str, url: str, what: str, **more: Any) -> dict[str, Any]:
    """The same, for an answer that must be a JSON object."""
    return as_object(ask(method, url, what, **more)[1], what)


def as_object(body: bytes, what: str) -> dict[str, Any]:
    """``body`` as a JSON object. Raises ProviderUnavailable where it is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProviderUnavailable(f"The identity provider's answer can't be read ({what}). Tell the platform team.")
    return found


def _error_code(body: bytes) -> str:
    """RFC 6749 §5.2 ``error``, if it is a plain word."""
    try:
        code = json.loads(body).get("error")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return code if isinstance(code, str) and code.replace("_", "").isalnum() and len(code) < 60 else ""
