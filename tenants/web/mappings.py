"""The platform's page about groups of the identity provider: which give which role, and to whom."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.models import User
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.forms import PortalForm
from portal.kernel.problems import Problem
from portal.kernel.web import person_of, platform_page, system_render
from tenants.models import GroupMapping, Member, Tenant
from tenants.selectors.mappings import mapping_lines
from tenants.services.mappings import mapping_add, mapping_remove

REASON = "platform pages: groups and roles"


class MappingForm(PortalForm):
    """A new rule."""

    claim = forms.CharField(
        max_length=200,
        initial="groups",
        help_text="groups, organization, realm_access.roles, or another path into the claims.",
    )
    match = forms.ChoiceField(choices=GroupMapping.Match.choices, label="Matches")
    value = forms.CharField(max_length=400, help_text="A group with its path: /ml-team/owners.")
    tenant = forms.ModelChoiceField(Tenant.objects.none(), to_field_name="slug", required=False)
    role = forms.ChoiceField(required=False, choices=[("", "–"), *Member.Role.choices], label="Role in the tenant")
    platform_role = forms.ChoiceField(
        required=False,
        choices=[("", "–"), *((value, text) for value, text in User.PlatformRole.choices if value)],
        label="Or: role on the platform",
        help_text="Only from realm_access.roles.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        tenant = self.fields["tenant"]
        assert isinstance(tenant, forms.ModelChoiceField)
        tenant.queryset = Tenant.objects.order_by("slug")


@require_http_methods(["GET", "HEAD", "POST"])
@platform_page()
def mappings(request: HttpRequest) -> HttpResponse:
    """All rules with those who match them; a platform-admin adds one (POST)."""
    actor, status = person_of(request), 200
    form = MappingForm(request.POST or None)
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                mapping = mapping_add(**form.cleaned_data, actor=actor)
            except Problem as problem:
                if problem.status == 403:
                    raise
                form.add_problem(problem)
            else:
                messages.success(request, f"{mapping} gives {mapping.gives} from the next sign-in or refresh on.")
                return HttpResponseRedirect(reverse("tenants:mappings"), status=303)

    def context() -> dict[str, Any]:
        return {"lines": mapping_lines(), "form": form, "may_change": actor.is_platform(PLATFORM_ADMIN)}

    return system_render(request, REASON, "tenants/platform_mappings.html", context, status)


@require_POST
@platform_page(PLATFORM_ADMIN)
def remove(request: HttpRequest, mapping_id: UUID) -> HttpResponse:
    """Take a rule away."""
    mapping_remove(mapping_id=mapping_id, actor=person_of(request))
    messages.success(request, "The rule is gone, and so are the roles that only it gave.")
    return HttpResponseRedirect(reverse("tenants:mappings"), status=303)
