"""The rules that give namespaces to tenants: in their order, with a look beforehand at what a new one would change."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from billing.selectors.rule_changes import changes_of
from billing.web.adoption_forms import RuleForm, month_begin
from billing.web.rates import acting
from infra.models import ClaimRule, NamespaceSight
from infra.services.claim_rules import claim_rule_create, claim_rule_end, claim_rule_move, claim_rule_preview
from infra.services.following import Effect
from portal.kernel.actors import PLATFORM_ADMIN
from portal.kernel.problems import Forbidden, Invalid, NotFound, Problem
from portal.kernel.scoping import system_scope
from portal.kernel.web import platform_page, system_render
from tenants.models import Tenant

REASON = "platform pages: rules for namespaces"


@require_http_methods(["GET", "HEAD", "POST"])
@platform_page()
def rules(request: HttpRequest) -> HttpResponse:
    """The rules; POST makes one, or (``preview``) shows what it would do."""
    wanted = {name: request.GET[name] for name in ("cluster", "pattern", "label_key") if name in request.GET}
    if request.method != "POST":
        return _page(request, RuleForm(initial={"valid_from": month_begin(), **wanted}))
    if not acting(request).is_platform(PLATFORM_ADMIN):
        raise Forbidden("It takes a platform-admin to make rules.")
    form = RuleForm(request.POST)
    if not form.is_valid():
        return _page(request, form, 422)
    try:
        if "preview" in request.POST:
            effects = claim_rule_preview(lambda: claim_rule_create(**form.values(), actor=acting(request)))
            return _page(request, form, effects=effects)
        rule = claim_rule_create(**form.values(), actor=acting(request))
    except Problem as problem:
        form.add_problem(problem)
        return _page(request, form, 422)
    messages.success(request, f"The rule {rule} is there. Its claims appear in a moment.")
    return HttpResponseRedirect(reverse("billing:claim-rules"), status=303)


def _page(request: HttpRequest, form: RuleForm, status: int = 200, effects: list[Effect] | None = None) -> HttpResponse:
    def context() -> dict[str, Any]:
        slugs = dict(Tenant.objects.values_list("pk", "slug"))
        rows = ClaimRule.objects.filter(ended_at__isnull=True).select_related("cluster", "site")
        keys: set[str] = set()
        for labels in NamespaceSight.objects.filter(gone_at__isnull=True).values_list("labels", flat=True)[:2000]:
            keys |= set(labels)
        return {
            "rows": [
                (rule, slugs.get(rule.tenant_id, "–") if rule.tenant_id else "", rule.open_claims)
                for rule in rows.annotate(open_claims=Count("claims", filter=Q(claims__valid_to__isnull=True)))
            ],
            "form": form,
            "changes": None if effects is None else changes_of(effects),
            "keys": sorted(keys),
            "may_change": acting(request).is_platform(PLATFORM_ADMIN),
        }  # fmt: skip

    return system_render(request, REASON, "billing/claim_rules.html", context, status)


@require_POST
@platform_page(PLATFORM_ADMIN)
def rule_end(request: HttpRequest, rule_id: UUID) -> HttpResponse:
    """End a rule."""
    rule = _rule(rule_id)
    claim_rule_end(rule=rule, actor=acting(request))
    messages.success(request, f"The rule {rule} has ended. What it gave until now stays given.")
    return HttpResponseRedirect(reverse("billing:claim-rules"), status=303)


@require_POST
@platform_page(PLATFORM_ADMIN)
def rule_move(request: HttpRequest, rule_id: UUID) -> HttpResponse:
    """Put a rule at another place of the order."""
    try:
        position = int(request.POST.get("position", ""))
    except ValueError as error:
        raise Invalid.field("/position", "Give the place as a number, counted from 1.") from error
    claim_rule_move(rule=_rule(rule_id), position=position, actor=acting(request))
    return HttpResponseRedirect(reverse("billing:claim-rules"), status=303)


def _rule(rule_id: UUID) -> ClaimRule:
    with system_scope(REASON):
        rule = ClaimRule.objects.select_related("cluster", "site").filter(pk=rule_id).first()
    if rule is None:
        raise NotFound("There is no such rule.")
    return rule
