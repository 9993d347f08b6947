"""A pod that the API knows and that was started again and again: its first start, and by how much it may be wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from infra.retroactive.pods import PastContainer, PastPod
from infra.services.past_pods import _life
from portal.kernel.clock import epoch_ms
from tests.billing.factories import pod_evidence

BOUND = datetime(2026, 11, 2, 8, tzinfo=UTC)
FIRST, THIRD = BOUND + timedelta(seconds=2), BOUND + timedelta(seconds=14)


@pytest.mark.parametrize(
    ("restarts", "told_at", "told", "started", "error"),
    [
        (0, None, None, THIRD, 0),
        (1, None, None, THIRD, 0),  # the API tells of the last run too
        (2, None, None, THIRD, 14_000),
        (
            2,
            BOUND + timedelta(seconds=5),
            FIRST,
            FIRST,
            2_000,
        ),  # history saw an earlier run, maybe not the first
    ],
)
def test_the_error_of_a_first_start_that_was_forgotten(
    restarts: int, told_at: datetime | None, told: datetime | None, started: datetime, error: int
) -> None:
    api = pod_evidence("loop", namespace="v", node="node-0", gpu=1, bound=BOUND, start=THIRD)
    api = replace(api, containers=tuple(replace(one, restarts=restarts) for one in api.containers))
    pod = None
    if told_at is not None and told is not None:
        containers = tuple(PastContainer(one.name, "main", (), epoch_ms(told)) for one in api.containers)
        pod = PastPod(
            uid=api.uid, namespace="v", name="loop", node="node-0", first=epoch_ms(told_at),
            last=epoch_ms(THIRD) + 60_000, scheduled=epoch_ms(BOUND), containers=containers,
        )  # fmt: skip
    past, evidence = _life(pod, api, uid="past:loop", step=60_000, gaps=())
    assert (evidence.started_at, past["start_error_ms"], past["end_error_ms"]) == (started, error, 0)
