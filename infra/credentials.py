"""When a cluster's credentials are to be renewed, and from when on people are warned. Pure, no Django.

A third of their life is kept in reserve: of a token for a day that is eight hours, of a certificate for a year four
months, so of long-lived ones the last fourteen days are warned of.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

LONGEST_WARNING = timedelta(days=14)
_SUBJECT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class ServiceAccountToken:
    """What a bound token of a service account says of itself (claims ``sub``, ``iat``, ``exp`` and ``aud``).

    Not verified: the API server does that. Source of the form: kubernetes, pkg/serviceaccount/claims.go.
    """

    namespace: str
    name: str
    issued_at: datetime
    expires_at: datetime
    audiences: tuple[str, ...]

    @property
    def life(self) -> timedelta:
        """From issue to end."""
        return self.expires_at - self.issued_at


def service_account_token(token: str | None) -> ServiceAccountToken | None:
    """Read a token; ``None``: it is none of a service account, or it never ends (a legacy token's Secret)."""
    claims = _claims(token)
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject.startswith(_SUBJECT):
        return None
    namespace, _, name = subject.removeprefix(_SUBJECT).partition(":")
    issued, ends = _instant(claims.get("iat")), _instant(claims.get("exp"))
    if not namespace or not name or issued is None or ends is None or ends <= issued:
        return None
    audiences = claims.get("aud")
    listed = [audiences] if isinstance(audiences, str) else audiences if isinstance(audiences, list) else []
    return ServiceAccountToken(namespace, name, issued, ends, tuple(str(one) for one in listed))


def token_issued_at(token: str | None) -> datetime | None:
    """The claim ``iat`` of a JWT; ``None`` where there is none."""
    return _instant(_claims(token).get("iat"))


def renew_at(issued_at: datetime | None, expires_at: datetime) -> datetime | None:
    """After two thirds of their life; ``None`` where its begin is not known."""
    return None if issued_at is None else issued_at + (expires_at - issued_at) * 2 / 3


def warn_from(issued_at: datetime | None, expires_at: datetime) -> datetime:
    """From when on people are told: the last fourteen days, or the last sixth of a shorter life (by then a renewal that
    works has happened)."""
    if issued_at is None or issued_at >= expires_at:
        return expires_at - LONGEST_WARNING
    return expires_at - min(LONGEST_WARNING, (expires_at - issued_at) / 6)


def _claims(token: str | None) -> dict[str, object]:
    parts = (token or "").split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _instant(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
