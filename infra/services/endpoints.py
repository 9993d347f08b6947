"""Where a cluster's Prometheus and OpenCost answer: set, tested, paused and removed by platform-admins.

An address is asked before it is stored, so what is stored has answered once.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction
from django.utils import timezone

from infra.kube.transport import tls_context
from infra.models import Cluster, ClusterEndpoint
from infra.outbound import EndpointError, open_endpoint
from infra.outbound.direct import address_problem
from infra.outbound.proxied import SERVICE
from infra.permissions import require_platform_admin
from infra.prometheus import PrometheusClient, PrometheusError
from infra.prometheus.selector import is_label
from portal.kernel import audit, crypto, workqueue
from portal.kernel.actors import Actor
from portal.kernel.conditions import Condition, set_condition
from portal.kernel.problems import Conflict, Invalid

TELEMETRY = "telemetry"
"""Work kind: reading a cluster's metrics (:mod:`infra.reconcilers.telemetry`); the object is the cluster."""
ANSWERS = "Answers"
"""Condition of an endpoint: whether its last question was answered."""

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,59}")
_HEADERS_OF_OURS = {"authorization", "host", "cookie", "connection", "content-length", "transfer-encoding", "upgrade"}
_SECRET_FIELDS = {
    ClusterEndpoint.Auth.NONE: (),
    ClusterEndpoint.Auth.BEARER: ("token",),
    ClusterEndpoint.Auth.BASIC: ("username", "password"),
    ClusterEndpoint.Auth.MTLS: ("client_cert", "client_key"),
}


@dataclass(frozen=True)
class EndpointFacts:
    """What an endpoint said of itself: ``prometheus`` ``3.5.0``; an empty version is not known."""

    product: str
    version: str


def endpoint_set(
    *,
    cluster: Cluster,
    role: str,
    via: str = ClusterEndpoint.Via.DIRECT,
    url: str = "",
    service: str = "",
    path_prefix: str = "",
    auth: str = ClusterEndpoint.Auth.NONE,
    secret: Mapping[str, str] | None = None,
    ca_data: str = "",
    tenant_header: str = "",
    tenant_value: str = "",
    matchers: Mapping[str, str] | None = None,
    actor: Actor,
) -> ClusterEndpoint:
    """Set the cluster's endpoint of a role, after asking it. One that is there is changed; what was read stays read.

    Args:
        url: directly: the base address, with any prefix. service, path_prefix: through the API server's proxy.
        secret: what ``auth`` needs: ``token``; ``username``, ``password``; ``client_cert``, ``client_key`` (PEM).
            Left out: the stored one stays, as long as kind of credentials and server stay the same.
        matchers: labels that pick the cluster out of a store of many.

    Raises:
        Invalid: a value is wrong, or the endpoint did not answer as it should. Conflict: the cluster was abandoned.
    """
    require_platform_admin(actor, "endpoint_set", object_kind="endpoint", object_name=f"{cluster.slug}/{role}")
    if role not in ClusterEndpoint.Role.values:
        raise Invalid.field("/role", "Use metrics or opencost.")
    row = ClusterEndpoint.objects.filter(cluster=cluster, role=role).first() or ClusterEndpoint(role=role)
    row.cluster = cluster
    before, server = _described(row), _server(row)
    row.via = _one_of("/via", via, ClusterEndpoint.Via.values)
    row.auth = _one_of("/auth", auth, ClusterEndpoint.Auth.values)
    direct = row.via == ClusterEndpoint.Via.DIRECT
    row.url = _checked_url(url) if direct else ""
    row.service, row.path_prefix = ("", "") if direct else (_checked_service(service), _checked_prefix(path_prefix))
    if not direct and row.auth != ClusterEndpoint.Auth.NONE:
        raise Invalid.field(
            "/auth", "The API server's proxy passes no credentials on. Use none, or connect to the address directly."
        )
    row.tenant_header, row.tenant_value = _checked_header(tenant_header, tenant_value)
    row.matchers = _checked_matchers(matchers or {})
    row.ca_data = ca_data.strip() if direct else ""
    fresh = _taken_secret(row, secret, same_server=_server(row) == server)
    _check_tls(row)
    facts = endpoint_probe(row)
    with transaction.atomic():
        if Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk).abandoned_at is not None:
            raise Conflict(f"Cluster {cluster.slug} was abandoned.")
        row.product, row.version = facts.product, facts.version
        row.last_answer_at = timezone.now()
        row.conditions = set_condition(row.conditions, Condition(ANSWERS, "True", "Answered"))
        row.generation = 1 if row._state.adding else row.generation + 1
        row.save()
        after = {**_described(row), **({"secret": "given"} if fresh else {})}
        _record("endpoint_set", actor, row, before if row.generation > 1 else None, after)
        _mark(row)
    return row


def endpoint_test(*, endpoint: ClusterEndpoint, actor: Actor) -> ClusterEndpoint:
    """Ask it now, and store what it said as its condition.

    Raises:
        Invalid: it did not answer as it should (this is stored too).
    """
    require_platform_admin(actor, "endpoint_test", object_kind="endpoint", object_name=_name(endpoint))
    facts: EndpointFacts | None = None
    problem: Invalid | None = None
    try:
        facts = endpoint_probe(endpoint)
    except Invalid as caught:
        problem = caught
    with transaction.atomic():
        row = ClusterEndpoint.objects.select_for_update().select_related("cluster").get(pk=endpoint.pk)
        if facts is not None:
            row.product, row.version, row.last_answer_at = facts.product, facts.version, timezone.now()
            condition = Condition(ANSWERS, "True", "Answered")
        else:
            condition = Condition(ANSWERS, "False", "TestFailed", problem.errors[0]["detail"] if problem else "")
        row.conditions = set_condition(row.conditions, condition)
        row.save(update_fields=["product", "version", "last_answer_at", "conditions"])
        _mark(row)
    if problem is not None:
        raise problem
    return row


def endpoint_pause(*, endpoint: ClusterEndpoint, paused: bool = True, actor: Actor) -> ClusterEndpoint:
    """Ask it nothing any more, or again. What was not read meanwhile is read afterwards, as far as it keeps history."""
    verb = "endpoint_pause" if paused else "endpoint_resume"
    require_platform_admin(actor, verb, object_kind="endpoint", object_name=_name(endpoint))
    with transaction.atomic():
        row = ClusterEndpoint.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=endpoint.pk)
        if row.paused != paused:
            row.paused = paused
            row.generation += 1
            row.save(update_fields=["paused", "generation"])
            _record(verb, actor, row, {"paused": not paused}, {"paused": paused})
            _mark(row)
        return row


def endpoint_remove(*, endpoint: ClusterEndpoint, actor: Actor) -> None:
    """Forget the address and its credentials. What was read from it stays."""
    require_platform_admin(actor, "endpoint_remove", object_kind="endpoint", object_name=_name(endpoint))
    with transaction.atomic():
        row = ClusterEndpoint.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=endpoint.pk)
        _record("endpoint_remove", actor, row, _described(row), None)
        _mark(row)
        row.delete()


def endpoint_probe(endpoint: ClusterEndpoint) -> EndpointFacts:
    """Ask the endpoint who it is. Stores nothing; the row need not be stored.

    Raises:
        Invalid: it did not answer as its role should, with the field of the form to look at.
    """
    pointer = "/url" if endpoint.via == ClusterEndpoint.Via.DIRECT else "/service"
    try:
        with open_endpoint(endpoint) as client:
            if endpoint.role == ClusterEndpoint.Role.METRICS:
                product = PrometheusClient(client, endpoint.matchers).product()
                return EndpointFacts(product.name, product.version)
            reply = client.get("/healthz", timeout=10, max_bytes=64 * 1024)
            if reply.status != 200 or reply.content_type == "text/html":
                raise Invalid.field(
                    pointer,
                    f"{client.label} does not answer as OpenCost at /healthz (HTTP {reply.status}). Give the address "
                    "of its API (port 9003), not of its pages.",
                )
            return EndpointFacts("opencost", "")
    except EndpointError as error:
        at = {"secret": "/secret", "tls": "/ca_data"}.get(error.cause, pointer)
        raise Invalid.field(at, error.sentence) from None
    except PrometheusError as error:
        raise Invalid.field("/auth" if error.kind == "unauthorized" else pointer, error.sentence) from None


# --- checks ----------------------------------------------------------------------------------------------------------


def _one_of(pointer: str, value: str, allowed: list[str]) -> str:
    if value not in allowed:
        raise Invalid.field(pointer, f"Use one of {', '.join(allowed)}.")
    return value


def _checked_url(url: str) -> str:
    url = url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        raise Invalid.field("/url", "This is no address. Write it as https://prometheus.example.org.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_right:
        raise Invalid.field("/url", "Write the address with http:// or https:// and a host.")
    if "@" in parts.netloc:
        raise Invalid.field("/url", "Take the credentials out of the address and give them as user name and password.")
    if parts.query or parts.fragment or any(letter.isspace() for letter in url) or len(url) > 400:
        raise Invalid.field("/url", "Give only the base address (at most 400 characters), without ? and #.")
    if problem := address_problem(url):
        raise Invalid.field("/url", problem)
    return url


def _checked_service(service: str) -> str:
    service = service.strip()
    if not SERVICE.fullmatch(service):
        raise Invalid.field(
            "/service",
            "Write it as namespace/service:port, as monitoring/prometheus-operated:9090, or with https: before the "
            "service's name.",
        )
    return service


def _checked_prefix(prefix: str) -> str:
    prefix = prefix.strip().rstrip("/")
    if prefix and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", prefix):
        raise Invalid.field("/path_prefix", "Begin it with a slash, as /prometheus; letters, digits, dots and dashes.")
    if any(part in (".", "..") for part in prefix.split("/")) or len(prefix) > 200:
        raise Invalid.field("/path_prefix", "Use at most 200 characters, and no parts . or ..")
    return prefix


def _checked_header(name: str, value: str) -> tuple[str, str]:
    name, value = name.strip(), value.strip()
    if not name and not value:
        return "", ""
    if not _HEADER.fullmatch(name) or name.lower() in _HEADERS_OF_OURS or name.lower().startswith("impersonate-"):
        raise Invalid.field("/tenant_header", "Name the header of the tenant, as X-Scope-OrgID.")
    if not value or not value.isascii() or not value.isprintable() or len(value) > 120:
        raise Invalid.field("/tenant_value", "Give the tenant: at most 120 letters, digits and signs.")
    return name, value


def _checked_matchers(matchers: Mapping[str, str]) -> dict[str, str]:
    for name, value in matchers.items():
        if not is_label(name) or name.startswith("__"):
            raise Invalid.field("/matchers", f"{name!r} is no label. Write cluster=gpu-fra-1.")
        if not value or len(value) > 200:
            raise Invalid.field("/matchers", f"Give a value of at most 200 characters for {name}.")
    return dict(matchers)


def _taken_secret(row: ClusterEndpoint, secret: Mapping[str, str] | None, *, same_server: bool) -> bool:
    """Put the given secret into the row, or leave the stored one; whether a new one was given."""
    wanted = _SECRET_FIELDS[ClusterEndpoint.Auth(row.auth)]
    given = {key: value for key, value in (secret or {}).items() if value}
    if not wanted:
        row.secret_ciphertext = b""
        return False
    if not given and row.secret_ciphertext and same_server:
        return False
    for name in wanted:
        if not given.get(name):
            raise Invalid.field(f"/secret/{name}", f"Give the {name.replace('_', ' ')}; it is encrypted.")
    if not all(value.isprintable() for name, value in given.items() if name in ("token", "username", "password")):
        raise Invalid.field("/secret", "The credentials hold a line break or another sign that no header can carry.")
    if "token" in wanted and not given["token"].isascii():
        raise Invalid.field("/secret/token", "A token has only ASCII letters, digits and signs.")
    row.secret_ciphertext = crypto.encrypt(json.dumps({name: given[name] for name in wanted}).encode())
    return True


def _check_tls(row: ClusterEndpoint) -> None:
    secure = row.url.startswith("https://")
    if row.auth == ClusterEndpoint.Auth.MTLS and not secure:
        raise Invalid.field("/url", "A client certificate needs an https:// address.")
    if not row.ca_data:
        return
    if not secure:
        raise Invalid.field("/ca_data", "An authority needs an https:// address.")
    try:
        tls_context(row.ca_data)
    except (ssl.SSLError, ValueError):
        raise Invalid.field("/ca_data", "This is no certificate in PEM (-----BEGIN CERTIFICATE-----).") from None


def _server(row: ClusterEndpoint) -> tuple[str, str, str]:
    """What the stored secret was given for: the kind of credentials, scheme, host and port."""
    parts = urlsplit(row.url)
    return row.auth, parts.scheme, parts.netloc


# --- inside ----------------------------------------------------------------------------------------------------------


def _name(endpoint: ClusterEndpoint) -> str:
    return f"{endpoint.cluster.slug}/{endpoint.role}"


def _described(row: ClusterEndpoint) -> dict[str, Any]:
    names = ("via", "url", "service", "path_prefix", "auth", "tenant_header", "tenant_value", "matchers", "paused")
    return {name: getattr(row, name) for name in names if getattr(row, name)}


def _mark(row: ClusterEndpoint) -> None:
    if row.role == ClusterEndpoint.Role.METRICS:
        workqueue.mark(TELEMETRY, row.cluster_id, cluster_id=row.cluster_id)


def _record(
    verb: str,
    actor: Actor,
    row: ClusterEndpoint,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    audit.record(
        verb,
        actor=actor,
        tenant_id=None,
        object_kind="endpoint",
        object_id=row.pk,
        object_name=_name(row),
        before=before,
        after=after,
    )
