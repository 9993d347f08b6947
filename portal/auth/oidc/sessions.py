"""Sessions that hang on the identity provider: opened, asked after, ended.

A session is asked after every few minutes with its refresh token, under a lock of its row: of five tabs that find it
due, one asks, and the others find it done. What it says of groups becomes roles at once. A refusal ends the session; no
answer leaves it as it is for a while (``AIF_OIDC_OUTAGE_SECONDS``), then shuts it until there is one.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from enum import StrEnum

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q

from portal.accounts.models import User
from portal.accounts.services import user_actor
from portal.auth.models import OidcSession, SpentLogoutToken
from portal.auth.oidc.errors import ProviderUnavailable, SignInError, TokenRefused
from portal.auth.oidc.exchange import Answer, answer_of, refreshed
from portal.auth.oidc.people import SIGN_IN, person_confirm
from portal.kernel import audit, crypto, ticks
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from tenants.models import Member

logger = logging.getLogger(__name__)
TOUCH_EVERY = timedelta(seconds=30)
AGAIN_AFTER_NO_ANSWER = timedelta(seconds=20)


class Verdict(StrEnum):
    """What is to become of a session."""

    GOES_ON = "goes on"
    ENDED = "ended"
    IDLE = "idle"
    UNAVAILABLE = "unavailable"


def session_open(*, session_key: str, user: User, answer: Answer, replaces: str = "") -> OidcSession:
    """Note a session that has just been opened. ``replaces``: the browser's session key before."""
    now = utcnow()
    with transaction.atomic():
        old = [crypto.digest(key) for key in (session_key, replaces) if key]
        OidcSession.objects.filter(session_digest__in=old).delete()
        return OidcSession.objects.create(
            session_digest=crypto.digest(session_key),
            user=user,
            iss=answer.iss,
            sub=answer.sub,
            sid=answer.sid,
            refresh_ciphertext=_sealed(answer.refresh_token),
            id_token_ciphertext=_sealed(answer.id_token),
            confirmed_at=now,
            next_refresh_at=now + refresh_interval(user),
            active_at=now,
        )


def session_of(session_key: str | None) -> OidcSession | None:
    """The row of a browser's session."""
    return OidcSession.objects.filter(session_digest=crypto.digest(session_key)).first() if session_key else None


def session_check(*, session_key: str, polled: bool) -> Verdict:
    """Whether a session goes on; asks the provider where that is due.

    Args:
        polled: the page asked by itself: that does not count as doing something.
    """
    row = session_of(session_key)
    if row is None:
        return Verdict.ENDED
    now = utcnow()
    if now - row.active_at > timedelta(seconds=settings.AIF_OIDC_IDLE_SECONDS):
        _end(row, "idle")
        return Verdict.IDLE
    if row.next_refresh_at <= now:
        verdict = session_refresh(row)
        if verdict is not Verdict.GOES_ON:
            return verdict
    elif now - row.confirmed_at > _shortest_interval() + timedelta(seconds=settings.AIF_OIDC_OUTAGE_SECONDS):
        # It was asked after moments ago, and there was no answer.
        verdict = _while_unanswered(row)
        if verdict is not Verdict.GOES_ON:
            return verdict
    if not polled and now - row.active_at > TOUCH_EVERY:
        OidcSession.objects.filter(pk=row.pk, active_at__lt=now).update(active_at=now)
    return Verdict.GOES_ON


def session_refresh(row: OidcSession) -> Verdict:
    """Ask the provider whether the session goes on, unless somebody else has just done so."""
    with transaction.atomic():
        locked = OidcSession.objects.select_for_update().select_related(None).filter(pk=row.pk).first()
        if locked is None:
            return Verdict.ENDED
        now = utcnow()
        if locked.next_refresh_at > now:
            return _while_unanswered(locked)
        try:
            token = _opened(locked.refresh_ciphertext)
            if not token:
                raise TokenRefused("There is no refresh token.")
            answer = answer_of(refreshed(token), nonce=None, sub=locked.sub)
            user = person_confirm(iss=answer.iss, sub=answer.sub, claims=answer.claims, create=False)
            if user.pk != locked.user_id:
                raise TokenRefused("The identity is somebody else's now.")
        except ProviderUnavailable:
            locked.next_refresh_at = now + AGAIN_AFTER_NO_ANSWER
            locked.save(update_fields=["next_refresh_at"])
            return _while_unanswered(locked)
        except (SignInError, crypto.DecryptionError) as error:
            _end(locked, str(error))
            return Verdict.ENDED
        locked.refresh_ciphertext = _sealed(answer.refresh_token or token)
        locked.id_token_ciphertext = _sealed(answer.id_token)
        locked.sid = answer.sid or locked.sid
        locked.confirmed_at = now
        locked.next_refresh_at = now + refresh_interval(user)
        locked.save()
        return Verdict.GOES_ON


def refresh_interval(user: User) -> timedelta:
    """How soon a person is asked after again: sooner where more is at stake (platform roles, owners)."""
    owner = Member.objects.filter(user=user, role=Member.Role.OWNER).exists()
    usual, privileged = settings.AIF_OIDC_REFRESH_SECONDS, settings.AIF_OIDC_PRIVILEGED_REFRESH_SECONDS
    return timedelta(seconds=min(usual, privileged) if user.platform_role or owner else usual)


def _shortest_interval() -> timedelta:
    return timedelta(seconds=min(settings.AIF_OIDC_REFRESH_SECONDS, settings.AIF_OIDC_PRIVILEGED_REFRESH_SECONDS))


def session_close(*, session_key: str | None) -> str:
    """End a session whose person signs out; its ID token, the hint for the provider, or an empty text."""
    row = session_of(session_key)
    if row is None:
        return ""
    try:
        hint = _opened(row.id_token_ciphertext)
    except crypto.DecryptionError:
        hint = ""
    _end(row, "signed out", actor=user_actor(row.user))
    return hint


def sessions_end(*, iss: str, jti: str, sid: str, sub: str) -> int:
    """End what a logout token names: the session ``sid``, or all of ``sub``. How many were ended.

    Raises:
        TokenRefused: the logout token was used before.
    """
    named = Q(iss=iss)
    if sid:
        named &= Q(sid=sid)
    if sub:
        named &= Q(sub=sub)
    with transaction.atomic():
        try:
            with transaction.atomic():
                SpentLogoutToken.objects.create(iss=iss, jti=jti)
        except IntegrityError as error:
            raise TokenRefused("The logout token was used before.") from error
        rows = list(OidcSession.objects.select_for_update(of=("self",)).select_related("user").filter(named))
        for row in rows:
            _end(row, "the identity provider ended the session")
    return len(rows)


@ticks.every(3600, "auth.clean")
def clean() -> None:
    """Remove rows of browser sessions that are over by their age, and logout tokens too old to be believed again."""
    now = utcnow()
    OidcSession.objects.filter(started_at__lt=now - timedelta(seconds=settings.SESSION_COOKIE_AGE + 3600)).delete()
    SpentLogoutToken.objects.filter(used_at__lt=now - timedelta(hours=24)).delete()


def _while_unanswered(row: OidcSession) -> Verdict:
    """Another tab has just asked: with an answer all is well; without one the session goes on for a while."""
    due_since = utcnow() - row.confirmed_at - refresh_interval(row.user)
    if due_since > timedelta(seconds=settings.AIF_OIDC_OUTAGE_SECONDS):
        return Verdict.UNAVAILABLE
    return Verdict.GOES_ON


def _end(row: OidcSession, reason: str, actor: Actor = SIGN_IN) -> None:
    with transaction.atomic():
        deleted, _ = OidcSession.objects.filter(pk=row.pk).delete()
        if deleted:
            audit.record(
                "session_end",
                actor=actor,
                tenant_id=None,
                object_kind="user",
                object_id=row.user_id,
                object_name=row.user.username,
                reason=reason,
            )


def _sealed(text: str) -> bytes:
    return crypto.encrypt(text.encode()) if text else b""


def _opened(ciphertext: bytes | memoryview) -> str:
    return crypto.decrypt(ciphertext).decode() if ciphertext else ""
