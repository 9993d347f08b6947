"""The ClusterRoles that we ship give what the preflight asks for: all of it, and nothing else."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from infra.kube.access import (
    FLUX,
    IN_TENANT_NAMESPACE,
    MANAGE,
    NOT_NEEDED,
    OBSERVE,
    OPTIONAL,
    TENANT_CLUSTERS,
    Review,
    reviews,
    rules_of,
    whys,
)
from infra.kube.resources import BUILT_IN
from tenants.bundle import BundleFacts, namespace_bundle

ROLES = Path(__file__).resolve().parents[4] / "deploy" / "clusterroles"
Right = tuple[str, str, str]


def _rights(rules: list[dict[str, Any]]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _as_rights(asked: Iterable[Review]) -> set[Right]:
    return {
        (review.group, "/".join(filter(None, [review.resource, review.subresource])), review.verb) for review in asked
    }


def _asked(mode: str) -> set[Right]:
    return _as_rights(reviews(mode))


@pytest.mark.parametrize("mode", ["observe", "manage"])
def test_the_role_and_the_preflight_are_the_same_table(mode: str) -> None:
    [role] = list(yaml.safe_load_all((ROLES / f"{mode}.yaml").read_text()))
    assert (role["kind"], role["metadata"]["name"]) == ("ClusterRole", f"aifactory-{mode}")
    assert all(set(rule) == {"apiGroups", "resources", "verbs"} for rule in role["rules"])
    assert _rights(role["rules"]) == _asked(mode) | _as_rights(whys(OPTIONAL))


@pytest.mark.parametrize("mode", ["observe", "manage"])
def test_each_right_says_what_it_is_used_for(mode: str) -> None:
    assert all(whys(rules_of(mode)).values())
    assert all(whys(OPTIONAL).values())
    assert all(whys(NOT_NEEDED).values())


def test_what_is_not_needed_is_needed_nowhere_in_observe() -> None:
    assert not set(whys(NOT_NEEDED)) & {*whys(OBSERVE), *whys(OPTIONAL)}
    assert {review.verb for review in whys(OPTIONAL)} == {"get"}


def test_observe_reads_only_and_manage_is_more() -> None:
    assert {verb for _, _, verb in _asked("observe")} == {"get", "list", "watch"}
    assert _asked("observe") < _asked("manage")
    assert len(reviews("manage")) == len(_asked("manage")), "a right is asked twice"


def test_no_right_is_given_that_would_give_all_others() -> None:
    for group, resource, verb in _asked("manage"):
        assert "*" not in (group, resource, verb)
        assert verb not in ("escalate", "bind", "impersonate", "deletecollection", "update")
        assert resource not in ("secrets", "pods/exec", "pods/attach", "nodes/proxy", "serviceaccounts/token")
        assert not (resource.startswith("cluster") and verb != "get")


def test_the_portal_may_write_every_object_of_a_bundle_and_hold_what_its_roles_give() -> None:
    """Kubernetes refuses a Role that gives more than its maker holds."""
    facts = BundleFacts("ml-team", uuid4(), uuid4(), "t-ml-team")
    held = _asked("manage")
    for manifest in namespace_bundle(facts):
        resource = BUILT_IN[manifest["apiVersion"], manifest["kind"]]
        group = manifest["apiVersion"].rpartition("/")[0]
        for verb in ("get", "list", "create", "patch", "delete"):
            assert (group, resource.plural, verb) in held
        if manifest["kind"] == "Role":
            assert _rights(manifest["rules"]) <= held


def test_a_review_asks_as_kubernetes_wants_it() -> None:
    [log] = [each for rule in MANAGE for each in rule.reviews() if str(each) == "get pods/log"]
    assert log.attributes() == {"verb": "get", "group": "", "resource": "pods", "subresource": "log"}
    assert {str(each) for rule in OBSERVE for each in rule.reviews()} >= {"watch leases.coordination.k8s.io"}


def test_tenant_clusters_get_what_the_table_says_in_three_places_and_may_bind_two_roles() -> None:
    found = {
        (one["kind"], one["metadata"]["name"]): one
        for one in yaml.safe_load_all((ROLES / "tenant-clusters.yaml").read_text())
    }
    anywhere = found["ClusterRole", "aifactory-tenant-clusters"]["rules"]
    named = [rule for rule in anywhere if "resourceNames" in rule]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in named] == [
        (["clusterroles"], ["aifactory-tenant-cluster", "aifactory-tenant-installer"], ["bind"])
    ]
    assert _rights([rule for rule in anywhere if rule not in named]) == _as_rights(whys(TENANT_CLUSTERS))
    assert _rights(found["Role", "aifactory-flux"]["rules"]) == _as_rights(whys(FLUX))
    inside = found["ClusterRole", "aifactory-tenant-cluster"]["rules"]
    assert _rights(inside) == _as_rights(whys(IN_TENANT_NAMESPACE))
    assert ("", "secrets", "list") not in _rights(inside)
    assert all({**whys(TENANT_CLUSTERS), **whys(FLUX), **whys(IN_TENANT_NAMESPACE)}.values())


def test_the_account_that_flux_acts_as_writes_nothing_on_the_whole_host_but_roles_of_what_it_reads() -> None:
    documents = list(yaml.safe_load_all((ROLES / "tenant-clusters.yaml").read_text()))
    (everywhere,) = [one for one in documents if one["kind"] == "ClusterRoleBinding"]
    assert [one["name"] for one in everywhere["subjects"]] == ["tenant-installer"]
    role = everywhere["roleRef"]["name"]
    (rules,) = [one["rules"] for one in documents if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", role)]
    for group, resource, verb in _rights(rules):
        assert resource != "secrets"
        assert verb in ("get", "list", "watch") or (group, resource) in {
            ("rbac.authorization.k8s.io", "clusterroles"),
            ("rbac.authorization.k8s.io", "clusterrolebindings"),
        }
