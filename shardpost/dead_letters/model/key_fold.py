"""What several records of one key come to: which one is the letter, and what becomes of it."""

from enum import IntEnum

NONE = -1


class Outcome(IntEnum):
    """What a sweep does with a live letter."""

    WAIT = 0
    RETRY = 1
    PARK = 2
    DROP = 3  # the report of a failure that was dealt with
    RESTORE = 4  # waits, and lies under a record that must not replace it
    HOLD = 5


# A letter of these fates is left where it is.
STAYING = frozenset((Outcome.WAIT, Outcome.HOLD))


class KeyFold:
    """The fold of a key's records, taken in the order of their offsets.

    `offset` is the live letter's and NONE if there is none; `dealt` is the highest attempt that a
    tombstone says was dealt with.
    """

    __slots__ = ("_attempt", "dealt", "fate", "offset")

    def __init__(self) -> None:
        self.offset = self._attempt = self.dealt = NONE
        self.fate = Outcome.WAIT

    def letter(self, offset: int, attempt: int, fate: Outcome) -> None:
        """Take in a letter that would have that fate; NONE is the attempt of a malformed one."""
        if attempt != NONE and self._is_stale(attempt):
            self._pass_over(offset)
        else:
            self.offset, self._attempt, self.fate = offset, attempt, fate

    def tombstone(self, attempt: int, until: int) -> None:
        """Take out what a tombstone is of; what came while it was on its way stays."""
        self.dealt = max(self.dealt, attempt)
        if self.offset <= until:
            self.offset = NONE
        elif NONE < self._attempt <= self.dealt:
            self.fate = Outcome.DROP
        elif self.fate in STAYING:
            self.fate = Outcome.RESTORE

    def _is_stale(self, attempt: int) -> bool:
        is_known = self.offset != NONE and self.fate != Outcome.DROP
        return attempt <= self.dealt or (is_known and attempt < self._attempt)

    def _pass_over(self, offset: int) -> None:
        """Keep a failure that was dealt with, or is older than the live one, from counting."""
        if self.offset == NONE or self.fate == Outcome.DROP:
            self.offset, self.fate = offset, Outcome.DROP
        elif self.fate in STAYING:
            self.fate = Outcome.RESTORE
