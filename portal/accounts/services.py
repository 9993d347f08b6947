"""Changes of people and tokens. Each owns its transaction and writes its audit event."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from portal.accounts import ports, tokens
from portal.accounts.models import ApiToken, User
from portal.kernel import audit, crypto
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.problems import Forbidden, Invalid, NotFound

FREE_TRIES = 5
LONGEST_LOCK = timedelta(seconds=60)
LONGEST_LIFE = timedelta(days=366)
LAST_USED_EVERY = timedelta(minutes=1)


def password_check(*, user_id: UUID, password: str) -> User | None:
    """The user if the password is right and the user may sign in, else ``None``.

    After :data:`FREE_TRIES` wrong ones in a row each further one locks the account for a while (1, 2, 4 … 60 s):
    enough against guessing, too short to shut a break-glass account out.
    """
    with transaction.atomic():
        user = User.objects.select_for_update().get(pk=user_id)
        now = timezone.now()
        locked = user.locked_until is not None and user.locked_until > now
        right = user.check_password(password)
        if right and user.is_active and not locked:
            if user.failed_sign_ins:
                user.failed_sign_ins, user.locked_until = 0, None
                user.save(update_fields=["failed_sign_ins", "locked_until"])
            return user
        if not locked:
            user.failed_sign_ins += 1
            beyond = user.failed_sign_ins - FREE_TRIES
            if beyond >= 0:
                user.locked_until = now + min(LONGEST_LOCK, timedelta(seconds=2 ** min(beyond, 10)))
            user.save(update_fields=["failed_sign_ins", "locked_until"])
    audit.refused(
        "sign_in",
        actor=user_actor(user),
        tenant_id=None,
        object_kind="user",
        object_id=user.id,
        object_name=user.username,
        reason="locked" if locked else "deactivated" if right else "wrong password",
    )
    return None


def user_actor(user: User) -> Actor:
    """The actor of a browser session."""
    return Actor(kind="user", name=user.username, user_id=user.id, platform_role=user.platform_role)


def signed_in(*, user: User) -> None:
    """Write a sign-in to the audit."""
    audit.record(
        "sign_in",
        actor=user_actor(user),
        tenant_id=None,
        object_kind="user",
        object_id=user.id,
        object_name=user.username,
    )


def user_create(
    *,
    username: str,
    password: str | None,
    actor: Actor,
    display_name: str = "",
    email: str = "",
    platform_role: str = "",
) -> User:
    """A local user; ``password=None``: one that signs in at the identity provider only.

    Raises:
        Forbidden: the actor is neither a platform-admin nor the system.
        Invalid: an unusable user name or role, or a name that is taken.
    """
    _require_admin(actor)
    name = User.objects.normalise(username)
    if not name or len(name) > 150 or any(character.isspace() for character in name):
        raise Invalid.field("/username", "A user name has 1 to 150 characters and no spaces.")
    if platform_role not in User.PlatformRole.values:
        raise Invalid.field("/platform_role", f"Use one of {', '.join(filter(None, User.PlatformRole.values))}.")
    with transaction.atomic():
        if User.objects.filter(username=name).exists():
            raise Invalid.field("/username", f"The user name {name} is taken.")
        user = User.objects.create_user(
            name, password, display_name=display_name, email=email, platform_role=platform_role
        )
        audit.record(
            "user_create",
            actor=actor,
            tenant_id=None,
            object_kind="user",
            object_id=user.id,
            object_name=user.username,
            after={"platform_role": platform_role},
        )
    return user


def user_deactivate(*, user_id: UUID, actor: Actor) -> User:
    """Shut a person out: sessions end with the next request, tokens are revoked.

    Raises:
        Forbidden: the actor is neither a platform-admin nor the system.
        NotFound: no such user.
        Invalid: it is the last active platform-admin.
    """
    _require_admin(actor)
    with transaction.atomic():
        # All admins are locked in one order, so two of them can't deactivate each other at once.
        admins = list(
            User.objects.select_for_update().filter(platform_role=PLATFORM_ADMIN, is_active=True).order_by("pk")
        )
        user = User.objects.select_for_update().filter(pk=user_id).first()
        if user is None:
            raise NotFound("There is no such user.")
        if not user.is_active:
            return user
        if [admin.pk for admin in admins] == [user.pk]:
            raise Invalid("This is the last active platform-admin. Make another one first.")
        now = timezone.now()
        user.is_active, user.deactivated_at = False, now
        user.save(update_fields=["is_active", "deactivated_at"])
        revoked = ApiToken.objects.filter(user=user, revoked_at__isnull=True).update(revoked_at=now)
        audit.record(
            "user_deactivate",
            actor=actor,
            tenant_id=None,
            object_kind="user",
            object_id=user.id,
            object_name=user.username,
            before={"is_active": True},
            after={"is_active": False, "revoked_count": revoked},
        )
    return user


def token_create(
    *,
    user_id: UUID,
    name: str,
    scopes: Iterable[str],
    expires_at: datetime,
    actor: Actor,
    tenant_id: UUID | None = None,
) -> tuple[ApiToken, str]:
    """A new token and its text, which is shown once and can't be had again.

    Raises:
        Forbidden: a token for somebody else (unless by a platform-admin), by a token, or more than the user has.
        NotFound: no such active user, or the user is no member of ``tenant_id``.
        Invalid: no name, unknown scopes, an expiry in the past or more than a year ahead.
    """
    if actor.kind == "token":
        raise Forbidden("A token can't make tokens. Sign in and make it in the browser.")
    if actor.user_id != user_id:
        _require_admin(actor)
    wanted = sorted(set(scopes))
    now = timezone.now()
    errors = []
    if not name.strip() or len(name) > 100:
        errors.append({"pointer": "/name", "detail": "A token needs a name of at most 100 characters."})
    if not wanted or not set(wanted) <= tokens.SCOPES:
        errors.append({"pointer": "/scopes", "detail": f"Choose from {', '.join(sorted(tokens.SCOPES))}."})
    if not now < expires_at <= now + LONGEST_LIFE:
        errors.append({"pointer": "/expires_at", "detail": "A token expires in the future, within a year."})
    if "platform" in wanted and tenant_id is not None:
        errors.append({"pointer": "/scopes", "detail": "A token of one tenant can't have the scope platform."})
    if errors:
        raise Invalid(errors=errors)
    with transaction.atomic():
        user = User.objects.select_for_update().filter(pk=user_id, is_active=True).first()
        if user is None:
            raise NotFound("There is no such active user.")
        if tenant_id is not None and not ports.is_member(user.id, tenant_id):
            raise NotFound("There is no such tenant, or the user is no member of it.")
        if "platform" in wanted and not user.platform_role:
            raise Forbidden("The scope platform needs a platform role.")
        made = tokens.generate()
        token = ApiToken.objects.create(
            public_id=made.public_id,
            digest=crypto.digest(made.secret),
            last4=made.text[-4:],
            name=name.strip(),
            user=user,
            tenant_id=tenant_id,
            scopes=wanted,
            expires_at=expires_at,
        )
        audit.record(
            "token_create",
            actor=actor,
            tenant_id=tenant_id,
            object_kind="api_token",
            object_id=token.id,
            object_name=token.name,
            after={"user": user.username, "scopes": wanted, "expires_at": expires_at},
        )
    return token, made.text


def token_revoke(*, token_id: UUID, actor: Actor) -> ApiToken:
    """End a token now; doing it twice changes nothing.

    Raises:
        NotFound: no such token, it is somebody else's and the actor is no platform-admin, or the actor is a token of
            one tenant and this one is not of that tenant.
    """
    with transaction.atomic():
        token = ApiToken.objects.select_for_update().select_related("user").filter(pk=token_id).first()
        allowed = actor.is_system or actor.is_platform(PLATFORM_ADMIN)
        within = token is not None and actor.tenant_id in (None, token.tenant_id)
        if token is None or not within or not (allowed or token.user_id == actor.user_id):
            raise NotFound("There is no such token.")
        if token.revoked_at is None:
            token.revoked_at = timezone.now()
            token.save(update_fields=["revoked_at"])
            audit.record(
                "token_revoke",
                actor=actor,
                tenant_id=token.tenant_id,
                object_kind="api_token",
                object_id=token.id,
                object_name=token.name,
            )
    return token


def token_used(token: ApiToken) -> None:
    """Write ``last_used_at``, at most once a minute."""
    now = timezone.now()
    if token.last_used_at is None or token.last_used_at < now - LAST_USED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)


def _require_admin(actor: Actor) -> None:
    if not (actor.is_system or actor.is_platform(PLATFORM_ADMIN)):
        raise Forbidden("Only a platform-admin may do this.")
