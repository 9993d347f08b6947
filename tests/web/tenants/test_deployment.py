"""A deployment's own pages: state, manifest, scale, image, delete."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape

import pytest
from django.test import Client

from infra.models import Cluster
from portal.kernel.scoping import system_scope
from tenants.models import ModelDeployment, ModelReplica
from tenants.services.events import event_add
from tests.web.tenants.conftest import count, form_data, stored, text_of

pytestmark = pytest.mark.django_db
PAGE = "/t/ml-team/deployments/qwen3-8b/"
POD = {"role": "Standalone", "copy": 0, "ordinal": 0, "node": "alpha-0", "cpu_millis": 1, "memory_bytes": 1}
GRANT = {
    "request": "gpu", "entry": "gpu", "gpu_type": "nvidia-h100-80gb-hbm3", "count": 1, "millionths": 1_000_000,
    "claim": "plugin", "cards": [], "memory_mib": 0, "cores": 0, "profile": "", "device_class": "",
}  # fmt: skip


@pytest.fixture
def replica(deployment: ModelDeployment) -> ModelReplica:
    """Its replica, pulling its image on alpha."""
    pods = [POD | {"grants": [GRANT]}]
    engine = {"engine": "engine", "pool": "pool-whole", "sharing": "whole", "pods": pods}
    with system_scope("test"):
        return ModelReplica.objects.create(
            tenant=deployment.tenant, deployment=deployment, index=0, cluster=Cluster.objects.get(slug="alpha"),
            placement={"index": 0, "cluster": "alpha", "engines": [engine]}, spec=deployment.spec, phase="Pulling",
            message="Pulling vllm/vllm-openai:v0.23.0.",
        )  # fmt: skip


def test_the_page_says_where_it_runs_and_why_it_waits(
    owner: Client, deployment: ModelDeployment, replica: ModelReplica
) -> None:
    with system_scope("test"):
        deployment.phase, deployment.waiting = "Waiting", "1 of 2 replicas have a place. Quota of h100 is full: 4 of 4."
        deployment.waiting_since = datetime(2026, 11, 3, 8, 15, tzinfo=UTC)
        deployment.explanation = [{"rule": "quota", "cluster": "beta", "pool": None, "sentence": "0 cards are left."}]
        deployment.conditions = [{"type": "Placed", "status": "False", "reason": "QuotaExceeded", "message": "full"}]
        deployment.save()
        event_add(deployment, "Placed", "Placed on alpha.", replica_index=0)
    page = text_of(owner.get(PAGE))
    for said in (
        "Quota of h100 is full: 4 of 4.", "Waiting since", "2026-11-03 08:15", "alpha-0", "Pulling vllm", "pool-whole",
        "0 cards are left.", "QuotaExceeded", "Placed on alpha.", "not known",
    ):  # fmt: skip
        assert said in page, said


def seen(page: str) -> str:
    """What the shown part is known by."""
    return re.findall(r'hx-vals=\'\{"seen": "([0-9a-f]+)"\}\'', page)[0]


def test_polling_answers_only_what_is_new(owner: Client, deployment: ModelDeployment, replica: ModelReplica) -> None:
    shown = seen(text_of(owner.get(PAGE)))
    same = owner.get(f"{PAGE}status", {"seen": shown}, headers={"HX-Request": "true"})
    assert (same.status_code, same.content) == (204, b"")
    with system_scope("test"):
        ModelReplica.objects.filter(pk=replica.pk).update(phase="Ready", ready=True, message="1 pod ready.")
    changed = owner.get(f"{PAGE}status", {"seen": shown}, headers={"HX-Request": "true"})
    assert changed.status_code == 200
    fragment = text_of(changed)
    assert fragment.strip().startswith('<div id="live">')
    assert "1 pod ready." in fragment
    assert seen(fragment) != shown
    assert owner.get(f"{PAGE}status", {"seen": seen(fragment)}).status_code == 204


def test_polling_ends_when_it_is_gone(owner: Client, deployment: ModelDeployment) -> None:
    with system_scope("test"):
        ModelDeployment.objects.update(deleted_at=datetime(2026, 11, 4, tzinfo=UTC))
    answer = owner.get(f"{PAGE}status", headers={"HX-Request": "true"})
    assert answer.status_code == 404
    page = text_of(answer)
    assert "qwen3-8b is gone" in page
    assert "hx-trigger" not in page


def test_the_manifest_is_shown_and_sent(owner: Client, deployment: ModelDeployment) -> None:
    assert "kind: ModelDeployment" in text_of(owner.get(f"{PAGE}yaml"))
    file = owner.get(f"{PAGE}yaml", {"download": "1"})
    assert file["Content-Disposition"] == 'attachment; filename="qwen3-8b.yaml"'
    assert "namespace: ml-team" in text_of(file)


def test_scale_shows_what_happens_first(owner: Client, deployment: ModelDeployment) -> None:
    before = unescape(text_of(owner.get(f"{PAGE}scale", {"replicas": "3"})))
    assert "It fits." in before
    assert stored().replicas == 1
    part = text_of(owner.get(f"{PAGE}scale", {"replicas": "3"}, headers={"HX-Request": "true"}))
    assert "<html" not in part
    assert "It fits." in part
    sent = form_data(owner, f"{PAGE}scale", replicas="3")
    asked = owner.post(f"{PAGE}scale", sent | {"action": "preview"})
    assert (asked.status_code, stored().replicas) == (200, 1)
    assert "It fits." in text_of(asked)
    assert owner.post(f"{PAGE}scale", sent)["Location"] == PAGE
    assert owner.post(f"{PAGE}scale", sent).status_code == 303
    assert (stored().replicas, stored().generation) == (3, 2)


@pytest.mark.parametrize("value", ["-1", "101", "many", ""])
def test_a_scale_that_is_none(owner: Client, deployment: ModelDeployment, value: str) -> None:
    answer = owner.post(f"{PAGE}scale", form_data(owner, f"{PAGE}scale", replicas=value))
    assert answer.status_code == 422
    assert 'aria-invalid="true"' in text_of(answer)
    assert owner.get(f"{PAGE}scale", {"replicas": value}).status_code == 422
    assert stored().replicas == 1


def test_a_change_of_something_that_changed_is_refused(owner: Client, deployment: ModelDeployment) -> None:
    stale = form_data(owner, f"{PAGE}scale", replicas="3")
    sent = form_data(owner, f"{PAGE}image", image="vllm/vllm-openai:v0.24.0")
    assert owner.post(f"{PAGE}image", sent).status_code == 303
    answer = owner.post(f"{PAGE}scale", stale)
    assert answer.status_code == 422
    assert "was changed since you read it" in text_of(answer)
    assert stored().replicas == 1


def test_a_new_image_says_how_it_is_rolled_out(
    owner: Client, deployment: ModelDeployment, replica: ModelReplica
) -> None:
    page = unescape(text_of(owner.get(f"{PAGE}image", {"image": "vllm/vllm-openai:v0.24.0"})))
    assert "one replica down at a time" in page
    sent = form_data(owner, f"{PAGE}image", image="vllm/vllm-openai:v0.24.0")
    assert owner.post(f"{PAGE}image", sent).status_code == 303
    assert "v0.24.0" in str(stored().spec)
    bad = owner.post(f"{PAGE}image", form_data(owner, f"{PAGE}image", image="no image"))
    assert bad.status_code == 422
    assert "id_image_error" in text_of(bad)


def test_delete_wants_the_name(owner: Client, deployment: ModelDeployment) -> None:
    wrong = owner.post(f"{PAGE}delete", form_data(owner, f"{PAGE}delete", name="qwen"))
    assert wrong.status_code == 422
    assert "Type qwen3-8b to delete it" in text_of(wrong)
    assert count(deleting_at__isnull=False) == 0
    sent = form_data(owner, f"{PAGE}delete", name="qwen3-8b")
    assert owner.post(f"{PAGE}delete", sent).status_code == 303
    assert count(deleting_at__isnull=False) == 1
    assert "It is being deleted" in text_of(owner.get(PAGE))
    assert "deleted already" in text_of(owner.get(f"{PAGE}delete"))


def test_what_people_write_is_text(owner: Client, deployment: ModelDeployment) -> None:
    with system_scope("test"):
        ModelDeployment.objects.update(waiting="<script>alert(1)</script>", source="</code><script>alert(2)</script>")
    for part in ("", "yaml"):
        assert "<script>alert" not in text_of(owner.get(f"{PAGE}{part}"))
