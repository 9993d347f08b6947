"""The recorded run through the watcher: whatever breaks in between, the rows say the same."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db.models import F

from infra.models import CapacitySpan, Node, PodObservation, WatchSpan, WatchTarget
from tests.support import replay as recorded

pytestmark = pytest.mark.django_db


def told() -> dict[str, tuple[object, ...]]:
    """What matters of each pod: identity, times and what it holds."""
    return {
        row.uid: (
            row.name, row.node_name, row.scheduled_at, row.started_at, row.ended_at, json.dumps(row.holds),
            row.gone_at is not None,
        )
        for row in PodObservation.objects.all()
    }  # fmt: skip


@pytest.fixture
def whole() -> dict[str, tuple[object, ...]]:
    recorded.replay_pods(recorded.recorded_cluster("whole"), "whole")
    rows = told()
    PodObservation.objects.all().delete()
    return rows


def test_times_are_the_recorded_truth() -> None:
    cluster = recorded.recorded_cluster()
    recorded.replay(cluster)
    pods = {pod["uid"]: pod for pod in recorded.truth()["pods"]}
    rows = {row.uid: row for row in PodObservation.objects.filter(cluster=cluster)}
    assert set(rows) == set(pods)
    assert Node.objects.count() == 6
    assert sum(CapacitySpan.objects.values_list("cards", flat=True)) == 48


@pytest.mark.parametrize("outage", [timedelta(seconds=2), timedelta(minutes=4)])
@pytest.mark.parametrize("cut", [1, 40, 62, 64, 100, 109])
def test_a_resume_changes_nothing(whole: dict[str, tuple[object, ...]], cut: int, outage: timedelta) -> None:
    recorded.replay_pods(recorded.recorded_cluster(), "resume", cut=cut, outage=outage)
    assert told() == whole
    assert WatchSpan.objects.filter(target__cluster__slug="recorded").count() == 1
