"""Derived names: valid, short enough, and different for different parts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.names import (
    LABEL_PREFIX,
    WORKLOAD_LIMIT,
    derived_name,
    is_ours,
    owner_labels,
    selector,
    workload_name,
)
from portal.kernel.ids import uuid7

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
PARTS = st.lists(st.text(max_size=80), min_size=1, max_size=4)
# Close to what is really named, so that heads collide often and only the hash tells them apart.
CLOSE = st.lists(st.text(alphabet="aA-._b", max_size=4), min_size=1, max_size=4)


@given(PARTS, st.sampled_from([12, WORKLOAD_LIMIT, 53, 63]))
def test_a_name_is_a_dns_label_within_its_limit(parts: list[str], limit: int) -> None:
    name = derived_name(*parts, limit=limit)
    assert DNS_1035.fullmatch(name)
    assert len(name) <= limit
    assert name == derived_name(*parts, limit=limit)


@given(CLOSE, CLOSE)
def test_different_parts_give_different_names(left: list[str], right: list[str]) -> None:
    assert (workload_name(*left) == workload_name(*right)) == (left == right)


def test_names_that_are_cut_alike_differ_and_stay_readable() -> None:
    long = "qwen3-8b-instruct-with-a-very-long-name-indeed"
    first, second = workload_name("ml-team", long + "-a"), workload_name("ml-team", long + "-b")
    assert first != second
    assert first.startswith("ml-team-qwen3-8b-instruct-wi")
    assert len(workload_name("x" * 200)) == WORKLOAD_LIMIT


def test_a_name_needs_parts_and_room() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        derived_name()
    with pytest.raises(ValueError, match="limit of 12"):
        derived_name("a", limit=11)


def test_owner_labels_say_whose_an_object_is() -> None:
    owner, tenant = uuid7(), uuid7()
    labels = owner_labels("replica", owner, tenant)
    assert is_ours(labels)
    assert not is_ours({"app.kubernetes.io/managed-by": "Helm"})
    assert labels[f"{LABEL_PREFIX}tenant"] == str(tenant)
    assert f"{LABEL_PREFIX}tenant" not in owner_labels("replica", owner, None)
    assert selector({"b": "2", "a": "1"}) == "a=1,b=2"
