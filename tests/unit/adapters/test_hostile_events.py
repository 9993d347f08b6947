"""Events inside a tenant cluster are what its administrators write: thousands of them must not hold a worker up."""

from __future__ import annotations

from typing import Any

import pytest

from infra.adapters.vcluster_state import refused_pods
from infra.kube.classify import exceeded_quota
from infra.kube.errors import clean

MANY = 1_000
QUOTA = ("exceeded quota: a, requested: " * 40 + ", used: " * 400)[:4096]
ADDRESS = "//" + ":" * 4_700


def _pod(name: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "default", "name": name}, "spec": {}, "status": {"phase": "Pending"}}


def _event(name: str, message: str) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": "2026-11-30T00:00:00Z"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": name},
        "reason": "SyncError",
        "message": message,
    }


@pytest.mark.timeout(100)  # each message took half a second and more, with the worker's other threads held up too
@pytest.mark.parametrize("message", [QUOTA, ADDRESS])
def test_messages_that_are_made_to_be_slow_are_read_at_once(message: str) -> None:
    names = [f"p{number}" for number in range(MANY)]
    found = refused_pods(map(_pod, names), [_event(name, message) for name in names])
    assert len(found) == MANY
    assert not any(one.over_quota for one in found)


def test_a_quota_is_read_wherever_it_stands_in_a_message() -> None:
    found = exceeded_quota(
        'Error syncing: pods "p" is forbidden: exceeded quota: vc, '
        "requested: requests.cpu=1,requests.nvidia.com/gpu=2, "
        "used: requests.cpu=9,requests.nvidia.com/gpu=3, limited: requests.cpu=9500m,requests.nvidia.com/gpu=4"
    )
    assert found is not None
    assert found.quota == "vc"
    assert found.requested == {"requests.cpu": "1", "requests.nvidia.com/gpu": "2"}
    assert found.used == {"requests.cpu": "9", "requests.nvidia.com/gpu": "3"}
    assert found.limited == {"requests.cpu": "9500m", "requests.nvidia.com/gpu": "4"}


@pytest.mark.parametrize(
    "address", ["redis://:s3cret@host/0", "https://me:s3cret@example.org/x", "amqp://a:s3cret:with:more@mq"]
)
def test_a_password_in_an_address_is_taken_out(address: str) -> None:
    assert "s3cret" not in clean(f"no answer from {address}")
