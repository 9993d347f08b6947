"""Secrets at rest: encryption with keys from the settings (the newest first), keyed digests for tokens."""

import hashlib
import hmac
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


class DecryptionError(Exception):
    """The bytes were not encrypted with any of the keys that are set."""


@lru_cache(maxsize=4)
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    try:
        return MultiFernet([Fernet(key.strip()) for key in keys])
    except ValueError as error:
        raise ImproperlyConfigured("AIF_ENCRYPTION_KEYS: each key must be 32 bytes in URL-safe base64.") from error


def _current() -> MultiFernet:
    return _fernet(tuple(settings.AIF_ENCRYPTION_KEYS))


def encrypt(plain: bytes) -> bytes:
    """Encrypt and sign with the newest key (Fernet: AES-128-CBC with HMAC-SHA256)."""
    return _current().encrypt(plain)


def decrypt(ciphertext: bytes | memoryview) -> bytes:
    """The plain bytes.

    Raises:
        DecryptionError: none of the keys fits (a key was removed too early, or the bytes were changed).
    """
    try:
        return _current().decrypt(bytes(ciphertext))
    except InvalidToken as error:
        raise DecryptionError("None of AIF_ENCRYPTION_KEYS decrypts this value.") from error


def rotate(ciphertext: bytes | memoryview) -> bytes:
    """The same secret under the newest key."""
    try:
        return _current().rotate(bytes(ciphertext))
    except InvalidToken as error:
        raise DecryptionError("None of AIF_ENCRYPTION_KEYS decrypts this value.") from error


def digest(secret: str) -> str:
    """HMAC-SHA256 of a token's random part under the server's pepper, 64 hexadecimal digits.

    Fit for secrets of 128 random bits and more, not for passwords.
    """
    return hmac.new(settings.AIF_TOKEN_PEPPER.encode(), secret.encode(), hashlib.sha256).hexdigest()


def same(left: str, right: str) -> bool:
    """Compare two texts in a time that tells nothing."""
    return hmac.compare_digest(left.encode(), right.encode())
