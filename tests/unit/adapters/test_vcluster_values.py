"""The values of the chart: what is written always, and what a platform can't add."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.adapters.vcluster import (
    CHART_QUOTA,
    HEADROOM,
    ClusterFacts,
    Image,
    cluster_values,
    full_quota,
    version_pair,
)
from infra.adapters.vcluster_rules import (
    OWNED_KEYS,
    PRO_KEYS,
    REMOVED_KEYS,
    UNSAFE_KEYS,
    ValuesRefused,
    check_extra,
    merged,
)
from infra.quantity import parse_quantity

# The defaults of chart/values.yaml: what stays in force for a key that is left out.
CHART_DEFAULTS = (
    {"requests.cpu", "requests.memory", "requests.storage", "requests.ephemeral-storage", "limits.cpu"}
    | {"limits.memory", "limits.ephemeral-storage", "services.nodeports", "services.loadbalancers", "count/endpoints"}
    | {"count/pods", "count/services", "count/secrets", "count/configmaps", "count/persistentvolumeclaims"}
)


def facts(**values: Any) -> ClusterFacts:
    given: dict[str, Any] = {
        "name": "ml-team",
        "namespace": "vc-ml-team",
        "endpoint": "https://ml-team.east.k8s.example:8443",
        "kubernetes_version": "1.35.0",
        "image": Image("ghcr.io", "loft-sh/vcluster-oss", "0.35.3"),
        "quota": full_quota({}, {"requests.nvidia.com/gpu": "4"}),
    }
    return ClusterFacts(**(given | values))


def nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


def at(values: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        values = values[part]
    return values


def test_the_image_is_the_open_source_one_and_the_walls_are_written():
    values = cluster_values(facts())
    image = at(values, "controlPlane.statefulSet.image")
    assert image == {"registry": "ghcr.io", "repository": "loft-sh/vcluster-oss", "tag": "0.35.3"}
    assert at(values, "controlPlane.distro.k8s.image.tag") == "v1.35.0"
    assert at(values, "sync.toHost.pods.useSecretsForSATokens") is True
    assert at(values, "policies.podSecurityStandard") == "baseline"
    assert at(values, "policies.networkPolicy") == {"enabled": True, "workload": {"publicEgress": {"enabled": False}}}
    assert at(values, "controlPlane.statefulSet.resources.limits.cpu") == "2"
    assert at(values, "telemetry.enabled") is False
    assert at(values, "exportKubeConfig.server") == "https://ml-team.east.k8s.example:8443"
    assert "ml-team.east.k8s.example" in at(values, "controlPlane.proxy.extraSANs")
    assert at(values, "controlPlane.backingStore") == {"database": {"embedded": {"enabled": True}}}


def test_no_default_of_the_charts_quota_stays_in_force():
    assert set(CHART_QUOTA) == CHART_DEFAULTS
    hard = full_quota({}, {"requests.nvidia.com/gpu": "4"})
    assert set(hard) == CHART_DEFAULTS | {"requests.nvidia.com/gpu"}
    assert hard["services.loadbalancers"] == hard["services.nodeports"] == "0"


def test_the_control_planes_own_need_comes_on_top_of_what_is_given():
    hard = full_quota({"requests.cpu": "64", "requests.memory": "512Gi", "count/pods": "20"}, {})
    assert hard["requests.cpu"] == "66"
    assert hard["count/pods"] == "23"
    assert parse_quantity(hard["requests.memory"]) == parse_quantity("512Gi") + parse_quantity("4608Mi")
    assert full_quota({"requests.cpu": "500m"}, {})["requests.cpu"] == "2500m"


def test_a_zero_forbids_and_head_room_does_not_open_it():
    assert full_quota({"count/persistentvolumeclaims": "0"}, {})["count/persistentvolumeclaims"] == "0"


@given(st.dictionaries(st.sampled_from(sorted(CHART_QUOTA)), st.integers(1, 10**6).map(str)))
def test_a_quota_is_what_was_given_and_the_head_room_exactly(limits: dict[str, str]):
    hard = full_quota(limits, {})
    for key, value in limits.items():
        assert parse_quantity(hard[key]) == parse_quantity(value) + parse_quantity(HEADROOM.get(key, "0"))


def test_the_api_server_is_told_whom_to_believe_through_a_mounted_file():
    values = cluster_values(facts(authentication=True))
    (argument,) = at(values, "controlPlane.distro.k8s.apiServer.extraArgs")
    (volume,) = at(values, "controlPlane.statefulSet.persistence.addVolumes")
    (mount,) = at(values, "controlPlane.statefulSet.persistence.addVolumeMounts")
    assert argument == f"--authentication-config={mount['mountPath']}/authentication.yaml"
    assert volume == {"name": mount["name"], "configMap": {"name": "aifactory-authentication"}}
    assert "apiServer" not in at(cluster_values(facts()), "controlPlane.distro.k8s")


def test_an_ingress_is_made_only_where_the_platform_has_a_class_for_it():
    assert "ingress" not in cluster_values(facts())["controlPlane"]
    ingress = at(cluster_values(facts(ingress_class="nginx")), "controlPlane.ingress")
    assert (ingress["enabled"], ingress["host"], ingress["spec"]["ingressClassName"]) == (
        True, "ml-team.east.k8s.example", "nginx",
    )  # fmt: skip


def test_the_platforms_values_are_kept_where_they_do_not_meet_ours():
    extra = {
        "controlPlane": {
            "statefulSet": {"resources": {"limits": {"memory": "8Gi"}}},
            "service": {"labels": {"a": "b"}},
        },
        "sync": {"fromHost": {"runtimeClasses": {"enabled": True}}},
    }
    values = cluster_values(facts(extra=extra))
    assert at(values, "controlPlane.service.labels") == {"a": "b"}
    assert at(values, "sync.fromHost.runtimeClasses.enabled") is True
    limits = at(values, "controlPlane.statefulSet.resources.limits")
    assert (limits["memory"], limits["cpu"]) == ("8Gi", "2")
    assert extra["sync"] == {"fromHost": {"runtimeClasses": {"enabled": True}}}


@pytest.mark.parametrize("key", [*PRO_KEYS, *REMOVED_KEYS, *OWNED_KEYS, *UNSAFE_KEYS])
@pytest.mark.parametrize("value", [{"enabled": True}, "text"])
def test_keys_that_are_pro_removed_ours_or_unsafe_are_refused_by_name(key: str, value: Any):
    with pytest.raises(ValuesRefused) as refused:
        cluster_values(facts(extra=nested(key, value)))
    (error,) = [why for found, why in refused.value.errors if found == key]
    assert error.endswith("Take it out.")


@pytest.mark.parametrize("key", [*PRO_KEYS, *REMOVED_KEYS, *OWNED_KEYS, *UNSAFE_KEYS])
def test_another_case_is_no_way_round(key: str):
    """The program reads its configuration without regard to case."""
    top, dot, rest = key.partition(".")
    with pytest.raises(ValuesRefused):
        check_extra(nested(top + dot + rest.swapcase() if rest else key.swapcase(), True))


def test_every_key_that_we_write_is_one_that_nobody_else_can():
    """Leaf by leaf: either the platform is refused, or ours is a default under its value (the control plane's size)."""
    ours = cluster_values(facts(authentication=True, ingress_class="nginx", tolerations=["a=b:NoSchedule"]))

    def leaves(values: dict[str, Any], above: str = "") -> list[str]:
        found = []
        for key, value in values.items():
            path = f"{above}.{key}" if above else key
            found += leaves(value, path) if isinstance(value, dict) and value else [path]
        return found

    open_to_all = []
    for leaf in leaves(ours):
        try:
            check_extra(nested(leaf, "changed"))
        except ValuesRefused:
            continue
        open_to_all.append(leaf)
    kept = ("controlPlane.statefulSet.resources.", "controlPlane.ingress.spec", "networking.advanced.proxyKubelets.")
    assert [leaf for leaf in open_to_all if not leaf.startswith(kept)] == []


def test_unknown_words_patches_and_the_pro_image_are_refused_wherever_they_stand():
    extra = {
        "constrolPlane": {},
        "sync": {"toHost": {"services": {"enabled": True, "patches": []}}},
        "controlPlane": {
            "coredns": {"deployment": {"image": "mirror.example/vcluster-pro:1"}},
            "statefulSet": {"env": [{"name": "IMAGE", "value": "mirror.example/vcluster-pro:1"}]},
        },
    }
    with pytest.raises(ValuesRefused) as refused:
        check_extra(extra)
    assert [key for key, _ in refused.value.errors] == [
        "constrolPlane",
        "sync.toHost.services.patches",
        "controlPlane.coredns.deployment.image",
        "controlPlane.statefulSet.env",
    ]


def test_values_are_merged_as_helm_does():
    assert merged({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": 3}, "d": []}) == {"a": {"b": 3, "c": 2}, "d": []}


@pytest.mark.parametrize(("text", "pair"), [("1.35.0", (1, 35)), ("v1.35.4+k3s", (1, 35)), ("0.36", (0, 36))])
def test_minor_versions_are_read(text: str, pair: tuple[int, int]):
    assert version_pair(text) == pair


@pytest.mark.parametrize("text", ["", "1", "latest", "1.x"])
def test_what_is_no_version_is_refused(text: str):
    with pytest.raises(ValueError, match=r".*"):
        version_pair(text)
