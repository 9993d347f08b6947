"""From an endpoint's row to a client of it."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Generator
from contextlib import contextmanager

from infra.kube.client import KubeClient
from infra.kube.errors import KubeError
from infra.kube.transport import tls_context
from infra.models import ClusterEndpoint
from infra.outbound.client import EndpointClient, EndpointError
from infra.outbound.direct import DirectClient
from infra.outbound.proxied import ProxiedClient
from portal.kernel import crypto


@contextmanager
def open_endpoint(endpoint: ClusterEndpoint) -> Generator[EndpointClient]:
    """A client of the endpoint for the ``with`` block. The row need not be stored yet.

    Raises:
        EndpointError: what was set can't be used (address, certificate, secret), or the cluster was abandoned.
    """
    label = f"{endpoint.get_role_display()} of cluster {endpoint.cluster.slug}"
    secret = _secret(endpoint, label)
    headers = {endpoint.tenant_header: endpoint.tenant_value} if endpoint.tenant_header else {}
    if endpoint.via == ClusterEndpoint.Via.PROXY:
        try:
            kube = KubeClient.for_cluster(endpoint.cluster)
        except KubeError as error:
            raise EndpointError(f"{label} can't be asked: {error.sentence}", "proxy") from None
        yield ProxiedClient(label, kube, endpoint.service, endpoint.path_prefix, headers)
        return
    match endpoint.auth:
        case ClusterEndpoint.Auth.BEARER:
            headers["Authorization"] = f"Bearer {secret['token']}"
        case ClusterEndpoint.Auth.BASIC:
            pair = f"{secret['username']}:{secret['password']}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    client = DirectClient(label, endpoint.url, headers, _context(endpoint, secret, label))
    try:
        yield client
    finally:
        client.close()


def _secret(endpoint: ClusterEndpoint, label: str) -> dict[str, str]:
    if endpoint.auth == ClusterEndpoint.Auth.NONE:
        return {}
    try:
        secret: dict[str, str] = json.loads(crypto.decrypt(endpoint.secret_ciphertext))
    except (crypto.DecryptionError, ValueError):
        raise EndpointError(f"The stored credentials of {label} can't be read. Give them again.", "secret") from None
    return secret


def _context(endpoint: ClusterEndpoint, secret: dict[str, str], label: str) -> ssl.SSLContext | None:
    if not endpoint.url.startswith("https://"):
        return None
    try:
        return tls_context(endpoint.ca_data, secret.get("client_cert"), secret.get("client_key"))
    except (ssl.SSLError, ValueError):
        raise EndpointError(
            f"TLS does not take the authority or the client certificate of {label}. Give PEM text, and a key without "
            "a password.",
            "tls",
        ) from None
