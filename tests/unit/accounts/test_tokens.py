"""The text of tokens: form, checksum, nothing secret in a representation."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.accounts import tokens


def test_a_new_token_has_the_documented_form() -> None:
    made = tokens.generate()
    kind, public_id = made.text.split("_")[1:3]
    assert (kind, len(public_id), len(made.secret)) == ("pat", 8, 43)
    assert tokens.parse(made.text) == made
    assert made.secret not in repr(made)


def test_tokens_differ() -> None:
    assert len({tokens.generate().text for _ in range(100)}) == 100


@given(st.integers(min_value=0, max_value=62), st.sampled_from(string.ascii_letters + string.digits + "-_~ "))
def test_a_changed_character_is_seen(position: int, character: str) -> None:
    text = tokens.generate().text
    changed = text[:position] + character + text[position + 1 :]
    assert (tokens.parse(changed) is None) == (changed != text)


@pytest.mark.parametrize("text", ["", "aif_", "Bearer", "aif_pat_" + "a" * 100, "ä" * 70])
def test_other_text_is_no_token(text: str) -> None:
    assert tokens.parse(text) is None
