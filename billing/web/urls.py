"""Addresses of usage and money: a team's below ``/t/<tenant>/``, the platform's below ``/platform/``."""

from django.urls import path

from billing.web import bills, conservation, credit_notes, periods, rates, usage

app_name = "billing"
urlpatterns = [
    path("t/<slug:tenant>/usage/", usage.usage, name="usage"),
    path("t/<slug:tenant>/usage.csv", usage.usage_csv, name="usage-csv"),
    path("t/<slug:tenant>/bills/", bills.bills, name="bills"),
    path("t/<slug:tenant>/bills/open/<slug:period>/", bills.running, name="running"),
    path("t/<slug:tenant>/bills/open/<slug:period>.csv", bills.running_csv, name="running-csv"),
    path("t/<slug:tenant>/bills/<uuid:bill_id>/", bills.bill, name="bill"),
    path("t/<slug:tenant>/bills/<uuid:bill_id>.csv", bills.bill_csv, name="bill-csv"),
    path("t/<slug:tenant>/bills/<uuid:bill_id>/lines/<uuid:line_id>/", bills.line, name="line"),
    path("t/<slug:tenant>/bills/<uuid:bill_id>/lines/<uuid:line_id>.csv", bills.line_csv, name="line-csv"),
    path("platform/rates/", rates.rates, name="rates"),
    path("platform/rates/<uuid:rate_id>/end", rates.rate_end_view, name="rate-end"),
    path("platform/issuers/", rates.issuer_create, name="issuer-create"),
    path("platform/bills/", periods.periods, name="platform-bills"),
    path("platform/bills/<slug:issuer>/<slug:period>/", periods.period, name="period"),
    path("platform/bills/<slug:issuer>/<slug:period>/close", periods.close, name="period-close"),
    path("platform/bills/<slug:issuer>/<slug:period>.csv", periods.period_csv, name="period-csv"),
    path("platform/credit/<uuid:bill_id>/", credit_notes.credit, name="credit"),
    path("platform/hours/", conservation.conservation, name="conservation"),
    path("platform/hours.csv", conservation.conservation_csv, name="conservation-csv"),
    path("platform/hours/nodes/", conservation.nodes, name="conservation-nodes"),
    path("platform/hours/nodes.csv", conservation.nodes_csv, name="conservation-nodes-csv"),
]
