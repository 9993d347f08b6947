"""The bundle of a tenant's namespace: each object says what it must."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from infra.names import LABEL_OWNER, LABEL_TENANT
from tenants.bundle import (
    DEVELOPER_RULES,
    PRIVATE_RANGES,
    VIEWER_RULES,
    BundleFacts,
    is_gpu_resource,
    namespace_bundle,
)

FACTS = BundleFacts(
    tenant_slug="ml-team",
    tenant_id=UUID(int=1),
    namespace_id=UUID(int=2),
    namespace="t-ml-team",
    gpu_resources={"nvidia.com/gpu": 3, "nvidia.com/mig-1g.10gb": 0},
)


def of_kind(kind: str, facts: BundleFacts = FACTS) -> list[dict]:
    return [each for each in namespace_bundle(facts) if each["kind"] == kind]


def test_the_namespace_comes_first_and_carries_pod_security_and_its_owner():
    first = namespace_bundle(FACTS)[0]
    labels = first["metadata"]["labels"]
    assert (first["kind"], first["metadata"]["name"]) == ("Namespace", "t-ml-team")
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
    assert labels["pod-security.kubernetes.io/warn"] == "restricted"
    assert (labels[LABEL_TENANT], labels[LABEL_OWNER]) == (str(UUID(int=1)), str(UUID(int=2)))


def test_everything_else_lies_in_the_namespace():
    assert all(each["metadata"]["namespace"] == "t-ml-team" for each in namespace_bundle(FACTS)[1:])


def test_the_quota_names_every_offered_resource_because_an_absent_key_is_no_limit():
    (quota,) = of_kind("ResourceQuota")
    assert quota["spec"]["hard"]["requests.nvidia.com/gpu"] == "3"
    assert quota["spec"]["hard"]["requests.nvidia.com/mig-1g.10gb"] == "0"


def test_without_an_allotment_the_quota_is_zero_not_absent():
    (quota,) = of_kind("ResourceQuota", BundleFacts("a", UUID(int=1), UUID(int=2), "t-a"))
    assert quota["spec"]["hard"]["requests.nvidia.com/gpu"] == "0"


def test_only_keys_that_the_api_server_enforces_are_written():
    (quota,) = of_kind("ResourceQuota")
    gpu_keys = [key for key in quota["spec"]["hard"] if "nvidia.com" in key]
    assert all(key.startswith("requests.") for key in gpu_keys)


def test_the_network_starts_from_nothing():
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind("NetworkPolicy")}
    deny = policies["aifactory-default-deny"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    (rule,) = policies["aifactory-allow-public-https"]["egress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 443}]
    assert rule["to"] == [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(PRIVATE_RANGES)}}]
    assert "169.254.0.0/16" in PRIVATE_RANGES


def test_around_a_tenant_cluster_only_the_control_plane_has_a_way_out():
    around = {each["metadata"]["name"]: each["spec"] for each in of_kind("NetworkPolicy", replace(FACTS, people=False))}
    plain = {each["metadata"]["name"]: each["spec"] for each in of_kind("NetworkPolicy")}
    differing = [name for name in plain if around[name] != plain[name]]
    assert (list(around), differing) == (list(plain), ["aifactory-allow-public-https"])
    assert plain["aifactory-allow-public-https"]["podSelector"] == {}
    # A tenant chooses its pods' labels, but not whether the syncer puts its own on them.
    (rule,) = around["aifactory-allow-public-https"]["podSelector"]["matchExpressions"]
    assert rule == {"key": "vcluster.loft.sh/managed-by", "operator": "DoesNotExist"}


def test_nobody_of_the_tenant_may_read_secrets_or_change_what_the_portal_applies():
    for rule in DEVELOPER_RULES:
        assert "secrets" not in rule["resources"]
        assert "*" not in rule["resources"]
        assert "*" not in rule["verbs"]
        if "deployments" in rule["resources"]:
            assert set(rule["verbs"]) == {"get", "list", "watch"}
    assert all(set(rule["verbs"]) == {"get", "list", "watch"} for rule in VIEWER_RULES)


@pytest.mark.parametrize(
    ("name", "yes"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("nvidia.com/gpumem", False),
        ("cpu", False),
        ("amd.com/gpu", False),
    ],
)
def test_which_resources_are_ways_to_get_a_gpu(name, yes):
    assert is_gpu_resource(name) is yes
