"""The figures on the pages are those computed by hand (see :mod:`tests.billing.estate`)."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client

from billing.models import Bill, BillingPeriod, CreditNote, Issuer, Rate
from portal.kernel.money import THIN_SPACE
from portal.kernel.scoping import system_scope
from tests.billing.estate import NOW, Estate, at, make_estate
from tests.web.billing.conftest import Browsers

pytestmark = pytest.mark.django_db


def page(client: Client, path: str, status: int = 200) -> str:
    """The page's text without tags, with plain spaces."""
    answer = client.get(path)
    assert answer.status_code == status, (path, answer.content[:500])
    return plain(answer.content.decode())


def plain(text: str) -> str:
    body = re.sub(r"<[^>]+>", " ", text.partition("page-wrapper")[2] or text)
    return " ".join(body.replace(THIN_SPACE, " ").split())


def rows_of(client: Client, path: str) -> list[dict[str, str]]:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/csv")
    assert "attachment" in answer["Content-Disposition"]
    return list(csv.DictReader(io.StringIO(answer.content.decode(), newline="")))


def test_usage(estate: Estate, browser: Browsers) -> None:
    owner = browser("owner")
    november = "?start=2026-11-01&end=2026-11-30"
    text = page(owner, f"/t/vision/usage/{november}")
    assert "GPU-hours 202.500" in text
    assert "503.00 EUR" in text
    assert "Final until 2026-12-02 12:00" in text
    # Of the 100 h from midnight of the 2nd, four days are full and the fifth has 4 h; two cards each.
    found = {(row["day"], row["sharing"]): (row["gpu_hours"], row["amount"]) for row in rows_of(
        owner, f"/t/vision/usage.csv{november}")}  # fmt: skip
    assert found == {
        ("2026-11-01", "hami"): ("2.5", "3"),
        **{(f"2026-11-0{day}", "whole"): ("48", "120") for day in (2, 3, 4, 5)},
        ("2026-11-06", "whole"): ("8", "20"),
    }
    [row] = rows_of(owner, f"/t/vision/usage.csv{november}&by=mode&sharing=hami")
    assert (row["day"], row["deployment_or_namespace"], row["gpu_hours"], row["amount"]) == ("", "", "2.5", "3")
    assert rows_of(owner, f"/t/vision/usage.csv{november}&gpu_type=a100&sharing=whole") == []
    assert [row["amount"] for row in rows_of(owner, "/t/vision/usage.csv")] == ["15"], "the current month by default"


def test_the_line_has_its_table(estate: Estate, browser: Browsers) -> None:
    html = browser("owner").get("/t/vision/usage/?start=2026-11-01&end=2026-11-30").content.decode()
    values = [Decimal(value) for value in re.findall(r'data-at="\d+" data-value="([\d.]+)"', html)]
    assert len(values) == 30
    assert sum(values) == Decimal("202.5")
    assert " style=" not in html
    scripts = re.findall(r"<script[^>]*>", html)
    assert all(' src="' in script or "nonce" in script for script in scripts)


def test_wrong_filters_say_so(estate: Estate, browser: Browsers) -> None:
    owner = browser("owner")
    assert "before the first one" in page(owner, "/t/vision/usage/?start=2026-11-05&end=2026-11-01")
    assert "more than 400 days" in page(owner, "/t/vision/usage/?start=2020-01-01&end=2026-11-01")
    for query in ("?start=nonsense", "?by=password", "?sharing=x", "?page=-1", "?page=" + "9" * 40, "?deployment=ns:x"):
        assert owner.get(f"/t/vision/usage/{query}").status_code == 200, query


def test_the_running_month_stands_first(estate: Estate, browser: Browsers) -> None:
    text = page(browser("owner"), "/t/vision/bills/")
    assert (
        "2026-12, so far All lines 16.25 EUR Final hours 15.00 EUR Open hours, until 2026-12-02 12:30 1.25 EUR" in text
    )
    assert text.index("16.25 EUR") < text.index("503.00 EUR")
    lines = rows_of(browser("owner"), "/t/vision/bills/open/2026-12.csv")
    assert [(row["state"], row["quantity"], row["amount"]) for row in lines] == [
        ("final", "6", "15"),
        ("running", "0.5", "1.25"),
    ]
    assert lines[0]["charge_end"] == "2026-12-02T12:00:00Z"
    assert browser("owner").get("/t/vision/bills/open/2026-11/").status_code == 404, "it is closed"
    assert "cost this month" in page(browser("owner"), "/t/vision/").lower()
    assert "16.25 EUR" in page(browser("owner"), "/t/vision/")


def test_a_bill_opens_to_its_lines(estate: Estate, browser: Browsers) -> None:
    path = f"/t/vision/bills/{estate.bill().pk}/"
    text = page(browser("finance"), path)
    assert "Total 503.00 EUR Sum of the lines 503.00 EUR" in text
    assert "2.500000 GPU-hours 1.20 3.00" in text
    assert "200.000000 GPU-hours 2.50 500.00" in text
    assert "Give money back" not in text
    lines = rows_of(browser("finance"), path.rstrip("/") + ".csv")
    assert sum(Decimal(row["amount"]) for row in lines) == Decimal(503)


def test_a_line_opens_to_its_allocations(estate: Estate, browser: Browsers) -> None:
    share, whole = estate.lines()
    base = f"/t/vision/bills/{estate.bill().pk}/lines"
    text = page(browser("developer"), f"{base}/{whole.pk}/")
    assert "Sum of its 2 allocations 200 GPU-hours" in text
    assert "which is not the line" not in text
    assert text.count("train") == 2
    parts = rows_of(browser("developer"), f"{base}/{whole.pk}.csv")
    assert [(row["pod"], row["node"], row["share"], row["seconds_in_line"], row["quantity"]) for row in parts] == [
        ("train", "node-0", "1", "360000", "100")
    ] * 2
    [part] = rows_of(browser("developer"), f"{base}/{share.pk}.csv")
    assert (part["pod"], part["share"], part["seconds_in_line"], part["quantity"]) == ("share", "0.25", "36000", "2.5")
    assert (part["started"], part["ended"]) == ("2026-11-01T00:00:00Z", "2026-11-01T10:00:00Z")
    assert browser("developer").get(f"{base}/{estate.bill().pk}/").status_code == 404


def test_rates_and_what_has_none(estate: Estate, browser: Browsers) -> None:
    finance = browser("platform-finance")
    assert "Without a price" not in page(finance, "/platform/rates/")
    rate = Rate.objects.get(sharing="whole")
    end = {"date": "2026-12-02", "time": "06:00"}
    assert finance.post(f"/platform/rates/{rate.pk}/end", {"date": "2026-11-10", "time": "00:00"}).status_code == 409
    assert finance.post(f"/platform/rates/{rate.pk}/end", end).status_code == 303
    text = page(finance, "/platform/rates/")
    assert "Without a price" in text
    assert "h100 whole 6.000 GPU-hours, blocks the close" in text
    assert "1 line has no price" in page(finance, "/platform/bills/house/2026-12/")
    new = {
        "resource": "gpu", "gpu_type": "h100", "sharing": "whole", "source": "fixed", "price": "3.00", "margin": "0.1",
        "date": "2026-12-02", "time": "06:00",
    }  # fmt: skip
    wrong = finance.post("/platform/rates/", new | {"gpu_type": ""})
    assert wrong.status_code == 422
    assert "names the type of card" in wrong.content.decode()
    early = finance.post("/platform/rates/", new | {"date": "2026-11-05"})
    assert early.status_code == 422
    assert "are closed" in early.content.decode()
    assert finance.post("/platform/rates/", new).status_code == 303
    text = page(finance, "/platform/rates/")
    assert "Without a price" not in text
    assert "3.00 a GPU-hour 10 %" in text
    # 6 h × 3.30
    assert "19.80 EUR" in page(browser("owner"), "/t/vision/bills/open/2026-12/")


def test_a_rate_begins_at_midnight_of_the_issuers_zone(estate: Estate, browser: Browsers) -> None:
    Issuer.objects.filter(pk=estate.issuer.pk).update(time_zone="Europe/Berlin")
    new = {
        "resource": "gpu", "gpu_type": "h100", "sharing": "whole", "source": "fixed", "price": "3",
        "date": "2027-01-01", "time": "00:00",
    }  # fmt: skip
    assert browser("platform-finance").post("/platform/rates/", new).status_code == 303
    assert Rate.objects.get(price=3).valid_from == datetime(2026, 12, 31, 23, tzinfo=UTC)


def test_the_first_issuer(browser: Browsers, estate: Estate) -> None:
    finance = browser("platform-finance")
    values = {"slug": "partner", "name": "Partners", "currency": "usd", "time_zone": "Mars/Olympus", "kind": "invoice",
              "grace_hours": 24}  # fmt: skip
    answer = finance.post("/platform/issuers/", values)
    assert answer.status_code == 422
    assert "no IANA time zone" in answer.content.decode()
    assert finance.post("/platform/issuers/", values | {"time_zone": "UTC"}).status_code == 303
    issuer = Issuer.objects.get(slug="partner")
    assert (issuer.currency, issuer.is_default) == ("USD", False)
    assert finance.post("/platform/issuers/", values | {"time_zone": "UTC"}).status_code == 422, "it is there already"
    assert "USD" in page(finance, "/platform/bills/?issuer=partner")


def test_closing_takes_the_typed_period_and_makes_one_bill() -> None:
    estate = make_estate(closed=False)
    client = Client()
    client.force_login(estate.people["platform-finance"])
    path = "/platform/bills/house/2026-11"
    text = page(client, f"{path}/")
    assert "Nothing is in the way" in text
    assert "503.00 EUR" in text
    wrong = client.post(f"{path}/close", {"confirm": "2026-10"})
    assert wrong.status_code == 422
    assert "Type 2026-11" in wrong.content.decode()
    for _ in range(2):
        assert client.post(f"{path}/close", {"confirm": "2026-11"}).status_code == 303
        with system_scope("test"):
            assert Bill.objects.get().total == 503
    text = page(client, f"{path}/")
    assert "Total of all bills 503.00 EUR" in text
    assert "Close the month" not in text
    assert [row["amount"] for row in rows_of(client, f"{path}.csv")] == ["3", "500"]


def test_what_keeps_a_month_from_being_closed(estate: Estate, browser: Browsers) -> None:
    finance = browser("platform-finance")
    text = page(finance, "/platform/bills/house/2026-12/")
    assert "It can be closed from 2027-01-01T01:00:00Z" in text
    assert "Close 2026-12" not in text
    refused = finance.post("/platform/bills/house/2026-12/close", {"confirm": "2026-12"})
    assert refused.status_code == 409
    assert "can be closed from" in refused.content.decode()
    assert BillingPeriod.objects.get(year=2026, month=12).state == "open"
    assert finance.get("/platform/bills/house/2031-01/").status_code == 404
    assert finance.get("/platform/bills/nobody/2026-11/").status_code == 404
    with at(NOW + timedelta(days=40)):
        text = page(finance, "/platform/bills/house/2026-12/")
        assert "not final until the end of the month on east" in text
        assert "Close although clusters are behind" in text
        done = finance.post("/platform/bills/house/2026-12/close", {"confirm": "2026-12", "accept_behind": "on"})
        assert done.status_code == 303
    with system_scope("test"):
        assert Bill.objects.get(period__month=12).total == 15


def test_money_is_given_back_once(estate: Estate, browser: Browsers) -> None:
    finance, path = browser("platform-finance"), f"/platform/credit/{estate.bill().pk}/"
    html = finance.get(path).content.decode()
    token = re.search(r'name="submission" value="([^"]+)"', html)
    assert token
    values = {"submission": token[1], "line": "2", "amount": "100.00", "reason": "a node failed"}
    assert "no line 9" in finance.post(path, values | {"line": "9"}).content.decode()
    assert "more than the rest" in finance.post(path, values | {"line": "", "amount": "600"}).content.decode()
    for _ in range(2):
        assert finance.post(path, values).status_code == 303
    with system_scope("test"):
        assert CreditNote.objects.get().amount == 100
    text = page(browser("owner"), f"/t/vision/bills/{estate.bill().pk}/")
    assert "After credit notes 403.00 EUR" in text
    assert "a node failed" in text
    assert "100.00 EUR" in page(browser("owner"), "/t/vision/bills/")


def test_whether_the_hours_add_up(estate: Estate, browser: Browsers) -> None:
    finance = browser("platform-finance")
    day = "?start=2026-11-01&end=2026-11-01"
    rows = {(row["gpu_type"], row["sharing"]): row for row in rows_of(finance, f"/platform/hours/adds-up.csv{day}")}
    whole, hami = rows["h100", "whole"], rows["a100", "hami"]
    # 8 cards × 24 h; two hours of one card are nobody's.
    assert (Decimal(whole["in_service"]), Decimal(whole["unattributed"]), Decimal(whole["idle"])) == (192, 2, 190)
    assert (Decimal(hami["tenants"]), Decimal(hami["idle"])) == (Decimal("2.5"), Decimal("189.5"))
    assert all(Decimal(row[name]) == 0 for row in rows.values() for name in ("difference", "overbooked", "outside"))
    # 190 × 2.50 and 189.5 × 1.20
    assert (Decimal(whole["idle_cost"]), Decimal(hami["idle_cost"])) == (475, Decimal("227.4"))
    text = page(finance, f"/platform/hours/adds-up/{day}")
    assert "In service, card-hours 384.00 Adds up yes Idle, at list prices 702.40 EUR" in text
    assert "east nobodys 2.00" in text
    assert '/platform/namespaces/?cluster=east&amp;namespace=nobodys#give' in finance.get(
        f"/platform/hours/adds-up/{day}").content.decode()  # fmt: skip
    hours = rows_of(finance, f"/platform/hours/nodes.csv{day}&gpu_type=h100")
    assert len(hours) == 24
    assert sum(Decimal(row["unattributed"]) for row in hours) == 2
    assert rows_of(finance, f"/platform/hours/nodes.csv{day}&wrong=on") == []
    assert "Everything adds up" in page(finance, f"/platform/hours/adds-up/{day}&wrong=on")


def test_an_hour_that_does_not_add_up_is_shown(estate: Estate, browser: Browsers) -> None:
    from billing.models import CapacityHour

    row = CapacityHour.objects.filter(gpu_type__slug="h100").order_by("hour").first()
    assert row is not None
    CapacityHour.objects.filter(pk=row.pk).update(in_service=row.in_service + 3_600_000_000_000)
    finance, day = browser("platform-finance"), "?start=2026-11-01&end=2026-11-01"
    assert "1 row do not" in page(finance, f"/platform/hours/adds-up/{day}").replace("rows", "row")
    assert "difference 1.00" in page(finance, f"/platform/hours/adds-up/{day}&wrong=on")
    assert "difference 1.00" in page(finance, f"/platform/hours/nodes/{day}&wrong=on")


def test_long_lists_have_pages(estate: Estate, browser: Browsers) -> None:
    finance = browser("platform-finance")
    week = "?start=2026-11-01&end=2026-11-07"
    html = finance.get(f"/platform/hours/nodes/{week}").content.decode()
    assert "page=2" in html
    text = page(finance, f"/platform/hours/nodes/{week}&page=4")
    assert "Previous page" in text
    assert "Next page" not in text
