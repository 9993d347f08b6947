"""Rollouts: one serving replica down at a time, for any mix of replicas."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenants.rollout import ReplicaState, Step, next_step


def old(index: int, *, serves: bool = True, in_place: bool = True) -> ReplicaState:
    return ReplicaState(index, current=False, in_place=in_place, serves=serves, settled=serves)


def new(index: int, *, ready: bool = True) -> ReplicaState:
    return ReplicaState(index, current=True, in_place=True, serves=ready, settled=ready, message="loads the model.")


def test_one_after_the_other() -> None:
    assert next_step([old(0), old(1)], leaving=0) == Step(update=(0,))
    assert next_step([new(0, ready=False), old(1)], leaving=0) == Step(
        waits="The rollout waits for replica 0: loads the model."
    )
    assert next_step([new(0), old(1)], leaving=0) == Step(update=(1,))
    assert next_step([new(0), new(1)], leaving=0) == Step()


def test_a_typo_that_was_corrected_heals_what_does_not_serve_at_once() -> None:
    assert next_step([old(0, serves=False), old(1, serves=False), old(2)], leaving=0).update == (0, 1)


def test_another_shape_is_placed_anew_one_by_one() -> None:
    assert next_step([old(0, in_place=False), old(1, in_place=False)], leaving=0) == Step(replace=0)
    assert next_step([old(1, in_place=False)], leaving=1).replace is None


states = st.lists(
    st.builds(
        lambda current, in_place, serves: (current, in_place, serves), st.booleans(), st.booleans(), st.booleans()
    ),
    max_size=6,
).map(
    lambda rows: [
        ReplicaState(index, current, in_place, serves, serves) for index, (current, in_place, serves) in enumerate(rows)
    ]
)


@given(states, st.integers(0, 2))
def test_never_takes_a_second_serving_replica_down(replicas: list[ReplicaState], leaving: int) -> None:
    step = next_step(replicas, leaving=leaving)
    touched = set(step.update) | ({step.replace} if step.replace is not None else set())
    serving = [one for one in replicas if one.index in touched and one.serves]
    assert len(serving) <= 1
    if serving:
        assert not leaving
        assert all(one.settled for one in replicas if one.current)
    assert all(not one.current for one in replicas if one.index in touched)
    if step.waits:
        assert not touched
