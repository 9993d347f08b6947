"""Local sign-in by user name and password: for break-glass accounts and the demonstration."""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.backends import BaseBackend
from django.http import HttpRequest

from portal.accounts import services
from portal.accounts.models import User


class LocalBackend(BaseBackend):
    """Off when ``AIF_LOCAL_ACCOUNTS`` is 0. A locked or deactivated user is refused like a wrong password."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **extra: Any
    ) -> User | None:
        """The user, or ``None``; takes as long for a name that does not exist."""
        if not settings.AIF_LOCAL_ACCOUNTS or username is None or password is None:
            return None
        user = User.objects.filter(username=User.objects.normalise(username)).first()
        if user is None:
            User().set_password(password)
            return None
        return services.password_check(user_id=user.id, password=password)

    def get_user(self, user_id: UUID) -> User | None:
        """The session's user while it is active."""
        return User.objects.filter(pk=user_id, is_active=True).first()
