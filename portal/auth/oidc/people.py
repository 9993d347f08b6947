"""Who somebody is here: found by issuer and subject alone. Names and e-mail addresses are labels that may change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from portal.accounts.models import Identity, User
from portal.auth.oidc.errors import SignInRefused
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.text import storable
from tenants.claims import read_claim
from tenants.services.group_roles import roles_sync

SIGN_IN = Actor.system("sign-in")
ROLES_CLAIM = "realm_access.roles"
_NOT_KEPT = frozenset(
    {"nonce", "at_hash", "c_hash", "s_hash", "jti", "sid", "session_state", "exp", "iat", "nbf", "auth_time", "acr"}
    | {"azp", "aud", "typ", "iss", "scope", "allowed-origins"}
)
_UNFIT = re.compile(r"[^a-z0-9._-]+")


def person_confirm(*, iss: str, sub: str, claims: Mapping[str, Any], create: bool = True) -> User:
    """The person of this identity with labels and roles as the claims say; made at the first sign-in.

    Nobody is found by an e-mail address or a name: a local account of the same name stays somebody else's.

    Args:
        claims: of a validated ID token, completed by the userinfo answer of the same subject.
        create: False: only somebody who has signed in before.

    Raises:
        SignInRefused: deactivated here, unknown (``create=False``), or without the role that is required.
    """
    _require_role(claims)
    with transaction.atomic():
        identity = _identity(iss, sub) or (_make(iss, sub, claims) if create else None)
        if identity is None:
            raise SignInRefused("Nobody has signed in to the portal with this identity yet. Sign in in a browser once.")
        user = User.objects.select_for_update().get(pk=identity.user_id)
        if not user.is_active:
            raise SignInRefused("Your account is deactivated in this portal. Ask a platform-admin.")
        _label(user, claims)
        identity.claims = _kept(claims)
        identity.last_seen_at = utcnow()
        identity.save(update_fields=["claims", "last_seen_at"])
        roles_sync(user=user, claims=claims, actor=SIGN_IN)
    return user


def identity_link(*, user: User, iss: str, sub: str, actor: Actor) -> Identity:
    """Say that this identity is that user's: on purpose, by somebody who knows it (the demonstration's seed).

    Raises:
        SignInRefused: the identity is somebody else's.
    """
    with transaction.atomic():
        identity, made = Identity.objects.get_or_create(iss=iss, sub=sub, defaults={"user": user})
        if identity.user_id != user.pk:
            raise SignInRefused(f"{sub} at {iss} is {identity.user.username} already.")
        if made:
            _record("identity_link", user, actor, {"iss": iss, "sub": sub})
    return identity


def _require_role(claims: Mapping[str, Any]) -> None:
    wanted = settings.AIF_OIDC_REQUIRED_ROLE
    if wanted and wanted not in (read_claim(claims, ROLES_CLAIM).values or ()):
        raise SignInRefused(f"This portal is for people with the role {wanted}. Ask your platform team for it.")


def _identity(iss: str, sub: str) -> Identity | None:
    return Identity.objects.select_for_update().filter(iss=iss, sub=sub).first()


def _make(iss: str, sub: str, claims: Mapping[str, Any]) -> Identity | None:
    wanted = _username(sub, claims)
    for number in range(1, 1000):
        name = wanted if number == 1 else f"{wanted}-{number}"
        if User.objects.filter(username=name).exists():
            continue
        try:
            with transaction.atomic():
                user = User.objects.create_user(name, None)
                identity = Identity.objects.create(user=user, iss=iss, sub=sub)
        except IntegrityError:
            # Somebody took the name, or this very person signed in twice at once.
            found = _identity(iss, sub)
            if found is not None:
                return found
            continue
        _record("user_create", user, SIGN_IN, {"iss": iss, "sub": sub})
        return identity
    raise SignInRefused(f"There are a thousand users named {wanted}. Tell the platform team.")


def _username(sub: str, claims: Mapping[str, Any]) -> str:
    """The provider's user name as a slug; the subject where there is none, or where it is an e-mail address."""
    given = claims.get("preferred_username")
    given = given.strip().lower() if isinstance(given, str) else ""
    fit = "" if "@" in given else _UNFIT.sub("-", given).strip("-.")
    return (fit or _UNFIT.sub("-", sub.lower()).strip("-.") or "user")[:120]


def _label(user: User, claims: Mapping[str, Any]) -> None:
    shown = next((claims[key] for key in ("name", "preferred_username") if _text(claims.get(key))), "")
    email = claims.get("email")
    labels = {
        "display_name": shown.strip()[:150],
        "email": email.strip() if isinstance(email, str) and _text(email) else "",
    }
    try:
        if labels["email"]:
            validate_email(labels["email"])
    except ValidationError:
        labels["email"] = ""
    if len(labels["email"]) > 254:
        labels["email"] = ""
    changed = {key: value for key, value in labels.items() if getattr(user, key) != value}
    if changed:
        for key, value in changed.items():
            setattr(user, key, value)
        user.save(update_fields=list(changed))


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and storable(value)


def _kept(claims: Mapping[str, Any]) -> dict[str, Any]:
    """What the pages show of the claims: names, groups, roles; nothing that only belongs to one token."""
    return {key: _storable(value) for key, value in claims.items() if key not in _NOT_KEPT and storable(key)}


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value if storable(value) else "(can't be stored)"
    if isinstance(value, Mapping):
        return {str(key): _storable(item) for key, item in value.items() if storable(str(key))}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return value


def _record(verb: str, user: User, actor: Actor, after: Mapping[str, Any]) -> None:
    audit.record(
        verb,
        actor=actor,
        tenant_id=None,
        object_kind="user",
        object_id=user.pk,
        object_name=user.username,
        after=after,
    )
