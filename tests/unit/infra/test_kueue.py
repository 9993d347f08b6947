"""Kueue's objects: built for both versions, and read."""

from __future__ import annotations

import yaml

from infra.adapters.kueue import (
    HINTS,
    VERSIONS,
    Figure,
    Flavor,
    cluster_queue,
    local_queue,
    read_queue,
    read_workload,
    resource_flavor,
)
from infra.kube.access import KUEUE, whys
from tests.unit.infra.kube.test_access import ROLES, _as_rights, _rights

GROUPS = [(["nvidia.com/gpu"], {"h100": {"nvidia.com/gpu": Figure(2, 3)}})]


def queue(api: str, **more: str) -> dict:
    return cluster_queue(api, "t-ml-team", cohort="zone-research", namespaces=["t-ml-team"], groups=GROUPS, **more)


def test_the_two_versions_differ_in_the_name_of_the_cohort() -> None:
    new, old = queue(VERSIONS[0]), queue(VERSIONS[1])
    assert (VERSIONS[0], VERSIONS[1]) == ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
    assert new["spec"].pop("cohortName") == old["spec"].pop("cohort") == "zone-research"
    assert new["spec"] == old["spec"]


def test_a_queue_takes_back_nothing_and_borrows_what_it_may() -> None:
    spec = queue(VERSIONS[0])["spec"]
    assert spec["preemption"] == {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"}
    assert spec["resourceGroups"][0]["flavors"] == [
        {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "2", "borrowingLimit": "3"}]}
    ]
    assert spec["stopPolicy"] == "None"
    assert queue(VERSIONS[0], stop="HoldAndDrain")["spec"]["stopPolicy"] == "HoldAndDrain"


def test_a_flavor_without_a_product_has_no_labels() -> None:
    assert resource_flavor(VERSIONS[0], Flavor("any"))["spec"] == {}
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert resource_flavor(VERSIONS[0], Flavor("h100", labels))["spec"] == {"nodeLabels": labels}
    assert local_queue(VERSIONS[0], "aifactory", "t-ml-team", queue="t-ml-team")["spec"] == {
        "clusterQueue": "t-ml-team"
    }


def test_a_queue_that_says_nothing_is_not_said_to_be_active() -> None:
    assert read_queue({}).active is None
    told = {"conditions": [{"type": "Active", "status": "False", "reason": "FlavorNotFound", "message": "no h100"}]}
    state = read_queue({"status": told | {"reservingWorkloads": 2, "admittedWorkloads": 1, "pendingWorkloads": 4}})
    assert (state.active, state.reason, state.message) == (False, "FlavorNotFound", "no h100")
    assert (state.pending, state.admitted, state.empty) == (4, 2, False)


def workload(*conditions: dict[str, str]) -> dict:
    owner = {"kind": "Pod", "uid": "u-1", "name": "p"}
    return {
        "metadata": {"name": "pod-p-1", "ownerReferences": [owner, {"kind": "Job", "uid": "u-2"}]},
        "status": {"conditions": list(conditions)},
    }


def says(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def test_kueues_own_words_come_first_and_a_hint_after_them() -> None:
    message = "couldn't assign flavors to pod set main: insufficient unused quota"
    state = read_workload(workload(says("QuotaReserved", "False", "WaitingForQuota", message)))
    assert state.pods == {"u-1"}
    assert not state.admitted
    assert state.sentence == (
        f"Kueue has not admitted pod-p-1 yet (QuotaReserved: WaitingForQuota): {message}. {HINTS['WaitingForQuota']}"
    )


def test_a_reason_that_is_not_known_is_shown_all_the_same() -> None:
    state = read_workload(workload(says("QuotaReserved", "False", "SomethingNew", "Words.")))
    assert state.sentence == "Kueue has not admitted pod-p-1 yet (QuotaReserved: SomethingNew): Words."


def test_admitted_and_evicted() -> None:
    admitted = says("Admitted", "True", "Admitted")
    assert read_workload(workload(says("QuotaReserved", "True"), admitted)).admitted
    evicted = read_workload(workload(admitted, says("Evicted", "True", "Preempted", "for another")))
    assert (evicted.admitted, evicted.condition, evicted.reason) == (False, "Evicted", "Preempted")
    assert not read_workload(workload()).admitted


def test_its_role_is_the_table_of_its_rights() -> None:
    [role] = list(yaml.safe_load_all((ROLES / "kueue.yaml").read_text()))
    assert (role["kind"], role["metadata"]["name"]) == ("ClusterRole", "aifactory-kueue")
    assert _rights(role["rules"]) == _as_rights(whys(KUEUE))
