"""Reading the environment: one function per type, an error that names the variable and what it must be."""

import json
import os
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured


def text(name: str, default: str = "") -> str:
    """The variable's value without surrounding white space; ``<name>_FILE`` names a file to read it from."""
    path = os.environ.get(f"{name}_FILE")
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE: can't read {path}: {error.strerror}.") from error
    return os.environ.get(name, default).strip()


def required(name: str, what: str) -> str:
    """Like :func:`text`, and an error that says ``what`` to set where it is missing."""
    value = text(name)
    if not value:
        raise ImproperlyConfigured(f"Set {name} (or {name}_FILE): {what}.")
    return value


def flag(name: str, default: bool = False) -> bool:
    """``1/true/yes/on`` or ``0/false/no/off``."""
    value = text(name).lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name}={value!r}: use 1 or 0.")


def number(name: str, default: int, *, least: int = 0) -> int:
    """A whole number that is at least ``least``."""
    value = text(name)
    if not value:
        return default
    if not value.isdecimal() or int(value) < least:
        raise ImproperlyConfigured(f"{name}={value!r}: use a whole number from {least} up.")
    return int(value)


def words(name: str, default: tuple[str, ...] = ()) -> list[str]:
    """Comma-separated words."""
    value = text(name)
    return [word.strip() for word in value.split(",") if word.strip()] if value else list(default)


def networks(name: str) -> list[str]:
    """Comma-separated networks, as ``10.0.0.0/8`` or one address."""
    found = words(name)
    for network in found:
        try:
            ip_network(network)
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}: {network!r} is no network; use 10.0.0.0/8 or 127.0.0.1.") from error
    return found


def mapping(name: str) -> dict[str, Any]:
    """A JSON object; empty where the variable is not set."""
    value = text(name)
    try:
        found = json.loads(value) if value else {}
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: this is not JSON ({error}).") from None
    if not isinstance(found, dict):
        raise ImproperlyConfigured(f'{name}: use a JSON object, such as {{"key": "value"}}.')
    return found


def origins(*addresses: str) -> list[str]:
    """Scheme, host and port of each address that is set: ``https://sso.example.com``."""
    parts = [urlsplit(address) for address in addresses if address]
    return [f"{part.scheme}://{part.netloc}" for part in parts]


def database(name: str, what: str) -> dict[str, Any]:
    """Django's ``DATABASES`` entry from ``postgresql://user:password@host:port/name?host=/socket/folder``.

    Query parameters are libpq's (``sslmode``, ``host`` for a socket folder, ...).
    """
    url = urlsplit(required(name, what))
    if url.scheme not in {"postgresql", "postgres"} or len(url.path) < 2:
        raise ImproperlyConfigured(f"{name}: use postgresql://user:password@host:port/database.")
    options: dict[str, Any] = dict(parse_qsl(url.query))
    host = options.pop("host", "") or unquote(url.hostname or "")
    port = str(options.pop("port", "") or url.port or "")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(url.path[1:]),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "HOST": host,
        "PORT": port,
        "OPTIONS": options,
    }
