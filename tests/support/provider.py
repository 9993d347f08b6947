"""An OpenID provider made for tests: a small HTTP server with keys of its own that answers whatever a test wants.

Real Keycloak is in tests/signin; here are the answers that it does not give when asked nicely: forged, late, of
somebody else, broken, none at all.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

CLIENT = "ai-factory-portal"
SUB = "5a1e-sub-of-mia"
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


class FakeProvider:
    """``answers[path]`` may be replaced: a function of the form's fields that gives (status, body)."""

    def __init__(self, url: str) -> None:
        self.issuer = f"{url}/realms/test"
        self.asked: Counter[str] = Counter()
        self.keys: dict[str, Any] = {"one": rsa.generate_private_key(65537, 2048)}
        self.forms: list[dict[str, str]] = []
        self.claims: dict[str, Any] = {"preferred_username": "mia", "name": "Mia", "email": "mia@example.org"}
        self.extra_userinfo: dict[str, Any] = {}
        self.nonce: str | None = None
        self.refresh_number = 0
        self.answers: dict[str, Callable[[dict[str, str]], tuple[int, Any]]] = {
            "/.well-known/openid-configuration": lambda _: (200, self.discovery()),
            "/certs": lambda _: (200, self.jwks()),
            "/token": self._token,
            "/userinfo": lambda _: (200, {"sub": SUB, **self.claims, **self.extra_userinfo}),
        }

    def discovery(self, base: str = "") -> dict[str, Any]:
        """The discovery document."""
        base = base or self.issuer
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{base}/auth",
            "token_endpoint": f"{base}/token",
            "userinfo_endpoint": f"{base}/userinfo",
            "jwks_uri": f"{base}/certs",
            "end_session_endpoint": f"{base}/logout",
        }

    def jwks(self) -> dict[str, Any]:
        """The public keys."""
        return {"keys": [self._public(name, key) for name, key in self.keys.items()]}

    @staticmethod
    def _public(name: str, key: Any) -> dict[str, Any]:
        kind = (
            jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else jwt.algorithms.RSAAlgorithm
        )
        return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}

    def sign(
        self, claims: dict[str, Any], *, kid: str = "one", alg: str = "RS256", key: Any = None, **header: Any
    ) -> str:
        """A token of these claims. A claim of value ``...`` is left out."""
        payload = {name: value for name, value in claims.items() if value is not ...}
        return jwt.encode(payload, key or self.keys[kid], algorithm=alg, headers={"kid": kid, **header})

    def id_claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a right ID token, changed."""
        now = int(time.time())
        right = {
            "iss": self.issuer, "sub": SUB, "aud": CLIENT, "azp": CLIENT, "exp": now + 300, "iat": now, "typ": "ID",
            "nonce": self.nonce, "sid": "session-1",
        }  # fmt: skip
        return {**right, **self.claims, **changes}

    def access_claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a right access token for the API, changed."""
        now = int(time.time())
        right = {
            "iss": self.issuer, "sub": SUB, "aud": ["account", "ai-factory-api"], "azp": "ai-factory-cli",
            "exp": now + 300, "iat": now, "typ": "Bearer", "jti": "a1",
        }  # fmt: skip
        return {**right, **changes}

    def logout_claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a right logout token, changed."""
        now = int(time.time())
        right = {
            "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 120, "jti": f"l{time.monotonic_ns()}",
            "typ": "Logout", "events": {LOGOUT_EVENT: {}}, "sid": "session-1", "sub": SUB,
        }  # fmt: skip
        return {**right, **changes}

    def token_answer(self, **changes: Any) -> tuple[int, dict[str, Any]]:
        """A right answer of the token endpoint with changed ID token claims."""
        self.refresh_number += 1
        refresh = f"refresh-{self.refresh_number}"
        return 200, {
            "access_token": "access", "id_token": self.sign(self.id_claims(**changes)), "refresh_token": refresh
        }  # fmt: skip

    def _token(self, form: dict[str, str]) -> tuple[int, Any]:
        if form.get("grant_type") == "refresh_token" and form["refresh_token"] != f"refresh-{self.refresh_number}":
            return 400, {"error": "invalid_grant"}
        return self.token_answer()

    def fails(self, path: str, status: int, body: Any = None) -> None:
        """From now on this address answers so."""
        self.answers[path] = lambda _: (status, body)

    # -- as a browser ----------------------------------------------------------------------------------------
    def start(self, client: Any, **query: str) -> dict[str, str]:
        """Begin to sign in; the query that the portal sends to the provider. Remembers the nonce."""
        answer = client.get("/auth/oidc/login", query)
        assert answer.status_code == 302, answer.content
        sent = dict(parse_qsl(urlsplit(answer["Location"]).query))
        self.nonce = sent["nonce"]
        return sent

    def sign_in(self, client: Any, **query: str) -> Any:
        """The whole way; the portal's answer to the callback."""
        sent = self.start(client, **query)
        return client.get("/auth/oidc/callback", {"state": sent["state"], "code": "code-1"})


def forged(claims: dict[str, Any], **header: Any) -> str:
    """An unsigned token (``alg: none`` unless the header says otherwise)."""

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none', 'typ': 'JWT', **header})}.{part(claims)}."


@contextmanager
def fake_provider(settings: Any) -> Iterator[FakeProvider]:
    """Running, and set up as the provider of this process."""
    from portal.auth.oidc import provider as module

    holder: list[FakeProvider] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            path = urlsplit(self.path).path.removeprefix("/realms/test")
            length = int(self.headers.get("Content-Length") or 0)
            form = {name: values[0] for name, values in parse_qs(self.rfile.read(length).decode()).items()}
            source = holder[0]
            source.asked[path] += 1
            source.forms.append(form)
            status, body = source.answers.get(path, lambda _: (404, {}))(form)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815  # the names that http.server calls

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    source = FakeProvider(f"http://127.0.0.1:{server.server_port}")
    holder.append(source)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    settings.AIF_OIDC_ISSUER = settings.AIF_OIDC_BACKCHANNEL_URL = source.issuer
    settings.AIF_OIDC_CLIENT_ID = settings.OIDC_RP_CLIENT_ID = CLIENT
    settings.AIF_OIDC_CLIENT_SECRET = settings.OIDC_RP_CLIENT_SECRET = "secret-of-the-client"
    settings.AIF_OIDC_API_AUDIENCE = "ai-factory-api"
    settings.AIF_OIDC_CLI_CLIENTS = ["ai-factory-cli"]
    module.forget()
    try:
        yield source
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        module.forget()
