"""What a sweep does with a letter, and the names under which that is reported."""

from collections import Counter
from enum import IntEnum
from typing import NamedTuple


class Outcome(IntEnum):
    """What a sweep does with a live letter."""

    WAIT = 0
    RETRY = 1
    PARK = 2
    DROP = 3  # a failure that was reported again after it had been resolved
    RESTORE = 4  # waits, but below a record of its key that must not replace it
    HOLD = 5  # due, but too many are by the same error; or too large to be parked


# A letter with one of these outcomes is left in the store as it is.
LEFT_IN_STORE = frozenset((Outcome.WAIT, Outcome.HOLD))

_REPORTED = {
    "retried": (Outcome.RETRY,),
    "parked": (Outcome.PARK,),
    "dropped": (Outcome.DROP,),
    "waiting": (Outcome.WAIT, Outcome.RESTORE),
    "held": (Outcome.HOLD,),
}


class SelectedLetter(NamedTuple):
    """A letter that a sweep moves now.

    `release_offset` is the offset up to which the store has to be read before it may go, so that
    letters of one original key go in the order of the origin. `resolved_attempt` is, of one that is
    dropped, the attempt that had been resolved before.
    """

    offset: int
    outcome: Outcome
    release_offset: int
    resolved_attempt: int | None


def reported(counts: Counter[Outcome]) -> dict[str, int]:
    """Return the counts as a sweep reports them: retried, parked, dropped, waiting, held."""
    return {name: sum(counts[one] for one in outcomes) for name, outcomes in _REPORTED.items()}
