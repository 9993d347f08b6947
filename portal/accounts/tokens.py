"""The text of an API token: ``aif_<kind>_<8 id>_<43 secret>_<8 crc32>``. Pure, no Django.

The checksum lets a scanner (and us) tell a token from other text without asking the database; the id finds the
row; only the secret part is secret (256 random bits in URL-safe base64).
"""

import re
import secrets
import string
import zlib
from dataclasses import dataclass, field

SCOPES = frozenset({"read", "write", "platform"})
PERSONAL = "pat"
_ID_ALPHABET = string.ascii_lowercase + string.digits
_FORM = re.compile(r"(aif_([a-z]{2,8})_([a-z0-9]{8})_([A-Za-z0-9_-]{43}))_([0-9a-f]{8})", re.ASCII)


@dataclass(frozen=True)
class TokenText:
    """A token taken apart. Its representation hides the secret."""

    kind: str
    public_id: str
    secret: str = field(repr=False)
    text: str = field(repr=False)


def generate(kind: str = PERSONAL) -> TokenText:
    """A new random token."""
    public_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(8))
    secret = secrets.token_urlsafe(32)
    body = f"aif_{kind}_{public_id}_{secret}"
    return TokenText(kind, public_id, secret, f"{body}_{_checksum(body)}")


def parse(text: str) -> TokenText | None:
    """The parts, or ``None`` if it is no token of ours or was mistyped."""
    match = _FORM.fullmatch(text)
    if match is None or _checksum(match[1]) != match[5]:
        return None
    return TokenText(match[2], match[3], match[4], text)


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"
