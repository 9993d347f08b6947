"""Signing in with a local account (break-glass, the demonstration), and out."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from portal.accounts import services
from portal.accounts.models import User


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
        """With ``local_accounts``: whether the form may be used."""
        return super().get_context_data(**kwargs) | {"local_accounts": settings.AIF_LOCAL_ACCOUNTS}


class SignOut(LogoutView):
    """POST only: a link of somebody else's can't sign a person out."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Nothing of the page that was left stays in the browser's storage."""
        response = super().dispatch(request, *args, **kwargs)
        response["Clear-Site-Data"] = '"cache", "storage"'
        return response
