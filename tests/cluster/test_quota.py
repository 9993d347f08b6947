"""Quotas held by the clusters themselves, through our own reconcilers: on the simulator and on real API servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from django.db import connection

from infra.kube.errors import KubeError
from infra.models import GPUType
from portal.kernel.scoping import system_scope
from tenants.models import AllotmentMove, QuotaAllotment
from tenants.services.deployments import deployment_apply
from tenants.services.quotas import quota_set
from tests.cluster.conftest import REAL
from tests.cluster.quota_estate import (
    CEL,
    amounts,
    cards,
    delete,
    everywhere,
    fleet,
    hand_over,
    hard,
    let_in,
    made,
    over_quota,
    pod,
    prepared,
    vc,
)
from tests.support.estate import ADMIN, PATIENCE, Estate, work
from tests.support.tenants import CARD, TESTER
from tests.unit.tenants.manifests import manifest_data

__all__ = ["fleet", "made"]  # fixtures, found by their names

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


@pytest.mark.parametrize("fleet", [REAL], indirect=True)  # the simulator enforces a quota at once
def test_eight_cards_do_not_become_nine_by_hand(made: Estate) -> None:
    """The cluster's administrator makes pods in every namespace, as fast as it goes, while namespaces are made,
    deployments are placed and cards moved: from before there is any of these namespaces."""
    names = list(made.clusters)
    hand_over(made, None, names[0], 2)
    hand_over(made, None, names[1], 2)
    most, count_in, stop = [0], [0], threading.Event()
    failures: list[BaseException] = []
    refused: dict[str, str] = {}

    def by_hand(name: str, namespace: str) -> None:
        client, number = made.client(name), 0
        while not stop.is_set():
            number += 1
            try:
                client.apply(pod(f"hand-{number}", namespace), field_manager="kubectl")
                count_in[0] += 1
            except KubeError as error:
                refused[namespace] = error.sentence
            time.sleep(0.02)

    def count() -> None:
        while not stop.is_set():
            most[0] = max(most[0], everywhere(made))

    def told(task: Callable[..., None], *arguments: str) -> None:
        try:
            task(*arguments)
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            connection.close()

    threads = [
        threading.Thread(target=told, args=(by_hand, name, namespace), daemon=True)
        for name in names
        for namespace in (vc(made), made.tenant.namespace)
    ]
    threads.append(threading.Thread(target=told, args=(count,), daemon=True))
    for thread in threads:
        thread.start()
    try:
        prepared(made, {names[0]: 2, names[1]: 2})
        deployment_apply(tenant=made.tenant, manifest=manifest_data(cel=CEL, replicas=6), actor=TESTER)
        hand_over(made, names[0], names[-1], 1)
        began = time.monotonic()
        while time.monotonic() < began + 8 or (not count_in[0] and time.monotonic() < began + PATIENCE):
            work()
            time.sleep(0.05)
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert failures == []
    assert count_in[0] >= 1, f"nothing was let in, so nothing was tried: {refused}"
    assert most[0] <= 8
    assert everywhere(made) <= 8
    with system_scope("test"):
        parts = QuotaAllotment.objects.filter(tenant=made.tenant)
        assert sum(part.amount for part in parts) <= 8 * CARD


def test_a_move_waits_until_the_cluster_enforces_the_lower_figure_and_its_pods_have_ended(made: Estate) -> None:
    one, two = list(made.clusters)[:2]
    hand_over(made, None, one, 8)
    prepared(made, {one: 8, two: 0})
    let_in(made.client(one), vc(made), *(f"p{number}" for number in range(8)))
    assert over_quota(made.client(one), vc(made), "p8")
    move = hand_over(made, one, two, 3)
    made.until(lambda: hard(made, one) == 5, "the lower figure")
    for _ in range(3):
        work()
    assert (amounts(made)[one], amounts(made)[two], hard(made, two)) == (8, 0, 0)  # eight pods still hold them
    assert over_quota(made.client(two), vc(made), "early")
    for number in range(3):
        delete(made.client(one), "v1", "Pod", f"p{number}", vc(made))
    made.until(lambda: amounts(made) == {**amounts(made), one: 5, two: 3}, "the move")
    made.until(lambda: hard(made, two) == 3, "the higher figure")
    with system_scope("test"):
        assert AllotmentMove.objects.get(pk=move.pk).state == "done"
    let_in(made.client(two), vc(made), *(f"q{number}" for number in range(3)))
    assert over_quota(made.client(two), vc(made), "q3")
    assert everywhere(made) == 8


def test_lowering_ends_no_pod_and_lets_none_in(made: Estate) -> None:
    one = next(iter(made.clusters))
    hand_over(made, None, one, 4)
    prepared(made, {one: 4})
    let_in(made.client(one), vc(made), *(f"p{number}" for number in range(4)))
    quota_set(tenant=made.tenant, gpu_type=GPUType.objects.get(slug__contains="h100"), limit=2 * CARD, actor=ADMIN)
    hand_over(made, one, None, 2)
    made.until(lambda: hard(made, one) == 2, "the lower figure")
    assert cards(made.client(one), vc(made)) == 4
    assert over_quota(made.client(one), vc(made), "more")
    assert amounts(made)[one] == 4
    for number in range(2):
        delete(made.client(one), "v1", "Pod", f"p{number}", vc(made))
    made.until(lambda: amounts(made)[one] == 2, "the part follows")
