"""Quantities, names, selectors, patches, list versions: without a server."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import quantity
from simulator.errors import ApiError
from simulator.kinds import CONFIG_MAP
from simulator.objects import clone, duration, rfc3339, unix
from simulator.patch import json_patch, merge_patch, strategic_patch
from simulator.selectors import matches, parse_fields, parse_labels
from simulator.store import Store


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("20000", "20k"),
        ("60000", "60k"),
        ("20480", "20480"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1500m", "1500m"),
        ("1024Mi", "1Gi"),
        ("16Gi", "16Gi"),
        ("1.5Gi", "1536Mi"),
        ("2Ti", "2Ti"),
        ("0", "0"),
        ("1e3", "1k"),
        (5, "5"),
    ],
)
def test_canonical_quantities(text: str | int, stored: str) -> None:
    assert quantity.canonical(text) == stored


@given(st.integers(0, 10**15), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_canonical_keeps_the_value(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    stored = quantity.canonical(text)
    assert quantity.parse(stored) == quantity.parse(text)
    assert quantity.canonical(stored) == stored


@pytest.mark.parametrize("text", ["", "abc", "1 Gi", "1KiB", "--1"])
def test_bad_quantities_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        quantity.parse(text)


def test_used_is_written_like_its_limit() -> None:
    assert quantity.like(16 * 2**30, "64Gi") == "16Gi"
    assert quantity.like(Fraction(1, 2), "4") == "500m"
    assert quantity.like(0, "64Gi") == "0"


def test_decimal_of_fractions() -> None:
    assert quantity.decimal(Fraction(1, 4)) == "250m"
    assert quantity.decimal(Fraction(3)) == "3"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("1m30s", 90.0), ("250ms", 0.25), ("2h", 7200.0), ("1.5", 1.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def test_bad_duration() -> None:
    with pytest.raises(ValueError, match="'soon' is no duration"):
        duration("soon")


@given(st.integers(0, 4_000_000_000))
def test_times_round_trip(seconds: int) -> None:
    assert unix(rfc3339(seconds)) == seconds
    assert rfc3339(seconds + 0.999) == rfc3339(seconds)


@pytest.mark.parametrize(
    ("selector", "hit"),
    [
        ("app=web", True),
        ("app==web", True),
        ("app!=web", False),
        ("tier!=db", True),
        ("app in (web, api)", True),
        ("app notin (web)", False),
        ("app", True),
        ("!app", False),
        ("tier", False),
        ("app=web,team in (a,b)", True),
        ("app=web,team=c", False),
        ("", True),
    ],
)
def test_label_selectors(selector: str, hit: bool) -> None:
    assert parse_labels(selector)({"app": "web", "team": "a"}) is hit


def test_label_selector_objects() -> None:
    selector = {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}
    assert matches(selector, {"a": "1", "b": ""})
    assert not matches(selector, {"a": "1"})
    assert matches({}, {"x": "y"})
    assert not matches(None, {"x": "y"})


def test_field_selectors() -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
    assert parse_fields("spec.nodeName=n1,status.phase!=Failed")(pod)
    assert not parse_fields("metadata.name=b")(pod)
    with pytest.raises(ApiError, match="field=value"):
        parse_fields("nonsense")


def test_merge_patch_removes_with_null() -> None:
    live = {"a": {"b": 1, "c": 2}, "l": [1]}
    assert merge_patch(live, {"a": {"b": None, "d": 3}, "l": [2]}) == {"a": {"c": 2, "d": 3}, "l": [2]}
    assert live == {"a": {"b": 1, "c": 2}, "l": [1]}


def test_strategic_patch_merges_by_key() -> None:
    live = {"spec": {"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "1"}]}}
    patch: Any = {"spec": {"containers": [{"name": "a", "image": "2", "args": ["y"]}, {"name": "c", "image": "1"}]}}
    out = strategic_patch(live, patch)
    assert [c["name"] for c in out["spec"]["containers"]] == ["a", "b", "c"]
    assert out["spec"]["containers"][0] == {"name": "a", "image": "2", "args": ["y"]}
    out = strategic_patch(out, {"spec": {"containers": [{"name": "b", "$patch": "delete"}]}})
    assert [c["name"] for c in out["spec"]["containers"]] == ["a", "c"]
    finalizers = {"metadata": {"finalizers": ["a", "b"]}}
    assert strategic_patch(finalizers, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}) == {
        "metadata": {"finalizers": ["b"]}
    }


def test_json_patch() -> None:
    live = {"a": [1, 2], "b": {"c/d": 1}}
    steps = [
        {"op": "test", "path": "/b/c~1d", "value": 1},
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "replace", "path": "/b/c~1d", "value": 2},
        {"op": "copy", "from": "/a/0", "path": "/first"},
        {"op": "remove", "path": "/a/0"},
    ]
    assert json_patch(live, steps) == {"a": [2, 3], "b": {"c/d": 2}, "first": 1}
    with pytest.raises(ApiError) as refused:
        json_patch(live, [{"op": "test", "path": "/a/0", "value": 9}])
    assert refused.value.code == 422


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(st.tuples(st.sampled_from(["put", "remove"]), NAMES), max_size=30)


@given(STEPS, st.integers(3, 40))
def test_store_tells_every_version(steps: list[tuple[str, str]], history: int) -> None:
    """Whatever happened: the table at a version is what it was then, or the version is refused as too old."""
    store = Store(history)
    seen: dict[int, dict[str, str]] = {store.version: {}}
    for number, (what, name) in enumerate(steps):
        if what == "put":
            store.put(CONFIG_MAP, {"metadata": {"name": name, "namespace": "n"}, "data": {"x": str(number)}})
        else:
            store.remove(CONFIG_MAP, "n", name)
        seen[store.version] = {key[1]: e.obj["data"]["x"] for key, e in store.table(CONFIG_MAP).items()}
    for version, table in seen.items():
        if version < store.oldest(CONFIG_MAP):
            with pytest.raises(ApiError) as refused:
                store.at(CONFIG_MAP, version)
            assert refused.value.code == 410
        else:
            found = store.at(CONFIG_MAP, version)
            assert {key[1]: e.obj["data"]["x"] for key, e in found.items()} == table
            changes = store.since(CONFIG_MAP, version)
            assert [c.version for c in changes] == sorted(c.version for c in changes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(JSON)
def test_clone_is_equal_and_apart(value: Any) -> None:
    copy = clone(value)
    assert copy == value
    if isinstance(value, dict | list):
        assert copy is not value
