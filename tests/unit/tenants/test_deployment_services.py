"""The services and the placing reconciler, on rows alone: no cluster is asked."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from infra.models import Cluster, Reservation
from portal.kernel.models import AuditEvent, WorkItem
from portal.kernel.problems import Conflict, Invalid, NotFound, PreconditionFailed
from portal.kernel.scoping import system_scope, tenant_scope
from portal.kernel.workqueue import run_item
from tenants.models import DeploymentEvent, ModelDeployment, ModelReplica, QuotaAllotment, Tenant
from tenants.ports import HourlyPrice, register_price_book
from tenants.selectors.deployments import deployment_detail, deployments_by_phase, deployments_page
from tenants.services.deployments import (
    deployment_apply,
    deployment_delete,
    deployment_etag,
    deployment_scale,
    deployment_set_image,
)
from tenants.services.previews import deployment_preview
from tests.support.fleet import make_cluster, make_node, make_pool, make_type
from tests.support.tenants import CARD, TESTER, give_quota, make_tenant
from tests.unit.tenants.manifests import FLAT, manifest_data

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def tenant() -> Tenant:
    """A tenant with a quota of 4 on two clusters with one node of 2 cards each, at its only site."""
    tenant = make_tenant()
    for slug in ("alpha", "beta"):
        make_node(make_pool(cluster=make_cluster(slug)), cards=2, name=f"{slug}-0")
    give_quota(tenant, make_type(), 4)
    return tenant


def apply(tenant: Tenant, name: str = "qwen3-8b", **manifest: Any) -> ModelDeployment:
    return deployment_apply(tenant=tenant, manifest=manifest_data(name, **manifest), actor=TESTER).deployment


def place(deployment: ModelDeployment) -> ModelDeployment:
    """Run the deployment's work item once; the row afterwards."""
    item = WorkItem.objects.get(kind="deployment", object_id=deployment.pk)
    WorkItem.objects.filter(pk=item.pk).update(next_attempt_at=item.marked_at, lease_until=None)
    assert run_item(item.pk) is not None, WorkItem.objects.get(pk=item.pk).last_error
    return row_of(deployment)


def row_of(deployment: ModelDeployment) -> ModelDeployment:
    with system_scope("test"):
        return ModelDeployment.objects.select_related("tenant").get(pk=deployment.pk)


def replicas_of(deployment: ModelDeployment) -> list[ModelReplica]:
    with system_scope("test"):
        rows = ModelReplica.objects.filter(deployment=deployment, deleted_at__isnull=True)
        return list(rows.select_related("cluster").order_by("index"))


def make_ready(deployment: ModelDeployment) -> None:
    with system_scope("test"):
        for row in ModelReplica.objects.filter(deployment=deployment, deleting_at__isnull=True):
            row.ready, row.phase, row.observed_generation = True, "Ready", row.generation
            row.save()


def test_create_again_and_change(tenant: Tenant) -> None:
    created = deployment_apply(tenant=tenant, manifest=FLAT, actor=TESTER)
    assert (created.outcome, created.deployment.generation) == ("created", 1)
    again = deployment_apply(tenant=tenant, manifest=FLAT, actor=TESTER)
    assert (again.outcome, again.deployment.generation) == ("unchanged", 1)
    changed = deployment_apply(tenant=tenant, manifest=FLAT.replace("replicas: 2", "replicas: 3"), actor=TESTER)
    assert (changed.outcome, changed.deployment.generation) == ("configured", 2)
    with system_scope("test"):
        verbs = AuditEvent.objects.filter(object_id=created.deployment.pk).count()
        said = [event.message for event in DeploymentEvent.objects.order_by("first_at", "id")]
    assert verbs == 2
    assert said == [
        "system: tester asked for 2 replicas.",
        "system: tester changed replicas from 2 to 3.",
    ]
    assert WorkItem.objects.get(object_id=created.deployment.pk).mark_seq == 2


def test_faults_are_all_named_and_nothing_is_stored(tenant: Tenant) -> None:
    text = FLAT.replace(">= 0", "> quantity").replace("ml-team", "ml-team2").replace("count: 1", "count: 99")
    with pytest.raises(Invalid) as caught:
        deployment_apply(tenant=tenant, manifest=text, actor=TESTER)
    pointers = {error["pointer"] for error in caught.value.errors}
    assert any(pointer.endswith("/count") for pointer in pointers)
    assert any(pointer.endswith("/cel") for pointer in pointers)
    with pytest.raises(Invalid, match="names another tenant"):
        deployment_apply(tenant=tenant, manifest=FLAT.replace("ml-team", "ml-team2"), actor=TESTER)
    assert not WorkItem.objects.filter(kind="deployment").exists()


def test_if_match_and_dry_run(tenant: Tenant) -> None:
    deployment = apply(tenant)
    tag = deployment_etag(deployment)
    deployment_scale(tenant=tenant, name=deployment.name, replicas=2, actor=TESTER, if_match=tag)
    with pytest.raises(PreconditionFailed):
        deployment_scale(tenant=tenant, name=deployment.name, replicas=3, actor=TESTER, if_match=tag)
    tried = deployment_apply(tenant=tenant, manifest=manifest_data(replicas=4), actor=TESTER, dry_run=True)
    assert tried.outcome == "configured"
    assert tried.preview is not None
    assert tried.preview.fits
    assert row_of(deployment).replicas == 2
    deployment_apply(tenant=tenant, manifest=manifest_data("other"), actor=TESTER, dry_run=True)
    with pytest.raises(NotFound):
        deployment_delete(tenant=tenant, name="other", actor=TESTER)


def test_admit_now_refuses_and_stores_nothing(tenant: Tenant) -> None:
    give_quota(tenant, make_type(), 3)
    with pytest.raises(Conflict) as caught:
        deployment_apply(tenant=tenant, manifest=manifest_data(replicas=4), actor=TESTER, admit_now=True)
    assert caught.value.code == "QuotaExceeded"
    assert caught.value.extra["reasons"]
    assert not WorkItem.objects.filter(kind="deployment").exists()
    assert deployment_apply(tenant=tenant, manifest=manifest_data(replicas=3), actor=TESTER, admit_now=True)


def test_replicas_are_placed_reserved_and_counted(tenant: Tenant) -> None:
    deployment = place(apply(tenant, replicas=2))
    assert [replica.cluster.slug for replica in replicas_of(deployment)] == ["alpha", "beta"]
    assert Reservation.objects.filter(tenant_id=tenant.pk, released_at__isnull=True).count() == 2
    with system_scope("test"):
        parts = {part.cluster.slug: part.target for part in QuotaAllotment.objects.select_related("cluster")}
    assert parts == {"alpha": CARD, "beta": CARD}
    assert set(WorkItem.objects.values_list("kind", flat=True)) >= {"deployment", "replica", "namespace"}
    assert deployment.observed_generation == deployment.generation
    assert deployment.phase == "Progressing"
    place(deployment)
    assert len(replicas_of(deployment)) == 2


def test_what_does_not_fit_waits_with_numbers(tenant: Tenant) -> None:
    full = place(apply(tenant, "first", replicas=4))
    assert full.waiting_since is None
    waits = place(apply(tenant, "second"))
    assert waits.waiting_since is not None
    assert waits.phase == "Waiting"
    assert "0 of 1 replicas" in waits.waiting
    reasons = {one["type"]: one["reason"] for one in waits.conditions}
    assert reasons["Placed"] in ("QuotaExceeded", "NoCapacity")
    assert waits.explanation


def test_quota_is_the_sentence_when_cards_are_free(tenant: Tenant) -> None:
    give_quota(tenant, make_type(), 1)
    deployment = place(apply(tenant, replicas=2))
    assert len(replicas_of(deployment)) == 1
    conditions = {one["type"]: one for one in deployment.conditions}
    assert (conditions["Admitted"]["status"], conditions["Placed"]["reason"]) == ("False", "QuotaExceeded")
    assert "quota" in deployment.waiting.lower()
    give_quota(tenant, make_type(), 2)
    assert len(replicas_of(place(deployment))) == 2


def test_nothing_leaves_the_allowed_sites(tenant: Tenant) -> None:
    Cluster.objects.update(site=make_cluster("elsewhere", site="site-b").site)
    deployment = place(apply(tenant))
    assert not replicas_of(deployment)
    assert "site" in deployment.waiting


def test_scale_down_ends_the_replica_that_does_not_serve(tenant: Tenant) -> None:
    deployment = place(apply(tenant, replicas=2))
    make_ready(deployment)
    with system_scope("test"):
        ModelReplica.objects.filter(deployment=deployment, index=0).update(ready=False)
    deployment_scale(tenant=tenant, name=deployment.name, replicas=1, actor=TESTER)
    place(deployment)
    leaving = [replica.index for replica in replicas_of(deployment) if replica.deleting_at]
    assert leaving == [0]
    # What it holds stays reserved until the cluster has said that it is gone.
    assert Reservation.objects.filter(released_at__isnull=True).count() == 2


def test_a_new_image_reaches_one_serving_replica_at_a_time_at_full_quota(tenant: Tenant) -> None:
    deployment = place(apply(tenant, replicas=4))
    make_ready(deployment)
    preview = deployment_preview(
        tenant=tenant, manifest=manifest_data(replicas=4, image="vllm/vllm-openai:v0.24.0"), actor=TESTER
    )
    assert preview.rollout.startswith("No spare card: one replica down at a time")
    assert preview.fits
    deployment_set_image(tenant=tenant, name=deployment.name, image="vllm/vllm-openai:v0.24.0", actor=TESTER)
    for expected in (1, 1):
        place(deployment)
        new = [replica for replica in replicas_of(deployment) if "v0.24.0" in str(replica.spec)]
        assert len(new) == expected
    make_ready(deployment)
    place(deployment)
    assert sum("v0.24.0" in str(replica.spec) for replica in replicas_of(deployment)) == 2
    assert Reservation.objects.filter(released_at__isnull=True).count() == 4


def test_another_shape_that_has_no_place_leaves_what_runs(tenant: Tenant) -> None:
    deployment = place(apply(tenant, replicas=1))
    make_ready(deployment)
    deployment_apply(tenant=tenant, manifest=manifest_data(replicas=1, count=3), actor=TESTER)
    deployment = place(deployment)
    (replica,) = replicas_of(deployment)
    assert replica.deleting_at is None
    assert "keeps what it has" in deployment.waiting
    deployment_apply(tenant=tenant, manifest=manifest_data(replicas=1, count=2), actor=TESTER)
    place(deployment)
    (replica,) = replicas_of(deployment)
    assert replica.deleting_at is not None


def test_delete_waits_for_every_replica(tenant: Tenant) -> None:
    deployment = place(apply(tenant, replicas=2))
    deployment_delete(tenant=tenant, name=deployment.name, actor=TESTER)
    with pytest.raises(Conflict, match="being deleted"):
        apply(tenant)
    deployment = place(deployment)
    assert deployment.deleted_at is None
    for replica in replicas_of(deployment):
        item = WorkItem.objects.get(kind="replica", object_id=replica.pk)
        run_item(item.pk)
    assert not Reservation.objects.filter(released_at__isnull=True).exists()
    deployment = place(deployment)
    assert deployment.deleted_at is not None
    assert apply(tenant).pk != deployment.pk


def test_freed_cards_go_to_the_oldest_who_waits(tenant: Tenant) -> None:
    first = place(apply(tenant, "first", replicas=4))
    second, third = place(apply(tenant, "second", replicas=1)), place(apply(tenant, "third", replicas=1))
    deployment_scale(tenant=tenant, name="first", replicas=3, actor=TESTER)
    place(first)
    for replica in replicas_of(first):
        if replica.deleting_at:
            run_item(WorkItem.objects.get(kind="replica", object_id=replica.pk).pk)
    due = WorkItem.objects.filter(kind="deployment", next_attempt_at__isnull=False).order_by("next_attempt_at", "id")
    waiting = [item.object_id for item in due if item.object_id in (second.pk, third.pk)]
    assert waiting == [second.pk, third.pk]


class Prices:
    """One price for every whole card."""

    def price_per_hour(self, gpu_type_id: Any, sharing: str, profile: str, at: Any) -> HourlyPrice | None:
        from decimal import Decimal

        return HourlyPrice(Decimal("2.50"), "EUR") if sharing == "whole" else None


def test_preview_says_where_what_and_how_much(tenant: Tenant) -> None:
    register_price_book(Prices())
    try:
        preview = deployment_preview(tenant=tenant, manifest=manifest_data(replicas=3), actor=TESTER)
    finally:
        register_price_book(None)
    assert preview.change == "created"
    assert len(preview.places) == 3
    assert str(preview.cost.amount) == "7.500000" or preview.cost.amount == 7.5
    assert preview.quota[0].sentence == ("0 of 4 cards of nvidia-h100-80gb-hbm3 are taken, 3 afterwards.")
    assert preview.as_json()["fits"] is True
    unpriced = deployment_preview(tenant=tenant, manifest=manifest_data(), actor=TESTER)
    assert unpriced.cost.amount is None


def test_pages_take_the_same_queries_for_any_number(tenant: Tenant) -> None:
    for number in range(7):
        apply(tenant, f"d{number}")
    with tenant_scope(tenant.pk):
        with CaptureQueriesContext(
            connection,
        ) as few:
            first = deployments_page(tenant=tenant, limit=2)
        names, page = [row.deployment.name for row in first.rows], first
        while page.next_cursor:
            with CaptureQueriesContext(connection) as more:
                page = deployments_page(tenant=tenant, limit=2, cursor=page.next_cursor)
            assert len(more) == len(few) == 2
            names += [row.deployment.name for row in page.rows]
        assert names == [f"d{number}" for number in reversed(range(7))]
        assert deployments_by_phase(tenant=tenant) == {"Pending": 7}
        assert deployment_detail(tenant=tenant, name="d3").events[0].reason == "Created"


def test_command_line(tenant: Tenant, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(FLAT)
    call_command("apply", "-f", str(path))
    call_command("apply", "-f", str(path))
    call_command("get", "deployments", "-n", "ml-team")
    out = capsys.readouterr().out
    assert "modeldeployment/qwen3-8b created" in out
    assert "modeldeployment/qwen3-8b unchanged" in out
    assert "0/2" in out
    path.write_text(FLAT.replace("replicas: 2", "replicas: two"))
    with pytest.raises(CommandError, match="1 of the documents"):
        call_command("apply", "-f", str(path))
    assert "line 5: /spec/replicas" in capsys.readouterr().err


def test_replicas_of_an_abandoned_cluster_end_and_find_another_place(tenant: Tenant) -> None:
    deployment = place(apply(tenant, replicas=2))
    Cluster.objects.filter(slug="alpha").update(abandoned_at=deployment.created_at, abandoned_reason="burnt down")
    deployment = place(deployment)
    leaving = [replica for replica in replicas_of(deployment) if replica.deleting_at]
    assert [replica.message for replica in leaving] == ["Cluster alpha was abandoned: burnt down"]
    for replica in leaving:
        run_item(WorkItem.objects.get(kind="replica", object_id=replica.pk).pk)
    deployment = place(deployment)
    assert [replica.cluster.slug for replica in replicas_of(deployment)] == ["beta", "beta"]
