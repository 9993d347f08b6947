"""The realm ``ai-factory`` in a Keycloak: made from ``deploy/keycloak/realm.json`` by the admin REST API. No Django."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "keycloak"
REALM = "ai-factory"
CLIENT = "ai-factory-portal"
CLI_CLIENT = "ai-factory-cli"
API_AUDIENCE = "ai-factory-api"
REALM_SECONDS = 280
"""Making a realm means making its keys, which takes a minute on a busy machine; Keycloak itself gives up after 300."""


def demo_users() -> list[dict[str, Any]]:
    """The people of the demonstration, named by their roles; their ids are the ``sub`` that the portal will see."""
    found: list[dict[str, Any]] = json.loads((FOLDER / "demo-users.json").read_text())
    return found


def realm(*, portal_url: str, client_secret: str, passwords: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The realm's representation for one portal.

    Args:
        portal_url: where browsers, and Keycloak itself, find the portal; without a slash at the end.
        passwords: of the demonstration's people by user name; None: a realm without people.
    """
    text = Template((FOLDER / "realm.json").read_text()).substitute(
        AIF_PUBLIC_URL=portal_url, AIF_BACKCHANNEL_PORTAL_URL=portal_url, AIF_OIDC_CLIENT_SECRET=client_secret
    )
    made: dict[str, Any] = json.loads(text)
    if passwords is not None:
        made["users"] = [
            person | {"credentials": [{"type": "password", "value": passwords[person["username"]], "temporary": False}]}
            for person in demo_users()
        ]
    return made


def tenant_client(tenant: str) -> dict[str, Any]:
    """The representation of a tenant cluster's client: its id is the audience that the cluster believes."""
    text = Template((FOLDER / "tenant-client.json").read_text()).substitute(TENANT=tenant)
    made: dict[str, Any] = json.loads(text)
    return made


def groups_scope() -> dict[str, Any]:
    """The representation of the scope that puts a person's groups into the tokens for tenant clusters."""
    made: dict[str, Any] = json.loads((FOLDER / "groups-scope.json").read_text())
    return made


class AdminClient:
    """Keycloak's admin REST API, as ``admin`` of the master realm. Addresses are relative to ``/admin/realms``."""

    def __init__(self, url: str, password: str) -> None:
        self.url = url
        self._password = password
        self._token = ""
        self._until = 0.0

    def call(self, method: str, path: str, body: Any = None, *, patience: float = 60) -> Any:
        """The answer's JSON, or None for an empty one. Raises urllib.error.HTTPError on a status from 400 up."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/admin/realms{path}", data=data, method=method)  # noqa: S310
        request.add_header("Authorization", f"Bearer {self._bearer()}")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=patience) as answer:  # noqa: S310  # our own server's address
            text = answer.read()
        return json.loads(text) if text else None

    def _bearer(self) -> str:
        if time.monotonic() > self._until:
            form = {"grant_type": "password", "client_id": "admin-cli", "username": "admin", "password": self._password}
            data = urllib.parse.urlencode(form).encode()
            address = f"{self.url}/realms/master/protocol/openid-connect/token"
            with urllib.request.urlopen(address, data=data, timeout=60) as answer:  # noqa: S310
                told = json.load(answer)
            self._token = told["access_token"]
            self._until = time.monotonic() + max(0, told["expires_in"] - 20)
        return self._token

    def make_tenant_client(self, tenant: str) -> None:
        """Make the client ``vc-TENANT``, and the scope ``groups`` where there is none."""
        scopes = [scope["name"] for scope in self.call("GET", f"/{REALM}/client-scopes")]
        if groups_scope()["name"] not in scopes:
            self.call("POST", f"/{REALM}/client-scopes", groups_scope())
        self.call("POST", f"/{REALM}/clients", tenant_client(tenant))

    def make_realm(self, representation: Mapping[str, Any]) -> None:
        """Make the realm; one of that name is replaced."""
        try:
            self.call("DELETE", f"/{representation['realm']}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
        self.call("POST", "", dict(representation), patience=REALM_SECONDS)


def wait_until_ready(ready_url: str, alive: Callable[[], bool], *, seconds: float = 180) -> bool:
    """Whether the server answers that it is ready, before it ends or ``seconds`` are over."""
    deadline = time.monotonic() + seconds
    while alive() and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(ready_url, timeout=5) as answer:  # noqa: S310  # our own server's address
                if answer.status == 200:
                    return True
        except OSError:
            time.sleep(0.2)
    return False
