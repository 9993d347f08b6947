"""Straight to the address, with httpx."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import httpx

from infra.outbound.client import MAX_BYTES, Cause, EndpointClient, EndpointError, Reply

CONNECT_SECONDS = 5.0
_USER_AGENT = "aifactory-portal"


class DirectClient(EndpointClient):
    """Requests to one base address.

    Args:
        base: as ``https://thanos.example.org/prometheus``.
        headers: credentials and the tenant header.
        context: for https addresses.
    """

    can_post = True

    def __init__(self, label: str, base: str, headers: Mapping[str, str], context: ssl.SSLContext | None) -> None:
        super().__init__(label)
        self._base = base.rstrip("/")
        # trust_env off: no proxy, netrc or certificate of our environment is used for somebody's address.
        self._http = httpx.Client(
            verify=context if context is not None else True,
            headers={"User-Agent": _USER_AGENT, "Accept": "*/*", "Accept-Encoding": "gzip", **headers},
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_connections=4),
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(
        self, path: str, params: Sequence[tuple[str, str]] = (), *, timeout: float = 30, max_bytes: int = MAX_BYTES
    ) -> Reply:
        query = f"?{urlencode(params)}" if params else ""
        return self._send(self._http.build_request("GET", f"{self._base}{path}{query}"), timeout, max_bytes)

    def post_form(
        self, path: str, params: Sequence[tuple[str, str]], *, timeout: float = 30, max_bytes: int = MAX_BYTES
    ) -> Reply:
        request = self._http.build_request(
            "POST",
            f"{self._base}{path}",
            content=urlencode(params).encode(),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        return self._send(request, timeout, max_bytes)

    def _send(self, request: httpx.Request, timeout: float, max_bytes: int) -> Reply:
        until = time.monotonic() + timeout
        # httpx bounds each read; the sum of them is bounded while the body is read.
        request.extensions["timeout"] = httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)).as_dict()
        try:
            response = self._http.send(request, stream=True)
            try:
                return self._read(response, until, timeout, max_bytes)
            finally:
                response.close()
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            cause, what = _cause(error, timeout)
            raise EndpointError(f"{self.label} did not answer: {what}", cause) from None

    def _read(self, response: httpx.Response, until: float, timeout: float, max_bytes: int) -> Reply:
        if response.is_redirect or 300 <= response.status_code < 400:
            raise EndpointError(
                f"{self.label} answers with a redirect (HTTP {response.status_code}), perhaps to a sign-in page. "
                "Credentials are not sent elsewhere: give the address of the API itself.",
                "redirect",
            )
        parts: list[bytes] = []
        size = 0
        for chunk in response.iter_bytes():
            size += len(chunk)
            if size > max_bytes:
                raise EndpointError(
                    f"{self.label} answered with more than {max_bytes // 1024} KiB. Ask for less at once.", "too_large"
                )
            if time.monotonic() > until:
                raise EndpointError(f"{self.label} did not finish its answer within {timeout:g} s.", "timeout")
            parts.append(chunk)
        headers = {key.lower(): value for key, value in response.headers.items()}
        return Reply(response.status_code, headers, b"".join(parts))


def _cause(error: Exception, timeout: float) -> tuple[Cause, str]:
    chain = list(_chain(error))
    if any(isinstance(link, ssl.SSLError) for link in chain):
        return "tls", (
            "its certificate is not trusted, or it does not take ours. Give the authority that signed it (PEM), and "
            "check the name in the address."
        )
    if any(isinstance(link, socket.gaierror) for link in chain):
        return "dns", "the name in its address is not known. Check the address and our DNS."
    if isinstance(error, httpx.TimeoutException):
        return "timeout", f"no answer within {timeout:g} s. Check the network between the portal and it."
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        return "address", "its address is not valid. Give one that begins with http:// or https://."
    if isinstance(error, httpx.ConnectError):
        return "refused", "no connection could be made. Check that it runs and that the address is right."
    if isinstance(error, httpx.DecodingError):
        return "broken", "its answer can't be uncompressed."
    return "broken", "the connection broke. It is tried again by itself."


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
