"""The sign-in page: the way to the identity provider, local accounts for break-glass and the demonstration. And out."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, logout
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.crypto import constant_time_compare, get_random_string
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal.accounts import services
from portal.accounts.models import User
from portal.auth.oidc import backend
from portal.auth.oidc.errors import SignInError
from portal.auth.oidc.provider import enabled, provider
from portal.auth.oidc.sessions import session_close
from portal.auth.oidc.views import sign_in_address

LOGOUT_STATE = "oidc_logout_state"


@method_decorator(never_cache, name="dispatch")
class SignIn(LoginView):
    """User name and password. ``?next=`` is followed within this portal only."""

    template_name = "auth/login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Refused outright where local accounts are off."""
        if not settings.AIF_LOCAL_ACCOUNTS:
            return self.render_to_response(self.get_context_data(), status=403)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Open the session (under a new key) and write it to the audit."""
        response = super().form_valid(form)
        user = form.get_user()
        assert isinstance(user, User)
        services.signed_in(user=user)
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """One sentence for every cause: it does not tell which names exist."""
        return self.render_to_response(self.get_context_data(form=form), status=422)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With ``local_accounts``: whether the form may be used; ``provider``: the way to the identity provider."""
        more: dict[str, Any] = {"local_accounts": settings.AIF_LOCAL_ACCOUNTS}
        if enabled():
            # A session that was idle is not opened again by the provider's cookie alone.
            idle = self.request.GET.get("over") == "idle"
            more |= {"provider": sign_in_address(self.get_redirect_url()), "provider_name": settings.AIF_OIDC_NAME}
            more |= {"idle": idle, "idle_minutes": settings.AIF_OIDC_IDLE_SECONDS // 60}
        return super().get_context_data(**kwargs) | more


class SignOut(LogoutView):
    """POST only: a link of somebody else's can't sign a person out."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Nothing of the page that was left stays in the browser's storage."""
        response = super().dispatch(request, *args, **kwargs)
        response["Clear-Site-Data"] = '"cache", "storage"'
        return response

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """End the session here first; then, if the provider opened it, there (RP-Initiated Logout 1.0)."""
        if request.session.get(BACKEND_SESSION_KEY) != backend.PATH or not enabled():
            return super().post(request, *args, **kwargs)
        hint = session_close(session_key=request.session.session_key)
        logout(request)
        try:
            address = provider().endpoints().end_session
        except SignInError:
            # It does not answer: signed out here is what counts, and the page says that there it may go on.
            return HttpResponseRedirect(reverse("auth:signed-out"))
        state = get_random_string(32)
        request.session[LOGOUT_STATE] = state
        query = {
            "client_id": settings.AIF_OIDC_CLIENT_ID,
            "post_logout_redirect_uri": request.build_absolute_uri(reverse("auth:signed-out")),
            "state": state,
        }
        if hint:
            query["id_token_hint"] = hint
        return HttpResponseRedirect(f"{address}?{urlencode(query)}")


@never_cache
@require_safe
def signed_out(request: HttpRequest) -> HttpResponse:
    """Where the provider sends back to after signing out."""
    sent = request.session.pop(LOGOUT_STATE, "")
    there = bool(sent) and constant_time_compare(sent, request.GET.get("state", ""))
    return render(request, "auth/signed_out.html", {"there": there, "provider_name": settings.AIF_OIDC_NAME})


@never_cache
@require_safe
def signed_in_page(request: HttpRequest) -> HttpResponse:
    """After signing in beside a form that waits in another tab."""
    return render(request, "auth/signed_in.html")
