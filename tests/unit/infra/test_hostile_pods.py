"""Whoever may make a pod writes its annotations: none of them may stop the watch of everybody's clusters."""

from __future__ import annotations

import pytest

from infra.hami_record import parse_record


@pytest.mark.timeout(60)  # a record of this size was read for half an hour, by the watcher of all clusters
@pytest.mark.parametrize("sign", ["[", "]", "[]", "a["])
def test_a_card_of_many_brackets_is_read_at_once(sign: str) -> None:
    uuid = sign * (200_000 // len(sign))
    ((grant,),) = parse_record(f"{uuid},NVIDIA,1,1:;")
    assert grant.uuid + (f"[{grant.slot}]" if grant.uuid != uuid else "") == uuid


@pytest.mark.parametrize(
    ("text", "card", "slot"),
    [
        ("GPU-1[1-0]", "GPU-1", "1-0"),
        ("GPU-1[]", "GPU-1", ""),
        ("GPU-1[0][1-0]", "GPU-1[0]", "1-0"),
        ("GPU-1", "GPU-1", ""),
        ("[1-0]", "[1-0]", ""),
        ("GPU-1[1]0]", "GPU-1[1]0]", ""),
        ("GPU-1[1-0]x", "GPU-1[1-0]x", ""),
    ],
)
def test_a_slot_is_what_stands_in_brackets_at_the_end(text: str, card: str, slot: str) -> None:
    ((grant,),) = parse_record(f"{text},NVIDIA,1,1:;")
    assert (grant.uuid, grant.slot) == (card, slot)
