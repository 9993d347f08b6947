"""Keys of a ResourceQuota: what is enforced as it reads, and what is refused with a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.quota_keys import GPU_KEYS, PLAIN_KEYS, WrongQuotaKeys, checked, given_faults, key_fault


@pytest.mark.parametrize(
    "key",
    [
        "requests.nvidia.com/gpu", "requests.nvidia.com/gpumem", "limits.nvidia.com/gpumem",
        "limits.nvidia.com/gpucores", "requests.nvidia.com/mig-1g.10gb", "requests.nvidia.com/mig-1g.10gb.me",
        "requests.cpu", "pods", "requests.amd.com/gpu", "count/jobs.batch", "count/configmaps", "requests.storage",
        "fast.storageclass.storage.k8s.io/requests.storage",
    ],
)  # fmt: skip
def test_what_is_enforced(key: str) -> None:
    assert key_fault(key) is None


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("limits.nvidia.com/gpu", "counts requests.nvidia.com/gpu alone"),
        ("nvidia.com/gpu", "counts requests.nvidia.com/gpu alone"),
        ("nvidia.com/gpumem", "HAMi reads limits.nvidia.com/gpumem"),
        ("requests.nvidia.com/gpucores", "write limits.nvidia.com/gpucores"),
        ("limits.nvidia.com/gpumem-percentage", "does not count percentages"),
        ("limits.nvidia.com/gpucore", "Did you mean limits.nvidia.com/gpucores?"),
        ("requests.nvidia.com/gpumemory", "Did you mean requests.nvidia.com/gpumem?"),
        ("limits.nvidia.com/mig-1g.10gb", "counts requests.nvidia.com/mig-1g.10gb alone"),
        ("requests.nvidia.com/mig-9x", "no MIG profile"),
        ("limits.amd.com/gpu", "only requests.amd.com/gpu is counted"),
        ("amd.com/gpu", "only requests.amd.com/gpu is counted"),
        ("request.cpu", "Did you mean requests.cpu?"),
        ("limits.cpu", "use requests.cpu"),
        ("count/", "count/<resource>"),
        ("", "no key"),
    ],
)
def test_what_is_not(key: str, said: str) -> None:
    assert said in (key_fault(key) or "")


@given(st.text(max_size=40), st.sampled_from(["", "requests.", "limits."]))
def test_of_nvidia_only_known_keys_pass(name: str, prefix: str) -> None:
    key = f"{prefix}nvidia.com/{name}"
    if key_fault(key) is None:
        assert key in GPU_KEYS or key.startswith("requests.nvidia.com/mig-")


@given(st.dictionaries(st.sampled_from(sorted(GPU_KEYS | PLAIN_KEYS)), st.integers(0, 10**9).map(str)))
def test_checked_changes_nothing_but_the_order(hard: dict[str, str]) -> None:
    assert checked(hard) == hard
    assert list(checked(hard)) == sorted(hard)


def test_checked_names_every_fault() -> None:
    with pytest.raises(WrongQuotaKeys) as caught:
        checked({"limits.nvidia.com/gpu": "1", "pods": "many", "requests.cpu": "1"})
    assert set(caught.value.faults) == {"limits.nvidia.com/gpu", "pods"}
    assert "'many' is no quantity" in str(caught.value)


def test_keys_of_cards_are_not_for_people() -> None:
    faults = given_faults({"requests.nvidia.com/gpu": 1, "pods": "-1", "services.nodeports": 3, "requests.cpu": "64"},
                          reserved=("services.nodeports",))  # fmt: skip
    assert set(faults) == {"requests.nvidia.com/gpu", "pods", "services.nodeports"}
    assert "from the tenant's quota" in faults["requests.nvidia.com/gpu"]
