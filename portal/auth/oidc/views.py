"""To the provider and back, and its notice that a session is over there."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlencode

from django.contrib import auth
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render, resolve_url
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from mozilla_django_oidc.utils import import_from_settings
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView, get_next_url

from portal.accounts import services
from portal.accounts.models import User
from portal.auth.oidc import tokens
from portal.auth.oidc.errors import ProviderUnavailable, SignInError, SignInRefused, TokenRefused
from portal.auth.oidc.provider import enabled, provider
from portal.auth.oidc.sessions import session_open, sessions_end
from portal.kernel.actors import current_request_id

logger = logging.getLogger(__name__)
SECOND_TRY_STATE_SIZE = 40
"""A state of this length (others have 32) says that the sign-in is a second try: there is no third by itself."""
_NEEDS_A_FORM = {"login_required", "interaction_required", "consent_required", "account_selection_required"}


def sign_in_address(next_url: str = "", **more: str) -> str:
    """The address that sends a browser to the provider."""
    query = {name: value for name, value in ({REDIRECT_FIELD_NAME: next_url} | more).items() if value}
    return f"{reverse('auth:oidc-login')}{'?' if query else ''}{urlencode(query)}"


def explained(request: HttpRequest, error: SignInError, next_url: str = "") -> HttpResponse:
    """A page that says why somebody was not let in, and what they can do."""
    context = {
        "error": error,
        "again": sign_in_address(next_url),
        "as_another": sign_in_address(next_url, fresh="1") if error.status == 403 else "",
        "request_id": current_request_id(),
    }
    response = render(request, "auth/refused.html", context, status=error.status)
    if error.status == 503:
        response["Retry-After"] = "30"
    response["Cache-Control"] = "no-store"
    return response


@method_decorator(never_cache, name="dispatch")
class ToProvider(OIDCAuthenticationRequestView):  # type: ignore[misc]  # the library is untyped
    """Sends the browser to the provider with state, nonce and PKCE; ``?next=`` is where to go afterwards.

    ``?silent=1``: without any form (``prompt=none``); ``?fresh=1``: always with the form; ``?again=1``: second try.
    """

    def __init__(self, **kwargs: Any) -> None:
        # Around the library's, which wants the endpoints in the settings.
        super(OIDCAuthenticationRequestView, self).__init__(**kwargs)

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """The sizes that the library asks for depend on the request."""
        super().setup(request, *args, **kwargs)
        if "again" in request.GET:
            self.get_settings = self._second_try

    @staticmethod
    def _second_try(name: str, *default: Any) -> Any:
        return SECOND_TRY_STATE_SIZE if name == "OIDC_STATE_SIZE" else import_from_settings(name, *default)

    def get(self, request: HttpRequest) -> HttpResponse:
        """The redirect; a page where the provider can't be reached."""
        if not enabled():
            raise Http404
        try:
            self.OIDC_OP_AUTH_ENDPOINT = provider().endpoints().authorization
        except SignInError as error:
            return explained(request, error, get_next_url(request, REDIRECT_FIELD_NAME) or "")
        self.OIDC_RP_CLIENT_ID = self.get_settings("OIDC_RP_CLIENT_ID")
        response: HttpResponse = super().get(request)
        return response

    def get_extra_params(self, request: HttpRequest) -> dict[str, str]:
        """``prompt``, where asked for."""
        if "silent" in request.GET:
            return {"prompt": "none"}
        return {"prompt": "login"} if "fresh" in request.GET else {}


@method_decorator(never_cache, name="dispatch")
class Callback(OIDCAuthenticationCallbackView):  # type: ignore[misc]  # the library is untyped
    """Where the provider sends the browser back to. Every failure is a page with a way on."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Sign in, or explain."""
        if not enabled():
            raise Http404
        next_url = request.session.get("oidc_login_next") or ""
        try:
            if not self._state_is_known(request):
                return self._unknown_state(request)
            if error := request.GET.get("error"):
                return self._refused(request, error, next_url)
            response: HttpResponse = super().get(request)
        except SignInError as error:
            logger.warning("a sign-in failed", extra={"cause": error.detail})
            return explained(request, error, next_url)
        return response

    @staticmethod
    def _state_is_known(request: HttpRequest) -> bool:
        known = request.session.get("oidc_states")
        return isinstance(known, dict) and request.GET.get("state", "") in known

    def _unknown_state(self, request: HttpRequest) -> HttpResponse:
        """An old tab, a double click, the back button; or a lost cookie, which a second try does not bring back."""
        if request.user.is_authenticated:
            return HttpResponseRedirect(resolve_url(self.get_settings("LOGIN_REDIRECT_URL", "/")))
        if len(request.GET.get("state", "")) != SECOND_TRY_STATE_SIZE:
            return HttpResponseRedirect(sign_in_address(again="1"))
        raise TokenRefused(
            "The identity provider sent you back, but this browser does not remember having sent you there. Allow "
            "cookies for this portal, close other tabs that are signing in, and try again."
        )

    def _refused(self, request: HttpRequest, error: str, next_url: str) -> HttpResponse:
        states = request.session["oidc_states"]
        del states[request.GET["state"]]
        request.session["oidc_states"] = states
        request.session.save()  # Django does not save it with an answer from 500 up
        if error in _NEEDS_A_FORM:
            return HttpResponseRedirect(sign_in_address(next_url))
        if error in ("temporarily_unavailable", "server_error"):
            raise ProviderUnavailable("The identity provider could not sign you in just now. Try again in a minute.")
        if error == "access_denied":
            raise SignInRefused("The identity provider did not let you in, or you cancelled. Try again.")
        raise SignInRefused("The identity provider refused this portal's request. Tell the platform team.")

    def login_success(self) -> HttpResponse:
        """Open the session; what belongs to it is stored afterwards, since signing in may flush it."""
        request, user = self.request, self.user
        assert isinstance(user, User)
        before = request.session.session_key or ""
        next_url = self.success_url
        # Also for the same person: the library keeps the session then, and its key.
        auth.login(request, user)
        request.session.save()  # where another person was signed in, it has no key before
        key = request.session.session_key
        session_open(session_key=key, user=user, answer=request.oidc_answer, replaces=before)
        services.signed_in(user=user)
        return HttpResponseRedirect(next_url)

    def login_failure(self) -> HttpResponse:
        """What the library sends elsewhere without a word."""
        raise SignInRefused("The identity provider's answer was not complete. Try again.")


@csrf_exempt  # the provider's own request, proved by the signature of its token
@require_POST
def backchannel_logout(request: HttpRequest) -> HttpResponse:
    """Back-Channel Logout 1.0 §2.5: ``logout_token`` in a form. 200 where it is believed, whether or not a session
    was found; 400 with the reason; 503 where the provider's keys can't be had."""
    if not enabled():
        raise Http404
    try:
        claims = tokens.logout_token(request.POST.get("logout_token", ""))
        sid, sub = (claims.get(name) if isinstance(claims.get(name), str) else "" for name in ("sid", "sub"))
        ended = sessions_end(iss=claims["iss"], jti=claims["jti"], sid=sid or "", sub=sub or "")
    except SignInError as error:
        logger.warning("a logout token was refused", extra={"cause": error.detail})
        status = 503 if isinstance(error, ProviderUnavailable) else 400
        body = {"error": "invalid_request", "error_description": error.detail}
        return JsonResponse(body, status=status, headers={"Cache-Control": "no-store"})
    logger.info("the identity provider ended sessions", extra={"ended": ended})
    return HttpResponse(status=200, headers={"Cache-Control": "no-store"})
