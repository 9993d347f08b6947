"""A certificate authority per cluster, its certificates, static tokens, and kubeconfigs. Kept in the state folder."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import os
import secrets
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ADMIN, FURNISHER, KWOK = "admin", "controlplane", "kwok"
"""Users with every right, each with a static token: people and tests; we ourselves; the fake kubelets."""
SYSTEM_USERS = ("system:kube-controller-manager", "system:kube-scheduler")
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVER_ADDRESSES = ("127.0.0.1", "10.96.0.1")
_DAYS = 3650


class Pki:
    """Files of one cluster under `DIR/pki/NAME`; made at the first start, read again afterwards."""

    def __init__(self, state: Path, name: str) -> None:
        self.folder = state / "pki" / name
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.name = name
        if not (self.folder / "tokens.csv").exists():
            self._make()
        rows = [line.split(",") for line in self.file("tokens.csv").read_text().splitlines()]
        self.tokens = {row[1]: row[0] for row in rows}

    def file(self, name: str) -> Path:
        """The path of one of its files."""
        return self.folder / name

    @property
    def ca_data(self) -> str:
        """The authority's certificate, as kubeconfigs carry it."""
        return base64.b64encode(self.file("ca.crt").read_bytes()).decode()

    def _make(self) -> None:
        now = dt.datetime.now(dt.UTC)
        ca_key = ec.generate_private_key(ec.SECP256R1())
        ca_name = _subject(f"{self.name} local CA")
        ca = (
            _builder(ca_name, ca_name, ca_key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True, crl_sign=True, digital_signature=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        self._write("ca.crt", ca.public_bytes(serialization.Encoding.PEM))
        self._write("ca.key", _private(ca_key))
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVER_NAMES]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in SERVER_ADDRESSES]
        key = ec.generate_private_key(ec.SECP256R1())
        server = (
            _builder(_subject("kube-apiserver"), ca_name, key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        self._write("server.crt", server.public_bytes(serialization.Encoding.PEM))
        self._write("server.key", _private(key))
        signer = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._write("sa.key", _private(signer))
        public = signer.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self._write("sa.pub", public)
        users = [(name, ",system:masters") for name in (ADMIN, FURNISHER, KWOK)]
        users += [(name, "") for name in SYSTEM_USERS]  # what they may is theirs by Kubernetes' own bindings
        rows = [f"{secrets.token_hex(24)},{name},{name}{group}" for name, group in users]
        self._write("tokens.csv", ("\n".join(rows) + "\n").encode())

    def write_kubeconfig(self, name: str, server: str, user: str, token: str) -> Path:
        """Write `NAME.kubeconfig` (JSON, which is YAML): one context that names no file."""
        cluster = {"server": server, "certificate-authority-data": self.ca_data}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": user}}],
            "current-context": self.name,
        }
        self._write(f"{name}.kubeconfig", json.dumps(config, indent=1).encode())
        return self.file(f"{name}.kubeconfig")

    def write_certificate_kubeconfig(self, name: str, server: str, user: str, group: str) -> Path:
        """Write `NAME.kubeconfig` of a client certificate, in the form that vCluster writes; made once."""
        path = self.file(f"{name}.kubeconfig")
        if not path.exists() or json.loads(path.read_text())["clusters"][0]["cluster"]["server"] != server:
            certificate, key = self._client_certificate(user, group)
            cluster = {"server": server, "certificate-authority-data": self.ca_data}
            context = f"{user}@kubernetes"
            data = {
                "client-certificate-data": base64.b64encode(certificate).decode(),
                "client-key-data": base64.b64encode(key).decode(),
            }
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "kubernetes", "cluster": cluster}],
                "users": [{"name": user, "user": data}],
                "contexts": [{"name": context, "context": {"cluster": "kubernetes", "user": user}}],
                "current-context": context,
            }
            self._write(f"{name}.kubeconfig", json.dumps(config, indent=1).encode())
        return path

    def _client_certificate(self, user: str, group: str) -> tuple[bytes, bytes]:
        """A certificate for a client and its key, as PEM."""
        ca = x509.load_pem_x509_certificate(self.file("ca.crt").read_bytes())
        ca_key = serialization.load_pem_private_key(self.file("ca.key").read_bytes(), None)
        assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        named = x509.NameAttribute(NameOID.COMMON_NAME, user), x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)
        certificate = (
            _builder(x509.Name(named), ca.subject, key.public_key(), dt.datetime.now(dt.UTC))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM), _private(key)

    def _write(self, name: str, data: bytes) -> None:
        unfinished = self.folder / f"{name}.part"
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        unfinished.replace(self.folder / name)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=_DAYS))
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature, key_cert_sign=key_cert_sign, crl_sign=crl_sign, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _private(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
