"""A real Keycloak for a run of tests, and somebody who fills in its form.

    def test_it(keycloak):            # session fixture; skips by name where Java or Maven is missing
        keycloak.point(settings, "http://127.0.0.1:28100")     # this process's Django, and the client's addresses
        keycloak.env("http://127.0.0.1:28100")                 # the same for processes (AIF_OIDC_…)
        keycloak.admin.call("GET", "/ai-factory/users")        # its admin REST API
        keycloak.add_to_group("ml-owner", "/ml-team/owners")
    keycloak.secure()                                      # from now on its issuer is https, of keycloak.ca_pem

The server is one for the run; ``keycloak`` makes the realm anew for each module, so what a test leaves behind (groups,
disabled people) is gone in the next one.
"""

from __future__ import annotations

import html
import os
import re
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests

from portal.auth.oidc import provider
from portal.cli.keycloak import KeycloakServer, Listener, distribution, missing
from portal.cli.keycloak_realm import (
    API_AUDIENCE,
    CLI_CLIENT,
    CLIENT,
    REALM,
    AdminClient,
    demo_users,
    realm,
    wait_until_ready,
)
from tests.support.instance import free_port
from tests.support.pki import Authority, Pair

CLIENT_SECRET = secrets.token_urlsafe(24)
PASSWORDS = {person["username"]: f"correct-horse-{person['username']}" for person in demo_users()}


@dataclass
class Keycloak:
    """The running server with the realm in it."""

    server: KeycloakServer
    admin: AdminClient
    passwords: dict[str, str] = field(default_factory=lambda: dict(PASSWORDS))
    ca_pem: str = ""
    """The authority of its TLS listener, and the file it is in."""
    ca_file: str = ""
    secured: bool = False

    @property
    def issuer(self) -> str:
        """As in its tokens."""
        return f"{self.server.tls_url if self.secured else self.server.url}/realms/{REALM}"

    def secure(self) -> None:
        """Let the realm's people come over TLS: so its issuer becomes what API servers take."""
        assert self.server.tls_url, "this Keycloak was started without TLS"
        now = self.admin.call("GET", f"/{REALM}")
        attributes = now.get("attributes", {}) | {"frontendUrl": self.server.tls_url}
        self.admin.call("PUT", f"/{REALM}", {"realm": REALM, "attributes": attributes})
        self.secured = True
        provider.forget()

    def make_realm(self, portal_url: str = "http://testserver") -> None:
        """The realm anew, with its people, for a portal at that address."""
        self.secured = False
        self.admin.make_realm(realm(portal_url=portal_url, client_secret=CLIENT_SECRET, passwords=self.passwords))
        provider.forget()

    def env(self) -> dict[str, str]:
        """The settings of a portal process that signs in here."""
        return {
            "AIF_OIDC_ISSUER": self.issuer,
            "AIF_OIDC_CLIENT_ID": CLIENT,
            "AIF_OIDC_CLIENT_SECRET": CLIENT_SECRET,
            "AIF_OIDC_NAME": "Keycloak",
            "AIF_OIDC_API_AUDIENCE": API_AUDIENCE,
            "AIF_OIDC_CLI_CLIENTS": CLI_CLIENT,
        }

    def point(self, settings: Any) -> None:
        """The same for this process (pytest-django's ``settings``)."""
        for name, value in self.env().items():
            setattr(settings, name, [value] if name == "AIF_OIDC_CLI_CLIENTS" else value)
        settings.AIF_OIDC_BACKCHANNEL_URL = f"{self.server.url}/realms/{REALM}"
        settings.OIDC_RP_CLIENT_ID, settings.OIDC_RP_CLIENT_SECRET = CLIENT, CLIENT_SECRET
        provider.forget()

    # -- what an administrator does --------------------------------------------------------------------------
    def user_id(self, username: str) -> str:
        """The person's id there, which is the ``sub`` of their tokens."""
        found = self.admin.call("GET", f"/{REALM}/users?exact=true&username={username}")
        return str(found[0]["id"])

    def group_id(self, path: str) -> str:
        """The id of a group by its path."""
        return str(self.admin.call("GET", f"/{REALM}/group-by-path{path}")["id"])

    def add_to_group(self, username: str, path: str) -> None:
        """Put somebody into a group."""
        self.admin.call("PUT", f"/{REALM}/users/{self.user_id(username)}/groups/{self.group_id(path)}")

    def remove_from_group(self, username: str, path: str) -> None:
        """Take somebody out of a group."""
        self.admin.call("DELETE", f"/{REALM}/users/{self.user_id(username)}/groups/{self.group_id(path)}")

    def realm_role(self, username: str, role: str, *, give: bool = True) -> None:
        """Give a realm role, or take it."""
        found = self.admin.call("GET", f"/{REALM}/roles/{role}")
        path = f"/{REALM}/users/{self.user_id(username)}/role-mappings/realm"
        self.admin.call("POST" if give else "DELETE", path, [found])

    def enable(self, username: str, yes: bool) -> None:
        """Enable or disable somebody."""
        self.admin.call("PUT", f"/{REALM}/users/{self.user_id(username)}", {"enabled": yes})

    def log_out_everywhere(self, username: str) -> None:
        """The administrator's *log out all sessions*."""
        self.admin.call("POST", f"/{REALM}/users/{self.user_id(username)}/logout")

    def client(self, client_id: str) -> dict[str, Any]:
        """A client's representation."""
        found: dict[str, Any] = self.admin.call("GET", f"/{REALM}/clients?clientId={client_id}")[0]
        return found

    def change_client(self, client_id: str, **changes: Any) -> None:
        """Change a client's fields (``attributes`` are added to)."""
        now = self.client(client_id)
        attributes = now.get("attributes", {}) | changes.pop("attributes", {})
        self.admin.call("PUT", f"/{REALM}/clients/{now['id']}", now | changes | {"attributes": attributes})


class Browser:
    """The provider's side of a browser: its cookies, its form. The portal's side is Django's test client."""

    def __init__(self, ca_file: str = "") -> None:
        self.http = requests.Session()
        self.http.trust_env = False  # REQUESTS_CA_BUNDLE goes before a session's own `verify`
        self.http.verify = ca_file or True

    def visit(self, address: str, username: str = "", password: str = "") -> tuple[str, str]:
        """Open an address of the provider, fill its form in where it shows one; (where it sends back to, the page)."""
        answer = self.http.get(address, allow_redirects=False, timeout=30)
        self._keep_cookies()
        if answer.status_code == 200 and username:
            form = re.search(r'<form[^>]*id="kc-form-login"[^>]*action="([^"]+)"', answer.text)
            assert form, answer.text[:3000]
            fields = {"username": username, "password": password, "credentialId": ""}
            answer = self.http.post(html.unescape(form[1]), data=fields, allow_redirects=False, timeout=30)
            self._keep_cookies()
        return answer.headers.get("Location", ""), answer.text

    def _keep_cookies(self) -> None:
        """Browsers send ``Secure`` cookies to loopback without TLS; ``requests`` does not."""
        for cookie in self.http.cookies:
            cookie.secure = False


def back(client: Any, location: str, **headers: str) -> Any:
    """Follow the provider's redirect to the portal with Django's test client."""
    parts = urlsplit(location)
    return client.get(parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)), **headers)


def listener(folder: Path, pair: Pair) -> Listener:
    """A TLS listener on a free port, its files in ``folder``."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    certificate.write_text(pair.cert)
    key.write_text(pair.key)
    return Listener(free_port(), certificate, key)


@pytest.fixture(scope="session")
def keycloak_server() -> Iterator[Keycloak]:
    """The server, ended with the run.

    AIF_TEST_KEYCLOAK=PORT,MANAGEMENT PORT,PASSWORD[,TLS PORT,FILE OF ITS AUTHORITY] names one that runs already.
    """
    if given := os.environ.get("AIF_TEST_KEYCLOAK"):
        port, management, password, *tls = given.split(",")
        at = Listener(int(tls[0]), Path(), Path()) if tls else None
        server = KeycloakServer(int(port), int(management), password, at)
        authority_file = tls[1] if tls else ""
        pem = Path(authority_file).read_text() if authority_file else ""
        yield Keycloak(server, AdminClient(server.url, password), ca_pem=pem, ca_file=authority_file)
        return
    if reason := missing():
        pytest.skip(f"Keycloak: {reason}")
    home = distribution()
    with tempfile.TemporaryDirectory(prefix="aif-keycloak-") as folder, open(Path(folder) / "log", "w+") as log:
        authority = Authority("keycloak-test-ca")
        server = KeycloakServer(
            free_port(), free_port(), secrets.token_urlsafe(16), listener(Path(folder), authority.issue("keycloak"))
        )
        process = subprocess.Popen(
            server.command(home), env=server.environment(os.environ), stdout=log, stderr=subprocess.STDOUT
        )
        try:
            ready = wait_until_ready(server.ready_url, lambda: process.poll() is None, seconds=600)
            log.seek(0)
            assert ready, f"Keycloak does not get ready:\n{log.read()[-3000:]}"
            (Path(folder) / "ca.crt").write_text(authority.pem)
            yield Keycloak(
                server, AdminClient(server.url, server.admin_password), ca_pem=authority.pem,
                ca_file=str(Path(folder) / "ca.crt"),
            )  # fmt: skip
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def keycloak(keycloak_server: Keycloak) -> Keycloak:
    """The server with a fresh realm, for a portal at ``http://testserver``."""
    keycloak_server.make_realm()
    return keycloak_server
