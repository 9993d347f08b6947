"""``python -m portal.cli.signin FILE``: the demonstration's Keycloak, with its realm and people. No Django.

A program of its own between the supervisor and Keycloak: it fetches and builds Keycloak the first time, starts it,
makes the realm (the server keeps it in memory only, so after each start), and ends it on SIGTERM. What it needs to know
is in a file that only our user may read.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import threading
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from portal.cli.instance import ROOT, write_private
from portal.cli.keycloak import KeycloakError, KeycloakServer, distribution
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
from portal.cli.processes import Child

PORTS_ABOVE = 50
"""Keycloak's port is so far above that of the pages; its management port is the next one."""
READY_SECONDS = 900
"""Long, for the first time: it is fetched and built then."""
LOGINS = "demo-logins.json"
"""The passwords of the demonstration's people, by user name: the same at Keycloak and for the local accounts."""


@dataclass(frozen=True)
class KeycloakProgram:
    """What the supervisor needs of it."""

    file: Path
    port: int
    client_secret: str

    @classmethod
    def of(cls, private: Path, portal_port: int) -> KeycloakProgram:
        """For an installation's private folder and the port of its pages; its secrets are made the first time."""
        path = private / "keycloak.json"
        known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        secret: str = known.get("client_secret") or secrets.token_urlsafe(32)
        port = portal_port + PORTS_ABOVE
        facts = {
            "admin_password": known.get("admin_password") or secrets.token_urlsafe(18),
            "client_secret": secret,
            "port": port,
            "portal_url": f"http://127.0.0.1:{portal_port}",
            "issuer": f"http://127.0.0.1:{port}/realms/{REALM}",
            "subjects": {person["username"]: person["id"] for person in demo_users()},
        }
        write_private(path, json.dumps(facts, indent=1))
        _passwords(private)
        return cls(path, port, secret)

    @property
    def issuer(self) -> str:
        """As in its tokens."""
        return f"http://127.0.0.1:{self.port}/realms/{REALM}"

    @property
    def command(self) -> list[str]:
        """The command line of this program."""
        return [sys.executable, "-m", "portal.cli.signin", str(self.file)]

    @property
    def settings(self) -> dict[str, str]:
        """The portal's settings for it."""
        return {
            "AIF_OIDC_ISSUER": self.issuer,
            "AIF_OIDC_CLIENT_ID": CLIENT,
            "AIF_OIDC_CLIENT_SECRET": self.client_secret,
            "AIF_OIDC_NAME": "Keycloak",
            "AIF_OIDC_API_AUDIENCE": API_AUDIENCE,
            "AIF_OIDC_CLI_CLIENTS": CLI_CLIENT,
        }

    def ready(self) -> bool:
        """Whether the realm answers."""
        try:
            address = f"{self.issuer}/.well-known/openid-configuration"
            with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310  # our own server's address
                return bool(answer.status == 200)
        except OSError:
            return False


def _passwords(private: Path) -> dict[str, str]:
    path = private / LOGINS
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    missing = [person["username"] for person in demo_users() if person["username"] not in known]
    if missing:
        known |= {name: secrets.token_urlsafe(12) for name in missing}
        write_private(path, json.dumps(known))
    return known


def main(arguments: list[str]) -> int:
    """Run until SIGTERM, or until Keycloak ends; the exit status."""
    path = Path(arguments[0])
    facts = json.loads(path.read_text())
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server = KeycloakServer(facts["port"], facts["port"] + 1, facts["admin_password"])
    try:
        home = distribution()
    except KeycloakError as error:
        _say("keycloak", str(error))
        return 1
    child = Child(
        "keycloak", server.command(home), env=server.environment(os.environ), cwd=ROOT, say=_say,
        on_parent_death=signal.SIGTERM,
    )  # fmt: skip
    try:
        alive = child.running
        if not wait_until_ready(server.ready_url, lambda: alive() and not stopping.is_set(), seconds=READY_SECONDS):
            if stopping.is_set():
                return 0
            _say("keycloak", f"Keycloak does not get ready within {READY_SECONDS} s.")
            return 1
        representation = realm(
            portal_url=facts["portal_url"], client_secret=facts["client_secret"], passwords=_passwords(path.parent)
        )
        try:
            AdminClient(server.url, server.admin_password).make_realm(representation)
        except OSError as error:
            _say("keycloak", f"Keycloak did not make the realm: {error}. It is tried again.")
            return 1
        while child.running() and not stopping.wait(0.5):
            pass
        return 0 if stopping.is_set() else 1
    finally:
        child.stop(20)


def _say(name: str, line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  # passed on by the supervisor


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
