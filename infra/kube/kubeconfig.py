"""A pasted kubeconfig → :class:`Credentials`, or a refusal that names the field and what to do.

A kubeconfig may name programs to run, files to read and proxies to go through: on our worker each of these is
somebody else's command. So only data that stands in the text itself is taken, and what is not known is
refused. Format: ``clientcmd.k8s.io`` v1 ``Config`` (kubernetes/client-go, tools/clientcmd/api/v1/types.go).
"""

import base64
import binascii
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import yaml
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from infra.credentials import token_issued_at

MAX_BYTES = 256 * 1024
_MAX_DEPTH = 12
_MAX_NODES = 20_000
_LONGEST_SERVER = 400
_DNS_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")

_INLINE_CA = (
    "Put the file's content in base64 into certificate-authority-data (kubectl config view --raw --flatten --minify)."
)
_INLINE = "Put the content itself into {field} (kubectl config view --raw --flatten --minify)."
_SERVICE_ACCOUNT = (
    "Make a service account for the portal with the ClusterRole for observe or manage, and paste a "
    "kubeconfig with its token."
)

_CLUSTER_REFUSED = {
    "certificate-authority": f"it names a file, and files on our side are never read. {_INLINE_CA}",
    "proxy-url": "traffic is not sent through a proxy that a kubeconfig names. Take the field out.",
    "insecure-skip-tls-verify": (
        "an unverified server could be anybody. Take the field out and give certificate-authority-data."
    ),
}
_CLUSTER_KNOWN = {
    "server",
    "certificate-authority-data",
    "tls-server-name",
    "disable-compression",
    "extensions",
}
_USER_REFUSED = {
    "exec": f"it runs a program, and no program of a kubeconfig is run here. {_SERVICE_ACCOUNT}",
    "auth-provider": f"it runs a plug-in, and none is run here. {_SERVICE_ACCOUNT}",
    "client-certificate": "it names a file, and files on our side are never read. "
    + _INLINE.format(field="client-certificate-data"),
    "client-key": "it names a file, and files on our side are never read. " + _INLINE.format(field="client-key-data"),
    "tokenFile": "it names a file, and files on our side are never read. " + _INLINE.format(field="token"),
    "username": f"API servers no longer accept passwords. {_SERVICE_ACCOUNT}",
    "password": f"API servers no longer accept passwords. {_SERVICE_ACCOUNT}",
    "as": f"acting as somebody else is not supported. {_SERVICE_ACCOUNT}",
    "as-uid": f"acting as somebody else is not supported. {_SERVICE_ACCOUNT}",
    "as-groups": f"acting as somebody else is not supported. {_SERVICE_ACCOUNT}",
    "as-user-extra": f"acting as somebody else is not supported. {_SERVICE_ACCOUNT}",
}
_NOTHING = ("", "null", "~", "false")
_USER_KNOWN = {"client-certificate-data", "client-key-data", "token", "extensions"}


class KubeconfigRefused(ValueError):
    """The kubeconfig is not taken. ``field`` is where (``users[ada].user.exec``), the text says what to
    do."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}" if field else why)
        self.field = field


@dataclass(frozen=True, repr=False)
class Credentials:
    """How to reach a cluster. All in memory; PEM texts, no file names.

    Attributes:
        server: ``https://host:port``, perhaps with a path, without a slash at the end.
        ca_data: PEM of the certificate authorities; ``None``: those that the system trusts.
        token: bearer token, ``None`` where a client certificate is used alone.
        client_cert, client_key: PEM, both or neither.
        server_name: the name to expect in the server's certificate, where it is not the host.
        expires_at: when the first of token and certificate ends; ``None``: not known.
    """

    server: str
    ca_data: str | None = None
    token: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    server_name: str | None = None
    expires_at: datetime | None = None

    def __repr__(self) -> str:
        return f"Credentials(server={self.server!r}, …)"

    def dumps(self) -> bytes:
        """As bytes to be encrypted and stored; :meth:`loads` reads them."""
        values = asdict(self)
        values["expires_at"] = self.expires_at.isoformat() if self.expires_at else None
        return json.dumps(values, sort_keys=True).encode()

    @classmethod
    def loads(cls, stored: bytes) -> "Credentials":
        """What :meth:`dumps` wrote."""
        values: dict[str, Any] = json.loads(stored)
        expires = values.pop("expires_at")
        return cls(**values, expires_at=datetime.fromisoformat(expires) if expires else None)

    @property
    def digest(self) -> str:
        """sha256 over all of it: two equal digests are the same credentials."""
        return hashlib.sha256(self.dumps()).hexdigest()


def parse_kubeconfig(text: str, *, now: datetime) -> Credentials:
    """Read a kubeconfig and take the one context that it selects.

    Args:
        text: YAML or JSON, at most 256 KiB.
        now: credentials that ended before are refused.

    Raises:
        KubeconfigRefused: with the field and what to do.
    """
    config = _load(text)
    if config.get("kind", "Config") != "Config" or config.get("apiVersion", "v1") != "v1":
        raise KubeconfigRefused("kind", "this is not a kubeconfig (kind: Config, apiVersion: v1).")
    context_name, context = _context(config)
    where = f"contexts[{context_name}].context"
    cluster_name = _text(context, "cluster", where)
    user_name = _text(context, "user", where)
    cluster_at = f"clusters[{cluster_name}].cluster"
    user_at = f"users[{user_name}].user"
    cluster = _check(
        _named(config, "clusters", "cluster", cluster_name, f"{where}.cluster"),
        cluster_at,
        _CLUSTER_REFUSED,
        _CLUSTER_KNOWN,
    )
    user = _check(_named(config, "users", "user", user_name, f"{where}.user"), user_at, _USER_REFUSED, _USER_KNOWN)
    server = _server(cluster, f"{cluster_at}.server")
    ca_data = _ca(cluster, f"{cluster_at}.certificate-authority-data")
    server_name = _server_name(cluster, f"{cluster_at}.tls-server-name")
    token, token_end = _token(user, user_at)
    cert, key, cert_end = _client_certificate(user, user_at)
    if token is None and cert is None:
        raise KubeconfigRefused(
            user_at, f"there is neither a token nor a client certificate with its key. {_SERVICE_ACCOUNT}"
        )
    ends = [(end, name) for end, name in ((token_end, "token"), (cert_end, "client-certificate-data")) if end]
    for end, name in ends:
        if end <= now:
            raise KubeconfigRefused(f"{user_at}.{name}", f"it expired at {end:%Y-%m-%d %H:%M} UTC. Get a new one.")
    return Credentials(
        server=server,
        ca_data=ca_data,
        token=token,
        client_cert=cert,
        client_key=key,
        server_name=server_name,
        expires_at=min((end for end, _ in ends), default=None),
    )


def issued_at(credentials: Credentials) -> datetime | None:
    """From when the token (else the certificate) is good, as it says of itself; ``None``: it does not say."""
    if credentials.token is not None and (begin := token_issued_at(credentials.token)) is not None:
        return begin
    if credentials.client_cert is not None:
        return x509.load_pem_x509_certificates(credentials.client_cert.encode())[0].not_valid_before_utc
    return None


def checked_server(server: str, where: str) -> str:
    """An API server's address as it may be used, without a slash at its end.

    Raises:
        KubeconfigRefused: not https, no host, credentials in it, …; ``where`` names the field.
    """
    return _server({"server": server}, where)


# ---- the text ---------------------------------------------------------------------------------------------


def _load(text: str) -> dict[str, Any]:
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise KubeconfigRefused(
            "", f"The kubeconfig is larger than {MAX_BYTES // 1024} KiB. Paste the one context that is meant "
            "(kubectl config view --raw --flatten --minify)."
        )  # fmt: skip
    try:
        _refuse_bombs(text)
        # Every scalar stays a text: a token of digits is a token, and no date or number can fail to be one.
        config = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  # builds texts, lists, mappings only
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f" in line {mark.line + 1}" if mark is not None else ""
        # The parser's own text would quote the line, and with it a token.
        raise KubeconfigRefused("", f"The kubeconfig is not valid YAML{at}.") from None
    if not isinstance(config, dict):
        raise KubeconfigRefused("", "The kubeconfig is empty or not a mapping. Paste the whole file's content.")
    return config


def _refuse_bombs(text: str) -> None:
    """Aliases make a few bytes into gigabytes, and depth exhausts the stack: both are found before
    building."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise KubeconfigRefused("", "YAML anchors and aliases (& and *) are not accepted. Write the values out.")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH or count > _MAX_NODES:
            raise KubeconfigRefused("", "The kubeconfig is nested too deep or has too many entries. Paste one context.")


def _context(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    entries = _entries(config, "contexts")
    current = config.get("current-context")
    if current not in (None, *_NOTHING):
        return str(current), _named(config, "contexts", "context", str(current), "current-context")
    if not entries:
        raise KubeconfigRefused("contexts", "there is no context. Paste the whole file's content.")
    if len(entries) > 1:
        names = ", ".join(str(entry.get("name")) for entry in entries[:8])
        raise KubeconfigRefused(
            "current-context",
            f"there are several contexts ({names}) and none is chosen. Set current-context.",
        )
    name = str(entries[0].get("name"))
    return name, _named(config, "contexts", "context", name, "contexts")


def _entries(config: dict[str, Any], section: str) -> list[dict[str, Any]]:
    entries = config.get(section) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise KubeconfigRefused(section, "this must be a list of entries with a name.")
    return entries


def _named(config: dict[str, Any], section: str, inner: str, name: str, asked_at: str) -> dict[str, Any]:
    found = [entry for entry in _entries(config, section) if str(entry.get("name")) == name]
    if len(found) != 1:
        many = "no entry" if not found else "more than one entry"
        raise KubeconfigRefused(asked_at, f"{section} has {many} named {name}.")
    value = found[0].get(inner)
    if not isinstance(value, dict):
        raise KubeconfigRefused(f"{section}[{name}].{inner}", "this must be a mapping.")
    return value


def _check(entry: dict[str, Any], where: str, refused: dict[str, str], known: set[str]) -> dict[str, Any]:
    """``entry`` without the fields that are empty, null or false."""
    given = {field: value for field, value in entry.items() if value not in _NOTHING}
    for field in given:
        if field in refused:
            raise KubeconfigRefused(f"{where}.{field}", refused[field])
        if field not in known:
            raise KubeconfigRefused(
                f"{where}.{field}", "this field is not known here. Take it out if it is not needed."
            )
    return given


def _text(entry: dict[str, Any], field: str, where: str) -> str:
    value = entry.get(field)
    if not isinstance(value, str) or not value.strip():
        raise KubeconfigRefused(f"{where}.{field}", "this must be a text that is not empty.")
    return value.strip()


# ---- the values -------------------------------------------------------------------------------------------


def _server(cluster: dict[str, Any], where: str) -> str:
    server = _text(cluster, "server", where.rpartition(".")[0])
    try:
        parts = urlsplit(server)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        raise KubeconfigRefused(where, "this is not an address. Write https://host:port.") from None
    if parts.scheme != "https":
        raise KubeconfigRefused(where, "only https is accepted: over plain http anybody could read the credentials.")
    if not parts.hostname or not port_is_fine:
        raise KubeconfigRefused(where, "this is not an address. Write https://host:port.")
    if parts.username is not None or parts.password is not None:
        raise KubeconfigRefused(where, "a user name or password in the address is not accepted. Take it out.")
    if parts.query or parts.fragment:
        raise KubeconfigRefused(where, "an address with a query or a fragment is not accepted. Take it out.")
    if len(server) > _LONGEST_SERVER or not server.isascii() or any(c <= " " or c == "\x7f" for c in server):
        raise KubeconfigRefused(
            where, f"an address has at most {_LONGEST_SERVER} ASCII characters, without spaces and line breaks."
        )
    if not _is_host(parts.hostname):
        raise KubeconfigRefused(where, f"{parts.hostname} is no name or IP address of a host.")
    if _never_an_api_server(parts.hostname):
        raise KubeconfigRefused(
            where,
            "no API server lives at such an address: link-local ones belong to the machine itself (there is the "
            "metadata service of clouds). Give the address that the cluster is known by.",
        )
    return server.rstrip("/")


def _is_host(name: str) -> bool:
    """A DNS name or an IP address, as TLS can expect it in a certificate."""
    try:
        ip_address(name)
    except ValueError:
        return len(name) <= 253 and all(_DNS_LABEL.fullmatch(label) for label in name.rstrip(".").split("."))
    return True


def _never_an_api_server(name: str) -> bool:
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_link_local or mapped.is_multicast or mapped.is_unspecified


def _server_name(cluster: dict[str, Any], where: str) -> str | None:
    if not cluster.get("tls-server-name"):
        return None
    name = _text(cluster, "tls-server-name", where.rpartition(".")[0])
    if not _is_host(name):
        raise KubeconfigRefused(where, f"{name[:80]} is no name or IP address of a host.")
    return name


def _base64_pem(entry: dict[str, Any], field: str, where: str) -> str:
    try:
        return base64.b64decode(_text(entry, field, where.rpartition(".")[0]), validate=True).decode("ascii")
    except (binascii.Error, ValueError, UnicodeDecodeError) as error:
        if isinstance(error, KubeconfigRefused):
            raise
        raise KubeconfigRefused(where, "this must be a PEM text in base64.") from None


def _ca(cluster: dict[str, Any], where: str) -> str | None:
    if not cluster.get("certificate-authority-data"):
        return None
    pem = _base64_pem(cluster, "certificate-authority-data", where)
    try:
        x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        raise KubeconfigRefused(where, "there is no certificate in it (PEM, then base64).") from None
    return pem


def _token(user: dict[str, Any], where: str) -> tuple[str | None, datetime | None]:
    if not user.get("token"):
        return None, None
    token = _text(user, "token", where)
    if any(not 0x21 <= ord(character) <= 0x7E for character in token):
        raise KubeconfigRefused(f"{where}.token", "a token has no spaces, line breaks or other characters than ASCII.")
    return token, _jwt_end(token)


def _jwt_end(token: str) -> datetime | None:
    """The claim ``exp`` where the token is a JWT. Not verified: it only tells people when to rotate."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return None


def _client_certificate(user: dict[str, Any], where: str) -> tuple[str | None, str | None, datetime | None]:
    given = [field for field in ("client-certificate-data", "client-key-data") if user.get(field)]
    if not given:
        return None, None, None
    if len(given) == 1:
        raise KubeconfigRefused(
            f"{where}.{given[0]}", "client-certificate-data and client-key-data are needed together."
        )
    cert_at, key_at = f"{where}.client-certificate-data", f"{where}.client-key-data"
    cert_pem = _base64_pem(user, "client-certificate-data", cert_at)
    key_pem = _base64_pem(user, "client-key-data", key_at)
    try:
        certificate = x509.load_pem_x509_certificates(cert_pem.encode())[0]
    except ValueError:
        raise KubeconfigRefused(cert_at, "there is no certificate in it (PEM, then base64).") from None
    try:
        key = load_pem_private_key(key_pem.encode(), password=None)
    except TypeError:
        raise KubeconfigRefused(key_at, "the key is encrypted. Give it without a passphrase.") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KubeconfigRefused(key_at, "there is no private key in it that can be used (PEM, then base64).") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise KubeconfigRefused(key_at, "the key does not belong to client-certificate-data.")
    return cert_pem, key_pem, certificate.not_valid_after_utc
