"""Addresses below ``/api/v1/``."""

from django.urls import path

from billing.api import adoption, fault_credits, hours, opencost, past, platform, team

_TEAM = "tenants/<slug:tenant>"
_BILL = f"{_TEAM}/bills/<uuid:bill_id>"
_LINE = f"{_BILL}/lines/<uuid:line_id>"
_ISSUER = "billing/issuers/<slug:issuer>"

urlpatterns = [
    path(f"{_TEAM}/usage", team.UsageView.as_view(), name="api-usage"),
    path(f"{_TEAM}/usage.csv", team.UsageFileView.as_view(), name="api-usage-csv"),
    path(f"{_TEAM}/charges", team.ChargesView.as_view(), name="api-charges"),
    path(f"{_TEAM}/bills", team.BillsView.as_view(), name="api-bills"),
    path(_BILL, team.BillView.as_view(), name="api-bill"),
    path(f"{_BILL}.csv", team.BillFileView.as_view(), name="api-bill-csv"),
    path(f"{_BILL}/lines", team.BillLinesView.as_view(), name="api-bill-lines"),
    path(f"{_BILL}/credit-notes", team.TeamCreditNotesView.as_view(), name="api-bill-credit-notes"),
    path(_LINE, team.BillLineView.as_view(), name="api-bill-line"),
    path(f"{_LINE}/allocations", team.LineAllocationsView.as_view(), name="api-bill-line-allocations"),
    path(f"{_LINE}/allocations.csv", team.LineFileView.as_view(), name="api-bill-line-csv"),
    path(f"{_TEAM}/past", past.PastMonthsView.as_view(), name="api-past"),
    path(f"{_TEAM}/past/<slug:period>", past.PastMonthView.as_view(), name="api-past-month"),
    path(f"{_ISSUER}/past", past.PlatformPastView.as_view(), name="api-platform-past"),
    path(f"{_ISSUER}/past/<slug:period>", past.PlatformPastMonthView.as_view(), name="api-platform-past-month"),
    path(f"{_LINE}/hours", opencost.LineHoursView.as_view(), name="api-bill-line-hours"),
    path(f"{_TEAM}/opencost", opencost.TeamBesideView.as_view(), name="api-team-opencost"),
    path("billing/opencost", opencost.BesideView.as_view(), name="api-opencost"),
    path("billing/opencost/sources", opencost.SourcesView.as_view(), name="api-opencost-sources"),
    path("billing/opencost/sources/<slug:cluster>", opencost.SourceView.as_view(), name="api-opencost-source"),
    path("billing/issuers", platform.IssuersView.as_view(), name="api-issuers"),
    path(_ISSUER, platform.IssuerView.as_view(), name="api-issuer"),
    path(f"{_ISSUER}/rates", platform.RatesView.as_view(), name="api-rates"),
    path(f"{_ISSUER}/unpriced", platform.UnpricedView.as_view(), name="api-unpriced"),
    path(f"{_ISSUER}/periods", platform.PeriodsView.as_view(), name="api-periods"),
    path(f"{_ISSUER}/periods/<slug:period>", platform.PeriodView.as_view(), name="api-period"),
    path(f"{_ISSUER}/periods/<slug:period>.csv", platform.PeriodFileView.as_view(), name="api-period-csv"),
    path(f"{_ISSUER}/periods/<slug:period>/close", platform.PeriodCloseView.as_view(), name="api-period-close"),
    path("billing/rates/<uuid:rate_id>/end", platform.RateEndView.as_view(), name="api-rate-end"),
    path("billing/accounts/<slug:tenant>", platform.AccountView.as_view(), name="api-account"),
    path("billing/bills", platform.AllBillsView.as_view(), name="api-all-bills"),
    path("billing/bills/<uuid:bill_id>/credit-notes", platform.CreditNotesView.as_view(), name="api-credit-notes"),
    path("billing/conservation", platform.ConservationView.as_view(), name="api-conservation"),
    path("billing/conservation/hours", platform.ConservationHoursView.as_view(), name="api-conservation-hours"),
    path(f"{_TEAM}/fault-credits", fault_credits.TeamFaultCreditsView.as_view(), name="api-team-fault-credits"),
    path("billing/fault-credits", fault_credits.FaultCreditsView.as_view(), name="api-fault-credits"),
    path(
        "billing/fault-credits/<uuid:credit_id>/decide",
        fault_credits.FaultCreditDecideView.as_view(),
        name="api-fault-credit-decide",
    ),
    path("hours", hours.HoursView.as_view(), name="api-hours"),
    path("hours/idle", hours.IdleHoursView.as_view(), name="api-idle-hours"),
    path("hours/held", hours.HeldIdleView.as_view(), name="api-held-idle"),
    path("billing/unattributed", platform.UnattributedView.as_view(), name="api-unattributed"),
    path("namespaces", adoption.NamespacesView.as_view(), name="api-namespaces"),
    path("clusters/<slug:slug>/adoption", adoption.AdoptionView.as_view(), name="api-cluster-adoption"),
    path("namespace-claims/many", adoption.ClaimsManyView.as_view(), name="api-namespace-claims-many"),
    path("claim-rules", adoption.RulesView.as_view(), name="api-claim-rules"),
    path("claim-rules/preview", adoption.RulePreviewView.as_view(), name="api-claim-rule-preview"),
    path("claim-rules/<uuid:rule_id>/end", adoption.RuleEndView.as_view(), name="api-claim-rule-end"),
    path("claim-rules/<uuid:rule_id>/move", adoption.RuleMoveView.as_view(), name="api-claim-rule-move"),
]
