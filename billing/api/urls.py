"""Addresses below ``/api/v1/``."""

from django.urls import path

from billing.api import platform, team

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
    path("billing/unattributed", platform.UnattributedView.as_view(), name="api-unattributed"),
]
