"""The provider's addresses (its discovery document) and keys (its JWKS), kept for a while.

Two roads lead to it. A browser goes by the *front channel*: the issuer's own address. We go by the *back channel*,
which may be another host (inside a cluster, past the proxy). The document is fetched on the back channel; of what it
names, the addresses for browsers are put on the front channel and those for us on the back channel.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jwt
from django.conf import settings
from jwt.exceptions import PyJWKSetError

from portal.auth.oidc.errors import ProviderUnavailable, TokenRefused
from portal.auth.oidc.http import ask_json

ALGORITHMS = ("RS256", "PS256", "ES256")
DISCOVERY_SECONDS = 3600.0
KEYS_SECONDS = 300.0
REFETCH_SECONDS = 10.0
"""An unknown key id fetches the keys again, but no more often than this: else a bad token is a flood at Keycloak."""


def enabled() -> bool:
    """Whether sign-in through a provider is set up."""
    return bool(settings.AIF_OIDC_ISSUER)


@dataclass(frozen=True)
class Endpoints:
    """Where things are. The first two are for browsers, the others for us."""

    authorization: str
    end_session: str
    token: str
    userinfo: str
    keys: str


class Provider:
    """One issuer. Safe to share between threads."""

    def __init__(self, issuer: str, backchannel: str) -> None:
        self.issuer = issuer
        self.backchannel = backchannel
        self._lock = threading.Lock()
        self._fetching = threading.Lock()
        self._endpoints: Endpoints | None = None
        self._endpoints_at = 0.0
        self._keys: dict[tuple[str, str], jwt.PyJWK] = {}
        self._keys_at: float | None = None
        self._tried_at: float | None = None

    def endpoints(self) -> Endpoints:
        """From the discovery document, which is fetched when first needed and once an hour.

        Raises:
            ProviderUnavailable: it can't be had, or it is of another issuer.
        """
        with self._lock:
            fresh = self._endpoints is not None and time.monotonic() < self._endpoints_at + DISCOVERY_SECONDS
            if self._endpoints is None or not fresh:
                try:
                    self._endpoints = self._discover()
                    self._endpoints_at = time.monotonic()
                except ProviderUnavailable:
                    if self._endpoints is None:
                        raise
                    # The addresses hardly ever change: the old ones serve until the next try, in a minute.
                    self._endpoints_at = time.monotonic() - DISCOVERY_SECONDS + 60
            return self._endpoints

    def _discover(self) -> Endpoints:
        address = f"{self.backchannel}/.well-known/openid-configuration"
        told = ask_json("GET", address, "the discovery document")
        if told.get("issuer") != self.issuer:
            raise ProviderUnavailable(
                f"The identity provider calls itself {told.get('issuer')!r}, but AIF_OIDC_ISSUER is {self.issuer!r}. "
                "Set both to the address that browsers use (in Keycloak: hostname)."
            )
        return Endpoints(
            authorization=self._address(told, "authorization_endpoint", front=True),
            end_session=self._address(told, "end_session_endpoint", front=True),
            token=self._address(told, "token_endpoint", front=False),
            userinfo=self._address(told, "userinfo_endpoint", front=False),
            keys=self._address(told, "jwks_uri", front=False),
        )

    def _address(self, told: dict[str, Any], name: str, *, front: bool) -> str:
        found = told.get(name)
        if not isinstance(found, str) or not found.startswith(("https://", "http://")):
            raise ProviderUnavailable(f"The identity provider's discovery document names no {name}.")
        wanted, other = (self.issuer, self.backchannel) if front else (self.backchannel, self.issuer)
        return wanted + found.removeprefix(other) if found.startswith(f"{other}/") else found

    def key(self, key_id: str, algorithm: str) -> jwt.PyJWK:
        """The signing key of that id, fit for the algorithm.

        Raises:
            TokenRefused: the provider has no such key.
            ProviderUnavailable: the keys can't be had.
        """
        with self._lock:
            known, may_ask = self._look(key_id, algorithm)
            if known is not None and not may_ask:
                return known
        # One asks; who can't go on without the answer waits for it here.
        with self._fetching:
            with self._lock:
                known, may_ask = self._look(key_id, algorithm)
                if not may_ask:
                    if known is not None:
                        return known
                    raise TokenRefused("The token is signed with a key that the identity provider does not name.")
                self._tried_at = time.monotonic()
            # Without the lock: others go on with what is known meanwhile.
            try:
                fetched = _read_keys(ask_json("GET", self.endpoints().keys, "the signing keys"))
            except ProviderUnavailable:
                if known is not None:
                    return known
                with self._lock:
                    self._tried_at = None if self._keys_at is None else self._tried_at
                raise
            with self._lock:
                self._keys, self._keys_at = fetched, time.monotonic()
        found = fetched.get((key_id, algorithm))
        if found is None:
            raise TokenRefused("The token is signed with a key that the identity provider does not name.")
        return found

    def _look(self, key_id: str, algorithm: str) -> tuple[jwt.PyJWK | None, bool]:
        """The key as far as it is known, and whether the provider is to be asked: it is not known or old, and nobody
        has asked just now. The caller holds the lock."""
        now = time.monotonic()
        known = self._keys.get((key_id, algorithm))
        fresh = self._keys_at is not None and now < self._keys_at + KEYS_SECONDS
        may_ask = self._tried_at is None or now >= self._tried_at + REFETCH_SECONDS
        return known, may_ask and not (known is not None and fresh)

    @cached_property
    def origin(self) -> str:
        """Scheme, host and port for browsers."""
        return "/".join(self.issuer.split("/", 3)[:3])


def _read_keys(told: dict[str, Any]) -> dict[tuple[str, str], jwt.PyJWK]:
    """Keys by (id, algorithm). Keys without an id, for encryption, or of an algorithm that we don't take are left out.

    An RSA key that names no algorithm is good for RS256 and PS256.
    """
    found: dict[tuple[str, str], jwt.PyJWK] = {}
    listed = told.get("keys")
    for data in listed if isinstance(listed, list) else []:
        if not isinstance(data, dict) or not isinstance(data.get("kid"), str) or data.get("use", "sig") != "sig":
            continue
        usual = {"RSA": ["RS256", "PS256"], "EC": ["ES256"]}.get(str(data.get("kty")), [])
        named = [data["alg"]] if "alg" in data else usual
        for algorithm in named:
            if algorithm not in ALGORITHMS or algorithm not in usual:
                continue
            try:
                found[data["kid"], algorithm] = jwt.PyJWK(data, algorithm=algorithm)
            except (jwt.PyJWTError, PyJWKSetError, ValueError):
                continue  # a kind of key that we don't know; tokens signed with it are refused by name
    return found


_current: Provider | None = None
_current_lock = threading.Lock()


def provider() -> Provider:
    """The provider of the settings. Call it only where :func:`enabled`."""
    global _current  # noqa: PLW0603  # one per process, made when first needed
    with _current_lock:
        wanted = (settings.AIF_OIDC_ISSUER, settings.AIF_OIDC_BACKCHANNEL_URL or settings.AIF_OIDC_ISSUER)
        if _current is None or (_current.issuer, _current.backchannel) != wanted:
            _current = Provider(*wanted)
        return _current


def forget() -> None:
    """Drop what is known of the provider (tests)."""
    global _current  # noqa: PLW0603  # as above
    with _current_lock:
        _current = None
