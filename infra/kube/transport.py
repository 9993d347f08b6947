"""HTTP to one API server: the official client's ``ApiClient`` with credentials from memory and timeouts
always.

No redirect is followed (it would carry the token elsewhere), the only proxy is one that the environment names
(``HTTPS_PROXY``, ``NO_PROXY``), and nothing is retried here: the work queue does that, with its own patience.
A private key reaches OpenSSL through an anonymous file in memory, not through the disk.
"""

import os
import ssl
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from infra.kube.classify import classify, is_status
from infra.kube.errors import Call, Permanent, Unreachable
from infra.kube.kubeconfig import Credentials

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0
WRITE_TIMEOUT = CONNECT_TIMEOUT + READ_TIMEOUT
"""Seconds after which a write has certainly ended on our side: a lease must outlast it."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_MAX_REFUSAL_BYTES = 256 * 1024
_CHUNK = 64 * 1024
_USER_AGENT = "aifactory-portal"


@dataclass(frozen=True)
class Request:
    """One request to an API server. ``query`` without empty values; ``body`` is sent as JSON."""

    method: str
    path: str
    call: Call
    query: Mapping[str, str | int | bool | None] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"
    read_timeout: float = READ_TIMEOUT
    max_bytes: int = MAX_ANSWER_BYTES
    headers: Mapping[str, str] = field(default_factory=dict)
    pairs: Sequence[tuple[str, str]] = ()
    """More of the query, where a key comes several times (``match[]``)."""
    total_timeout: float | None = None
    """Seconds from the question to the end of the answer, where it is read whole; unset: see :attr:`patience`.
    ``read_timeout`` is for each part of it."""
    relayed: bool = False
    """The answer is of something behind the API server: any status of it is an answer, only the API server's own
    refusals (a ``Status`` object) are errors."""

    @property
    def patience(self) -> float:
        """Seconds after which an answer that still comes is left: a server that sends a byte now and then (what stands
        behind a tenant's API server may be anything) would keep a worker for good. A write has ended by then."""
        if self.total_timeout is not None:
            return self.total_timeout
        return CONNECT_TIMEOUT + self.read_timeout * (2 if self.method == "GET" else 1)

    @property
    def target(self) -> str:
        """Path and query; booleans as Kubernetes wants them."""
        pairs = [
            (key, str(value).lower() if isinstance(value, bool) else str(value))
            for key, value in self.query.items()
            if value not in (None, "")
        ]
        pairs += self.pairs
        return f"{self.path}?{urlencode(pairs)}" if pairs else self.path


@dataclass(frozen=True)
class Answer:
    """A successful answer (or any answer of what is behind the API server). ``complete`` is False where it was cut at
    ``max_bytes``."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool = True


class _Relayed(Exception):
    """Carries an answer without success that is not the API server's own."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Transport:
    """Connections to one cluster; usable from several threads, not across a fork.

    Args:
        name: what errors call the cluster.
    """

    def __init__(self, credentials: Credentials, *, name: str) -> None:
        # Large, so it is loaded by the first process that speaks to a cluster and not by every one that starts.
        from kubernetes.client import ApiClient, ApiException, Configuration

        self.name = name
        self._server = credentials.server
        self._tls_failed = ApiException
        configuration = Configuration(host=credentials.server, retries=False, connection_pool_maxsize=16)
        configuration.keep_alive = True
        self._api = ApiClient(configuration)
        self._api.user_agent = _USER_AGENT
        pool_kw = self._api.rest_client.pool_manager.connection_pool_kw
        if credentials.server.startswith("https://"):
            pool_kw["ssl_context"] = tls_context(credentials.ca_data, credentials.client_cert, credentials.client_key)
            if credentials.server_name:
                pool_kw["server_hostname"] = credentials.server_name
                pool_kw["assert_hostname"] = credentials.server_name
        self._headers = {"User-Agent": _USER_AGENT}
        if credentials.token:
            self._headers["Authorization"] = f"Bearer {credentials.token}"

    def send(self, request: Request) -> Answer:
        """Send and read the whole answer, up to ``max_bytes``.

        Raises:
            KubeError: the answer is no success, or there is none.
        """
        until = time.monotonic() + request.patience
        try:
            with self._open(request) as response, _told(self.name, request.call):
                body = _read(response, request.max_bytes + 1, until)
                complete = len(body) <= request.max_bytes
                return Answer(response.status, dict(response.headers), body[: request.max_bytes], complete)
        except _Relayed as relayed:
            return relayed.answer

    def lines(self, request: Request) -> Iterator[bytes]:
        """Send and yield the lines of the answer as they come; closes the connection when left.

        ``read_timeout`` is then the longest silence that is borne.
        """
        with self._open(request) as response, _told(self.name, request.call):
            rest = b""
            for chunk in response.stream(_CHUNK, decode_content=True):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from (line for line in whole if line.strip())
                if len(rest) > request.max_bytes:
                    raise Permanent(
                        request.call,
                        f"Cluster {self.name} sent a line of more than {request.max_bytes} bytes.",
                    )
            if rest.strip():
                yield rest

    def close(self) -> None:
        """Close idle connections; those in use close when they are given back."""
        self._api.rest_client.pool_manager.clear()

    @contextmanager
    def _open(self, request: Request) -> Generator[urllib3.HTTPResponse]:
        headers = {**request.headers, **self._headers, "Accept": request.accept}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        with _told(self.name, request.call):
            try:
                answer = self._api.call_api(
                    request.method,
                    self._server + request.target,
                    headers,
                    request.body,
                    _request_timeout=(CONNECT_TIMEOUT, request.read_timeout),
                )
            except self._tls_failed:
                # What the client makes of urllib3's SSLError, and of nothing else here.
                raise ssl.SSLError from None
        response: urllib3.HTTPResponse = answer.response
        drained = False
        try:
            if not 200 <= response.status < 300:
                with _told(self.name, request.call):
                    body = _read(response, _MAX_REFUSAL_BYTES, time.monotonic() + request.read_timeout)
                if not request.relayed or is_status(body):
                    raise classify(response.status, dict(response.headers), body, request.call)
                raise _Relayed(Answer(response.status, dict(response.headers), body, len(body) < _MAX_REFUSAL_BYTES))
            yield response
            drained = True
        finally:
            # A connection with an unread rest can't be used again.
            if drained or response.closed:
                response.release_conn()
            else:
                response.close()


def _read(response: urllib3.HTTPResponse, limit: int, until: float) -> bytes:
    """The body, up to ``limit`` bytes; ``until``: of the monotonic clock."""
    parts: list[bytes] = []
    size = 0
    # What has come, not a whole chunk: else a server that sends a byte a second is waited for all the same.
    while chunk := response.read1(_CHUNK, decode_content=True):
        parts.append(chunk)
        size += len(chunk)
        if size >= limit:
            break
        if time.monotonic() > until:
            raise TimeoutError
    return b"".join(parts)[:limit]


@contextmanager
def _told(cluster: str, call: Call) -> Generator[None]:
    """Turn the transport's exceptions into :class:`Unreachable`, with a sentence and without addresses'
    secrets."""
    try:
        yield
    except (HTTPError, OSError) as error:
        cause, what = _cause(error)
        raise Unreachable(
            call,
            f"Cluster {cluster} can't be reached to {call.verb} {call.what}: {what} Nothing that runs there "
            "is taken as gone.",
            cause=cause,
            message=type(error).__name__,
        ) from None


def _cause(error: BaseException) -> tuple[str, str]:
    if isinstance(error, NameResolutionError):
        return "dns", "the name of its API server is not known. Check the address and our DNS."
    if isinstance(error, SSLError | ssl.SSLError):
        return "tls", (
            "its certificate is not trusted. Check certificate-authority-data and the server's name in the kubeconfig."
        )
    if isinstance(error, NewConnectionError | ConnectionRefusedError):
        return "refused", ("no connection could be made. Check that its API server runs and that the address is right.")
    if isinstance(error, ConnectTimeoutError | ReadTimeoutError | TimeoutError):
        return "timeout", "it did not answer in time. Check the network between the portal and its API server."
    return "broken", "the connection broke. It is tried again by itself."


def tls_context(ca_data: str | None, client_cert: str | None = None, client_key: str | None = None) -> ssl.SSLContext:
    """TLS 1.2 or newer, the server always verified; only the given authorities are trusted where some are
    given. All are PEM.

    Raises:
        ssl.SSLError: OpenSSL does not take them.
    """
    if ca_data and not ca_data.isascii():
        raise ssl.SSLError("PEM has only ASCII signs")
    context = ssl.create_default_context(cadata=ca_data or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if client_cert and client_key:
        with _as_file(f"{client_cert}\n{client_key}") as path:
            # Without a password given, OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(path, password="")
    return context


@contextmanager
def _as_file(text: str) -> Generator[str]:
    """A path under which OpenSSL can read ``text``: memory where the system has it, else a file of mode
    0600."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("credentials", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "credentials.pem"
        path.touch(0o600)
        path.write_text(text, encoding="ascii")
        yield str(path)
