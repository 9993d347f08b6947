"""Proof that an installation has the keys of a backup, without the keys being in it."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.fernet import Fernet
from django.conf import settings

from portal.kernel import crypto

_WORD = "a known word, to tell whether the keys fit"


def canaries() -> list[str]:
    """The word under each of AIF_ENCRYPTION_KEYS, the newest first."""
    return [Fernet(key.strip()).encrypt(_WORD.encode()).decode() for key in settings.AIF_ENCRYPTION_KEYS]


def pepper() -> str:
    """The word's digest under AIF_TOKEN_PEPPER."""
    return crypto.digest(_WORD)


def complaints(kept_canaries: Sequence[str], kept_pepper: str) -> list[str]:
    """What would be lost with the keys that are set here; empty where nothing would."""
    found = []
    for number, canary in enumerate(kept_canaries, 1):
        try:
            fits = crypto.decrypt(canary.encode()) == _WORD.encode()
        except crypto.DecryptionError:
            fits = False
        if not fits:
            which = "the newest" if number == 1 else f"number {number}"
            found.append(
                f"AIF_ENCRYPTION_KEYS lacks a key of the backup ({which} of {len(kept_canaries)}): kubeconfigs and "
                "tokens of sources could never be read again. Add it behind the others."
            )
    if not crypto.same(kept_pepper, pepper()):
        found.append("AIF_TOKEN_PEPPER is another one than the backup's: every API token would be refused.")
    return found
