"""Through the API server's proxy to a Service: for clusters of which only the API server can be reached."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from infra.kube.client import KubeClient
from infra.kube.errors import Forbidden, KubeError, Unauthorized, Unreachable
from infra.outbound.client import MAX_BYTES, EndpointClient, EndpointError, Reply

SERVICE = re.compile(
    r"(?P<namespace>[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)/((?P<scheme>https?):)?"
    r"(?P<service>[a-z]([a-z0-9-]{0,61}[a-z0-9])?):(?P<port>[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?)"
)
"""``namespace/service:port`` or ``namespace/https:service:port``; the port by number or name."""


class ProxiedClient(EndpointClient):
    """Requests to one Service. A GET through the proxy is a read of the API: an observed cluster allows it.

    Args:
        service: as :data:`SERVICE` says. prefix: as ``/prometheus``.
        headers: the API server passes them on, but never ``Authorization``.
    """

    def __init__(self, label: str, kube: KubeClient, service: str, prefix: str, headers: Mapping[str, str]) -> None:
        super().__init__(label)
        found = SERVICE.fullmatch(service)
        if found is None:
            raise EndpointError(f"{label}: {service!r} is not of the form namespace/service:port.", "address")
        self._kube = kube
        self._namespace, self._service, self._port = found["namespace"], found["service"], found["port"]
        self._scheme: Literal["http", "https"] = "https" if found["scheme"] == "https" else "http"
        self._prefix = prefix.rstrip("/")
        self._headers = headers

    def get(
        self, path: str, params: Sequence[tuple[str, str]] = (), *, timeout: float = 30, max_bytes: int = MAX_BYTES
    ) -> Reply:
        try:
            answer = self._kube.service_proxy(
                self._namespace,
                self._service,
                self._port,
                self._prefix + path,
                params,
                scheme=self._scheme,
                headers=self._headers,
                max_bytes=max_bytes,
                read_timeout=timeout,
            )
        except (Unauthorized, Forbidden) as error:
            raise EndpointError(
                f"{self.label} can't be asked through the API server: {error.sentence} It takes the right get on "
                f"services/proxy in namespace {self._namespace}.",
                "unauthorized",
            ) from None
        except Unreachable as error:
            cause: Literal["timeout", "proxy"] = "timeout" if error.cause == "timeout" else "proxy"
            raise EndpointError(f"{self.label} can't be asked: {error.sentence}", cause) from None
        except KubeError as error:
            said = f" ({error.message})" if error.message and error.message not in error.sentence else ""
            raise EndpointError(
                f"{self.label} can't be asked through the API server's proxy: {error.sentence}{said}", "proxy"
            ) from None
        if 300 <= answer.status < 400:
            raise EndpointError(
                f"{self.label} answers with a redirect (HTTP {answer.status}), perhaps to a sign-in page. Give the "
                "Service and the prefix of the API itself.",
                "redirect",
            )
        if not answer.complete:
            raise EndpointError(
                f"{self.label} answered with more than {max_bytes // 1024} KiB. Ask for less at once.", "too_large"
            )
        return Reply(answer.status, {key.lower(): value for key, value in answer.headers.items()}, answer.body)
