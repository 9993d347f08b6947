"""People, their identities at an identity provider, and API tokens. All global: needed before a tenant is known."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models.functions import Lower, Now

from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_FINANCE, PLATFORM_VIEWER
from portal.kernel.scoping import Global


class UserManager(BaseUserManager["User"]):
    """Makes users; user names are kept in lower case."""

    def create_user(self, username: str, password: str | None = None, **fields: Any) -> User:
        """A new user; without a password it can't sign in locally."""
        user = self.model(username=self.normalise(username), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, username: str, password: str | None = None, **fields: Any) -> User:
        """A new platform-admin (for ``manage.py createsuperuser``)."""
        return self.create_user(username, password, **(fields | {"platform_role": PLATFORM_ADMIN}))

    def get_by_natural_key(self, username: str | None) -> User:
        """The user of that name, in any spelling."""
        return self.get(username=self.normalise(username or ""))

    @staticmethod
    def normalise(username: str) -> str:
        """User names differ by more than upper and lower case."""
        return User.normalize_username(username.strip()).lower()


class User(AbstractBaseUser, Global):
    """A person. The e-mail address is a label: nobody is found or trusted by it."""

    class PlatformRole(models.TextChoices):
        NONE = "", "none"
        ADMIN = PLATFORM_ADMIN, "platform-admin"
        VIEWER = PLATFORM_VIEWER, "platform-viewer"
        FINANCE = PLATFORM_FINANCE, "platform-finance"

    username = models.CharField(max_length=150, unique=True)
    display_name = models.CharField(max_length=150, blank=True)
    email = models.EmailField(blank=True)
    platform_role = models.CharField(max_length=20, choices=PlatformRole.choices, blank=True, default="")
    is_active = models.BooleanField(default=True)
    deactivated_at = models.DateTimeField(null=True, blank=True)
    failed_sign_ins = models.PositiveIntegerField(default=0, help_text="Wrong passwords in a row.")
    locked_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "username"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        ordering = ["username"]
        constraints = [
            models.CheckConstraint(condition=models.Q(username=Lower("username")), name="user_name_lower_case")
        ]

    def __str__(self) -> str:
        return self.username

    def get_full_name(self) -> str:
        """The name to show."""
        return self.display_name or self.username


class Identity(Global):
    """Who a person is at an identity provider: issuer and subject, never the e-mail address."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="identities")
    iss = models.CharField(max_length=400)
    sub = models.CharField(max_length=255)
    claims = models.JSONField(default=dict, blank=True, help_text="Names and groups of the last sign-in.")
    last_seen_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["iss", "sub"], name="identity_unique")]

    def __str__(self) -> str:
        return f"{self.sub} at {self.iss}"


class ApiToken(Global):
    """A token for scripts. Only ``public_id`` and a digest of the secret part are stored.

    ``tenant_id`` set: the token works in that tenant only. ``scopes``: ``read``, ``write``, ``platform``.
    """

    public_id = models.CharField(max_length=8, unique=True)
    digest = models.CharField(max_length=64)
    last4 = models.CharField(max_length=4, help_text="To tell tokens apart in a list.")
    name = models.CharField(max_length=100)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    tenant_id = models.UUIDField(null=True, blank=True)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["tenant_id"], name="api_token_tenant")]

    def __str__(self) -> str:
        return f"{self.name} (aif_pat_{self.public_id}_…{self.last4})"
