"""Groups, roles and organizations in claims: all shapes that were seen, absent and empty told apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.claims import matching, read_claim


@pytest.mark.parametrize(
    ("claims", "path", "values"),
    [
        ({"groups": ["/a", "/b", "/a"]}, "groups", ("/a", "/b")),
        ({"groups": []}, "groups", ()),
        ({}, "groups", None),
        ({"groups": None}, "groups", None),
        ({"groups": 5}, "groups", None),
        ({"groups": ["/a", 5]}, "groups", None),
        ({"realm_access": {"roles": ["x"]}}, "realm_access.roles", ("x",)),
        ({"realm_access": {}}, "realm_access.roles", None),
        ({"realm_access": "x"}, "realm_access.roles", None),
        ({"https://example.org/groups": ["/a"]}, "https://example.org/groups", ("/a",)),
        ({"resource_access": {"my.client": {"roles": ["r"]}}}, "resource_access.my.client.roles", ("r",)),
        ({"organization": ["acme", "umbrella"]}, "organization", ("acme", "umbrella")),
        ({"organization": {"acme": {"id": "1"}, "umbrella": {}}}, "organization", ("acme", "umbrella")),
        ({"organization": [{"acme": {"id": "1"}}, {"umbrella": {}}]}, "organization", ("acme", "umbrella")),
        ({"organization": {"acme": {"groups": ["/ml", "/ops"]}}}, "organization", ("acme", "acme/ml", "acme/ops")),
        ({"organization": {}}, "organization", ()),
        ({"organization": "acme"}, "organization", ("acme",)),
        ({"complete_claims": ["groups"]}, "groups", ()),
        ({"complete_claims": ["groups"]}, "organization", None),
        ({"complete_claims": "groups"}, "groups", None),
        ({"complete_claims": ["groups"], "groups": ["/a"]}, "groups", ("/a",)),
        ({"complete_claims": ["realm_access.roles"]}, "realm_access.roles", ()),
    ],
)
def test_shapes(claims: dict[str, Any], path: str, values: tuple[str, ...] | None) -> None:
    assert read_claim(claims, path).values == values


@dataclass
class Rule:
    match: str
    value: str


@pytest.mark.parametrize(
    ("match", "value", "held", "found"),
    [
        ("exact", "/ml", "/ml", True),
        ("exact", "/ml", "/ml/owners", False),
        ("exact", "/ml", "/ML", False),
        ("prefix", "/ml", "/ml", True),
        ("prefix", "/ml", "/ml/owners", True),
        ("prefix", "/ml/", "/ml/owners", True),
        ("prefix", "/ml", "/ml-2", False),
        ("prefix", "/ml", "/other/ml", False),
    ],
)
def test_matching(match: str, value: str, held: str, found: bool) -> None:
    assert (matching([held], Rule(match, value)) == held) is found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["groups", "a", "b.c", "complete_claims"]), JSON), st.text(max_size=12))
def test_anything_is_read_without_an_error(claims: dict[str, Any], path: str) -> None:
    for each in (path, "groups", "a.b.c", "b.c"):
        values = read_claim(claims, each).values
        assert values is None or all(values)
