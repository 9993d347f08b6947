"""A certificate authority per cluster, the server's certificate, tokens, and kubeconfigs. Kept in the state dir."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import secrets
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from simulator.access import User
from simulator.kinds import Obj
from simulator.objects import write_atomically

ADMIN, OBSERVER = "admin", "system:serviceaccount:aifactory:portal-observe"


class Pki:
    """Files of one cluster under `DIR/pki/NAME`; made at the first start, read again afterwards."""

    def __init__(self, state_dir: Path, name: str, hosts: tuple[str, ...] = ("127.0.0.1", "localhost")) -> None:
        self.folder = state_dir / "pki" / name
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.name = name
        self.ca, self.cert, self.key = (str(self.folder / f) for f in ("ca.crt", "server.crt", "server.key"))
        if not all(Path(path).exists() for path in (self.ca, self.cert, self.key)):
            self._make(hosts)
        self.users = self._users()

    def _make(self, hosts: tuple[str, ...]) -> None:
        now = dt.datetime.now(dt.UTC)
        ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{self.name} simulated CA")])
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only",
             "decipher_only"), False,
        )  # fmt: skip
        authority = (
            x509.CertificateBuilder()
            .subject_name(ca_name)
            .issuer_name(ca_name)
            .public_key(ca_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage), critical=True
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        server = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]))
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=3650))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(digital_signature=True, key_cert_sign=False, crl_sign=False, **usage), critical=True
            )
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        write_atomically(self.ca, authority.public_bytes(pem), 0o644)
        write_atomically(self.cert, server.public_bytes(pem), 0o644)
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        write_atomically(self.key, private)

    def _users(self) -> list[User]:
        path = self.folder / "tokens.json"
        if path.exists():
            tokens = json.loads(path.read_text(encoding="utf-8"))
        else:
            tokens = {"admin": secrets.token_urlsafe(32), "observe": secrets.token_urlsafe(32)}
            write_atomically(str(path), json.dumps(tokens).encode())
        return [
            User(ADMIN, ("system:masters", "system:authenticated"), tokens["admin"], writes=True),
            User(OBSERVER, ("system:serviceaccounts", "system:authenticated"), tokens["observe"], writes=False),
        ]

    def write_kubeconfig(self, path: Path, server: str, user: User) -> None:
        """A kubeconfig with the CA and the user's token inside."""
        ca = base64.b64encode(Path(self.ca).read_bytes()).decode()
        short = "admin" if user.writes else "observe"
        config: Obj = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": {"server": server, "certificate-authority-data": ca}}],
            "users": [{"name": f"{self.name}-{short}", "user": {"token": user.token}}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": f"{self.name}-{short}"}}],
            "current-context": self.name,
        }
        write_atomically(str(path), yaml.safe_dump(config, sort_keys=False).encode())
