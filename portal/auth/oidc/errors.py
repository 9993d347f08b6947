"""Why somebody was not let in. Each is a page (or a 401 of the API) with a sentence and a way on, never a 500."""

from __future__ import annotations


class SignInError(Exception):
    """``detail`` is a sentence for the person; ``status`` the page's."""

    status = 403
    title = "Sign-in refused"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class SignInRefused(SignInError):
    """The provider answered, and the answer does not let this person in."""


class TokenRefused(SignInError):
    """A token that is not what it must be: forged, expired, for somebody else, of another kind."""

    status = 401
    title = "The sign-in could not be checked"


class ProviderRefused(SignInError):
    """The provider refused what was asked of it (a code or refresh token that is used up, a session that is over)."""

    status = 401
    title = "The sign-in is over"


class ProviderUnavailable(SignInError):
    """The provider does not answer, or not as it must; nobody is let in, and nobody is thrown out for it."""

    status = 503
    title = "The sign-in service does not answer"
