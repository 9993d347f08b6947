"""Texts of a cluster that PostgreSQL can't store."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.kube.decoding import loads
from portal.kernel.text import find_unstorable


def test_nul_and_halves_of_pairs_become_the_replacement_character() -> None:
    text = rb'{"a": "x\u0000y\\u0000z\ud83d\ude00\ud800\\\u0000\\ud83d\ude00", "b\u0000": 1}'
    assert loads(text) == {"a": "x\ufffdy\\u0000z\U0001f600\ufffd\\\ufffd\\ud83d\ufffd", "b\ufffd": 1}
    assert loads(b'["\xed\xa0\x80 \xed\x95\x9c"]')[0].endswith("\ud55c")
    with pytest.raises(ValueError):
        loads(b"{")


@given(st.dictionaries(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=()))))
def test_whatever_comes_can_be_stored_and_nothing_else_is_changed(value: dict[str, str]) -> None:
    found = loads(json.dumps(value).encode())
    assert find_unstorable(found) is None
    if find_unstorable(value) is None:
        assert found == value
