"""The state of a letter, from its steps in whatever order they are read."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from shardpost.dead_letters.model.letter_format import LetterState
from shardpost.dead_letters.model.letter_history import Step, in_order, newest_steps

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
W, T, P, R, D = (
    LetterState.WAITING,
    LetterState.RETRIED,
    LetterState.PARKED,
    LetterState.REDRIVEN,
    LetterState.DISCARDED,
)
STORE, LOT = "dead-letters", "parking-lot"

# (state, attempt, topic, offset); no attempt: a tombstone that was written by hand.
StepFields = tuple[LetterState, int | None, str, int]


def steps(*found: StepFields) -> list[Step]:
    return [
        Step("x", state, attempt, AT + timedelta(seconds=n), topic, 0, offset)
        for n, (state, attempt, topic, offset) in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([(W, 0, STORE, 0), (T, 0, STORE, 1), (W, 1, STORE, 2)], W),
        ([(W, 0, STORE, 0), (P, 0, LOT, 0), (R, 0, LOT, 1)], R),
        ([(W, 0, STORE, 0), (T, 0, STORE, 1), (W, 0, STORE, 2)], T),  # reported again
        ([(P, 0, LOT, 0), (D, 0, LOT, 1), (W, 0, STORE, 9), (P, 0, LOT, 2)], P),
        ([(W, 2, STORE, 5), (D, None, STORE, 6)], D),
        ([(D, None, STORE, 4), (W, 2, STORE, 5)], W),
        ([(P, 2, LOT, 5), (D, None, STORE, 6)], P),  # it is of the store
        ([(T, 2, STORE, 5), (D, None, STORE, 6)], T),
        ([(D, None, STORE, 4)], None),
    ],
)
def test_a_letter_is_in_the_state_of_its_newest_step(
    fields: list[StepFields], expected: LetterState | None
) -> None:
    for some in permutations(steps(*fields)):
        last = newest_steps(some).get("x")
        assert (last and last.state) == expected


def test_a_life_is_in_order_with_what_was_done_by_hand_at_its_time() -> None:
    life = steps((W, 0, STORE, 0), (D, None, STORE, 1), (W, 0, STORE, 2), (P, 0, LOT, 0))
    for some in permutations(life):
        assert in_order(some) == life
