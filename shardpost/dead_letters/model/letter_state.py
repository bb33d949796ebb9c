"""Where a letter is in its life."""

from enum import StrEnum


class LetterState(StrEnum):
    """Where a letter is; `dropped` is a failure reported again after it had been resolved."""

    WAITING = "waiting"
    RETRIED = "retried"
    PARKED = "parked"
    REDRIVEN = "redriven"
    DISCARDED = "discarded"
    DROPPED = "dropped"


# The letter is in its topic: nothing has dealt with it yet.
OPEN = (LetterState.WAITING, LetterState.PARKED)
