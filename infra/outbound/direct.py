"""Straight to the address, with httpx."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import httpx

from infra.outbound.client import MAX_BYTES, Cause, EndpointClient, EndpointError, Reply

CONNECT_SECONDS = 5.0
_USER_AGENT = "aifactory-portal"
LINK_LOCAL = "it is a link-local address. There clouds tell a machine's own credentials, and nothing of a cluster."


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
        return self._send("GET", f"{path}{query}", None, timeout, max_bytes)

    def post_form(
        self, path: str, params: Sequence[tuple[str, str]], *, timeout: float = 30, max_bytes: int = MAX_BYTES
    ) -> Reply:
        return self._send("POST", path, urlencode(params).encode(), timeout, max_bytes)

    def _send(self, method: str, target: str, form: bytes | None, timeout: float, max_bytes: int) -> Reply:
        until = time.monotonic() + timeout
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if form is not None else {}
        try:
            request = self._http.build_request(method, f"{self._base}{target}", content=form, headers=headers)
            # httpx bounds each read; the sum of them is bounded while the body is read.
            request.extensions["timeout"] = httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)).as_dict()
            response = self._http.send(request, stream=True)
            try:
                self._refuse_link_local(response)
                return self._read(response, until, timeout, max_bytes)
            finally:
                response.close()
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            OSError,
            UnicodeError,
        ) as error:  # UnicodeError: a name DNS can't have
            cause, what = _cause(error, timeout)
            raise EndpointError(f"{self.label} did not answer: {what}", cause) from None

    def _refuse_link_local(self, response: httpx.Response) -> None:
        """By what really answered, so that no name in DNS leads there."""
        stream = response.extensions.get("network_stream")
        peer = stream.get_extra_info("server_addr") if stream is not None else None
        if peer and is_link_local(str(peer[0])):
            raise EndpointError(f"{self.label} did not answer: {LINK_LOCAL}", "address")

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


def is_link_local(host: str) -> bool:
    """Whether it is an address, and one that only this host's own network segment knows (169.254.0.0/16, fe80::/10)."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_link_local


def address_problem(url: str) -> str:
    """Why a base address can't be asked, as a sentence; empty where it can."""
    try:
        host = httpx.URL(url).host
        host.encode("idna")
    except (httpx.InvalidURL, UnicodeError):
        return "This is no address: its host can't be one. Write it as https://prometheus.example.org."
    return f"This address is not asked: {LINK_LOCAL}" if is_link_local(host) else ""


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
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | UnicodeError):
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
