"""A small certificate authority for tests: server and client certificates, kubeconfigs with them inside."""

import base64
import datetime as dt
import ipaddress
import json
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM."""

    cert: str
    key: str


class Authority:
    """Signs certificates for 127.0.0.1 and ``localhost``, and for clients."""

    def __init__(self, name: str = "test-ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._cert = self._sign(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.pem = self._cert.public_bytes(Encoding.PEM).decode()

    def issue(self, common_name: str, *, lasts: dt.timedelta = DAY) -> Pair:
        """A certificate that is good from two days ago until ``lasts`` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        cert = self._sign(name, key, x509.BasicConstraints(ca=False, path_length=None), names, lasts=lasts)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Pair(cert.public_bytes(Encoding.PEM).decode(), pem)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *extensions: x509.ExtensionType,
        lasts: dt.timedelta = DAY,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + lasts)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        ski = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        aki = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(ski, critical=False).add_extension(aki, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def b64(text: str) -> str:
    """A text as kubeconfigs carry PEM."""
    return base64.b64encode(text.encode()).decode()


def kubeconfig(
    server: str,
    *,
    ca: str | None = None,
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
) -> str:
    """A kubeconfig of one context, as JSON (which is YAML)."""
    cluster = {"server": server} | ({"certificate-authority-data": b64(ca)} if ca else {}) | (cluster or {})
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "token-of-a-service-account"} if user is None else user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )
