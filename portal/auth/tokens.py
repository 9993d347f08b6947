"""A person's API tokens: made, shown once, revoked."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts import services
from portal.accounts.models import ApiToken
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.forms import PortalForm
from portal.kernel.problems import Problem
from portal.kernel.submission import FIELD, new_token, submit_once, token_of
from portal.kernel.web import actor_of, signed_in
from tenants.models import Tenant
from tenants.permissions import tenants_of

USUAL_DAYS = 90
SCOPES = {
    "read": "read: see what you may see",
    "write": "write: change what you may change",
    "platform": "platform: use your platform role",
}


class TokenForm(PortalForm):
    """A new token."""

    name = forms.CharField(max_length=100, help_text="What it is for, so that you know later what to revoke.")
    scopes = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple, initial=["read"], label="It may")
    tenant_id = forms.ChoiceField(required=False, label="Team", help_text="A token of one team works nowhere else.")
    expires_at = forms.DateField(
        label="Valid until", widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        help_text="The end of that day, UTC; at most a year from now.",
    )  # fmt: skip

    def __init__(self, *args: Any, actor: Actor, teams: list[Tenant], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scopes, tenant = self.fields["scopes"], self.fields["tenant_id"]
        assert isinstance(scopes, forms.MultipleChoiceField)
        assert isinstance(tenant, forms.ChoiceField)
        usable = [(key, text) for key, text in SCOPES.items() if key != "platform" or actor.is_platform()]
        scopes.choices = usable
        tenant.choices = [("", "all of mine"), *((str(team.pk), team.slug) for team in teams)]
        self.fields["expires_at"].initial = (utcnow() + timedelta(days=USUAL_DAYS)).date()


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def tokens(request: HttpRequest) -> HttpResponse:
    """The list; POST makes a token, and its answer is the only one that shows it."""
    actor = actor_of(request)
    assert actor is not None  # signed_in
    teams = tenants_of(actor)
    form = TokenForm(request.POST or None, actor=actor, teams=teams)
    if request.method != "POST":
        return _page(request, actor, teams, form)
    if not form.is_valid():
        return _page(request, actor, teams, form, status=422)
    made: list[str] = []
    try:
        sent = submit_once(request, lambda: _make(form, actor, made))
    except Problem as problem:
        form.add_problem(problem)
        return _page(request, actor, teams, form, status=422)
    if sent.again:
        messages.warning(request, "The form was sent twice: the token was made the first time, and shown then.")
        return HttpResponseRedirect(sent.location, status=303)
    fresh = TokenForm(actor=actor, teams=teams)
    return _page(request, actor, teams, fresh, made=made[0], status=201)


def _make(form: TokenForm, actor: Actor, made: list[str]) -> str:
    data = form.cleaned_data
    end = datetime.combine(data["expires_at"], time(23, 59, 59), UTC)
    assert actor.user_id is not None  # a browser session is a person's
    _, text = services.token_create(
        user_id=actor.user_id,
        name=data["name"],
        scopes=data["scopes"],
        expires_at=end,
        tenant_id=UUID(data["tenant_id"]) if data["tenant_id"] else None,
        actor=actor,
    )
    made.append(text)
    return reverse("accounts:tokens")


@require_POST
@signed_in
def token_revoke(request: HttpRequest, token_id: UUID) -> HttpResponse:
    """End one's own token now."""
    actor = actor_of(request)
    assert actor is not None  # signed_in
    token = services.token_revoke(token_id=token_id, actor=actor)
    messages.success(request, f"The token {token.name} is revoked. Whatever still uses it is refused from now on.")
    return HttpResponseRedirect(reverse("accounts:tokens"), status=303)


def _page(
    request: HttpRequest, actor: Actor, teams: list[Tenant], form: TokenForm, *, made: str = "", status: int = 200
) -> HttpResponse:
    slugs = {team.pk: team.slug for team in teams}
    now = utcnow()
    assert actor.user_id is not None  # the page is for people who are signed in
    rows = [
        (token, slugs.get(token.tenant_id, "a team you left") if token.tenant_id else "all of mine", _state(token, now))
        for token in ApiToken.objects.filter(user_id=actor.user_id)
    ]
    context = {
        "rows": rows,
        "form": form,
        "made": made,
        "submission_field": FIELD,
        "submission": new_token() if made or request.method != "POST" else token_of(request),
    }
    return render(request, "accounts/tokens.html", context, status=status)


def _state(token: ApiToken, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at <= now else "valid"
