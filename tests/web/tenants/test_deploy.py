"""Deploying by form, text and file: what is shown before yes, what is said of bad input, and that yes counts once."""

from __future__ import annotations

from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tenants.models import ModelDeployment, Tenant
from tenants.ports import HourlyPrice, price_book, register_price_book
from tests.unit.tenants.manifests import FLAT
from tests.web.tenants.conftest import PRODUCT, apply, count, form_data, stored, text_of

pytestmark = pytest.mark.django_db
PAGE = "/t/ml-team/deploy/"
FIELDS = {
    "name": "chat", "model": "Qwen/Qwen3-8B", "image": "vllm/vllm-openai:v0.23.0", "args": "--max-model-len=32768\n\n",
    "replicas": "2", "cards": "1", "share": "", "product": PRODUCT, "memory_gib": "40", "cost_code": "",
    "engine": "engine", "mode": "form",
}  # fmt: skip


class Prices:
    """2.50 EUR for a whole card."""

    def price_per_hour(self, gpu_type_id: Any, sharing: str, profile: str, at: Any) -> HourlyPrice | None:
        return HourlyPrice(Decimal("2.50"), "EUR")


@pytest.fixture(autouse=True)
def prices() -> Any:
    before = price_book()
    register_price_book(Prices())
    yield
    register_price_book(before)


def test_the_form_becomes_a_manifest(owner: Client, tenant: Tenant) -> None:
    answer = owner.post(PAGE, form_data(owner, PAGE, **FIELDS, action="deploy"))
    assert (answer.status_code, answer["Location"]) == (303, "/t/ml-team/deployments/chat/")
    row = stored("chat")
    assert row.replicas == 2
    assert row.created_by == "owner-1"
    (engine,) = row.spec["template"]["spec"]["engines"]
    (member,) = engine["members"]
    container = member["template"]["spec"]["containers"][0]
    assert container["args"] == ["--model=Qwen/Qwen3-8B", "--max-model-len=32768"]
    expressions = [one["cel"] for one in member["nodeSelector"]["devices"][0]["selectors"]]
    assert PRODUCT in expressions[0]
    assert 'quantity("40Gi")' in expressions[1]
    assert "Accepted" in text_of(owner.get(answer["Location"]))


def test_sent_twice_makes_one(owner: Client, tenant: Tenant) -> None:
    sent = form_data(owner, PAGE, **FIELDS, action="deploy")
    first, second = owner.post(PAGE, sent), owner.post(PAGE, sent)
    assert first["Location"] == second["Location"]
    assert second.status_code == 303
    assert count() == 1
    # Another page with the same name is another wish: it must not change what is there.
    third = owner.post(PAGE, form_data(owner, PAGE, **FIELDS | {"replicas": "9"}, action="deploy"))
    assert third.status_code == 422
    assert "There is a deployment chat already" in text_of(third)
    assert stored("chat").replicas == 2


def test_a_refused_form_can_be_sent_again(owner: Client, tenant: Tenant) -> None:
    sent = form_data(owner, PAGE, **FIELDS | {"name": "Chat"}, action="deploy")
    assert owner.post(PAGE, sent).status_code == 422
    assert owner.post(PAGE, sent | {"name": "chat"}).status_code == 303


def test_a_form_without_its_token_is_refused(owner: Client, tenant: Tenant) -> None:
    assert owner.post(PAGE, FIELDS | {"action": "deploy"}).status_code == 400
    assert count() == 0


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "Not A Name", "is not well formed"),
        ("name", "", "This field is required"),
        ("replicas", "101", "less than or equal to 100"),
        ("replicas", "two", "Enter a whole number"),
        ("cards", "0", "greater than or equal to 1"),
        ("product", "NVIDIA Nothing", "not one of the available choices"),
        ("image", "no image", "is not well formed"),
        ("args", "--trust-remote-code", "runs code from the model"),
        ("memory_gib", "-1", "greater than or equal to 1"),
        ("cost_code", "c" * 61, "at most 60 characters"),
    ],
)
def test_an_error_stands_at_its_field(owner: Client, tenant: Tenant, field: str, value: str, said: str) -> None:
    answer = owner.post(PAGE, form_data(owner, PAGE, **FIELDS | {field: value}, action="deploy"))
    assert answer.status_code == 422
    page = unescape(text_of(answer))
    assert f'id="id_{field}_error"' in page
    shown = page.split(f'id="id_{field}_error"')[1].split("</ul>")[0]
    assert said in shown
    tag = page.split(f'id="id_{field}"')[0].rsplit("<", 1)[1] + page.split(f'id="id_{field}"')[1].split(">")[0]
    assert 'aria-invalid="true"' in tag
    assert f"id_{field}_error" in tag
    assert count() == 0


def test_the_example_manifest_by_text_and_by_file(owner: Client, tenant: Tenant) -> None:
    page = form_data(owner, f"{PAGE}?mode=yaml", manifest=FLAT, action="deploy")
    assert owner.post(PAGE, page).status_code == 303
    assert stored("qwen3-8b").source == FLAT
    file = SimpleUploadedFile("m.yaml", FLAT.replace("qwen3-8b", "second").encode())
    page = form_data(owner, f"{PAGE}?mode=yaml", manifest="ignored", action="deploy", file=file)
    assert owner.post(PAGE, page).status_code == 303
    assert stored("second").replicas == 2


def test_faults_of_the_text_have_their_place(owner: Client, tenant: Tenant) -> None:
    bad = FLAT.replace("replicas: 2", "replicas: two").replace("20Gi", "twenty").replace("namespace: ml-team", "nam: x")
    answer = owner.post(PAGE, form_data(owner, f"{PAGE}?mode=yaml", manifest=bad, action="deploy"))
    assert answer.status_code == 422
    page = text_of(answer)
    assert "Line 5, column 3" in page
    assert "/spec/replicas" in page
    assert "Line 3, column" in page
    assert 'aria-invalid="true"' in page
    assert "replicas: two" in page, "nothing that was typed is lost"
    assert count() == 0


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (b"\xff\xfe\x00", "not text in UTF-8"),
        (b"#" * 300_000, "larger than 256 KiB"),
        (b"a: &x [*x]", "anchors and aliases"),
        (b"[" * 5000, "levels deep"),
    ],
)
def test_a_file_that_nobody_can_read(owner: Client, tenant: Tenant, file: bytes, said: str) -> None:
    upload = SimpleUploadedFile("m.yaml", file)
    answer = owner.post(PAGE, form_data(owner, f"{PAGE}?mode=yaml", manifest="", action="deploy", file=upload))
    assert answer.status_code == 422
    assert said in text_of(answer)


def test_what_would_happen_is_shown_before_yes(owner: Client, tenant: Tenant) -> None:
    answer = owner.post(f"{PAGE}preview", FIELDS, headers={"HX-Request": "true"})
    page = unescape(text_of(answer))
    assert answer.status_code == 200
    assert "<html" not in page
    assert "It fits." in page
    assert "5.00\u202fEUR" in page
    assert "0 of 4 cards" in page
    assert "2 afterwards" in page
    assert "Nothing runs yet" in page
    assert "alpha" in page
    # Without JavaScript the same stands in the page.
    whole = owner.post(PAGE, form_data(owner, PAGE, **FIELDS, action="preview"))
    assert whole.status_code == 200
    assert "5.00\u202fEUR" in text_of(whole)
    assert count() == 0


def test_what_does_not_fit_says_why_for_each_place(owner: Client, tenant: Tenant) -> None:
    page = unescape(text_of(owner.post(f"{PAGE}preview", FIELDS | {"cards": "3", "replicas": "1"})))
    assert "would wait" in page
    assert page.count('data-label="Why not"') >= 2
    nothing = unescape(text_of(owner.post(f"{PAGE}preview", FIELDS | {"name": ""})))
    assert "Not ready yet" in nothing
    assert "Name: This field is required" in nothing


def test_the_preview_of_a_taken_name_warns(owner: Client, tenant: Tenant) -> None:
    apply(tenant, name="chat")
    assert "of this name already" in text_of(owner.post(f"{PAGE}preview", FIELDS))
    assert "of this name already" not in text_of(owner.post(f"{PAGE}preview", FIELDS | {"editing": "chat"}))


def test_an_untouched_form_becomes_the_starter_manifest(owner: Client, tenant: Tenant) -> None:
    as_text = text_of(owner.post(PAGE, form_data(owner, PAGE, action="yaml")))
    assert "As a manifest" in as_text
    assert f"namespace: {tenant.slug}" in unescape(as_text)
    assert "This field is required" not in as_text


def test_between_form_and_text_nothing_is_lost(owner: Client, tenant: Tenant) -> None:
    as_text = text_of(owner.post(PAGE, form_data(owner, PAGE, **FIELDS, action="yaml")))
    manifest = unescape(as_text.split('name="manifest"')[1].split(">\n", 1)[1].split("</textarea>")[0])
    assert "--max-model-len=32768" in manifest
    back = text_of(owner.post(PAGE, {"mode": "yaml", "manifest": manifest, "action": "form"}))
    assert 'value="Qwen/Qwen3-8B"' in back
    assert 'value="40"' in back
    two = manifest.replace("replicas: 2", "replicas: 2\n  labels: {}")
    assert "is not a field here" in text_of(owner.post(PAGE, {"mode": "yaml", "manifest": two, "action": "form"}))
    more = FLAT.replace("replicas: 2", "replicas: 2\n  clusterSelector: {matchLabels: {a: b}}")
    kept = text_of(owner.post(PAGE, {"mode": "yaml", "manifest": more, "action": "form"}))
    assert "more than the form has fields for" in kept
    assert "clusterSelector" in kept


def test_edit_keeps_what_somebody_else_did_in_the_meantime(owner: Client, deployment: ModelDeployment) -> None:
    page = "/t/ml-team/deployments/qwen3-8b/edit"
    mine = form_data(owner, page, action="deploy", **FIELDS | {"name": "qwen3-8b", "replicas": "3"})
    assert mine["etag"] == '"1-0"'
    apply(deployment.tenant, replicas=2)
    late = owner.post(page, mine)
    assert late.status_code == 412
    assert "was changed since you read it" in text_of(late)
    assert stored().replicas == 2
    fresh = form_data(owner, page, action="deploy", **FIELDS | {"name": "qwen3-8b", "replicas": "3"})
    assert owner.post(page, fresh).status_code == 303
    assert (stored().replicas, stored().generation) == (3, 3)


def test_edit_does_not_rename(owner: Client, deployment: ModelDeployment) -> None:
    page = "/t/ml-team/deployments/qwen3-8b/edit"
    answer = owner.post(page, form_data(owner, page, action="deploy", **FIELDS | {"name": "other"}))
    assert answer.status_code == 422
    assert "can&#x27;t be changed" in text_of(answer)
    assert count() == 1


def test_what_the_form_can_not_hold_is_edited_as_text(owner: Client, tenant: Tenant) -> None:
    apply(tenant, clusterSelector={"matchLabels": {"tier": "gold"}})
    page = text_of(owner.get("/t/ml-team/deployments/qwen3-8b/edit"))
    assert '<textarea class="form-control manifest"' in page
    assert "tier: gold" in page
