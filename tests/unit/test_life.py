"""Where a letter stands, from its steps in whatever order they are read."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from shardpost.dead_letters.model.life import Step, fold, in_order
from shardpost.dead_letters.model.transitions import LetterState

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
Told = tuple[LetterState, int | None, str, int]


def steps(*told: Told) -> list[Step]:
    return [
        Step("x", state, attempt, AT + timedelta(seconds=n), topic, 0, offset)
        for n, (state, attempt, topic, offset) in enumerate(told)
    ]


@pytest.mark.parametrize(
    ("told", "stands"),
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
def test_it_stands_where_its_last_step_left_it(
    told: list[Told], stands: LetterState | None
) -> None:
    for some in permutations(steps(*told)):
        last = fold(some).get("x")
        assert (last and last.state) == stands


def test_a_life_is_told_in_order_with_what_was_done_by_hand_at_its_time() -> None:
    told = steps((W, 0, STORE, 0), (D, None, STORE, 1), (W, 0, STORE, 2), (P, 0, LOT, 0))
    for some in permutations(told):
        assert in_order(some) == told
