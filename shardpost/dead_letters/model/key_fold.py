"""The fold of the records of one key: which of them is the live letter, and its outcome."""

from shardpost.dead_letters.model.outcome import LEFT_IN_STORE, Outcome

NONE = -1


class KeyFold:
    """The fold of a key's records, taken in the order of their offsets.

    `offset` is the live letter's and NONE if there is none; `resolved_attempt` is the highest
    attempt that a tombstone resolved. Malformed letters are none of one key: each is by itself, but
    what lies on top of a letter that waits must not replace it.
    """

    __slots__ = ("_attempt", "offset", "outcome", "resolved_attempt")

    def __init__(self) -> None:
        self.offset = self._attempt = self.resolved_attempt = NONE
        self.outcome = Outcome.WAIT

    def add_letter(self, offset: int, attempt: int, outcome: Outcome) -> None:
        """Add a letter and its outcome if it were alone."""
        if self._is_stale(attempt):
            self._add_stale(offset)
        else:
            self.offset, self._attempt, self.outcome = offset, attempt, outcome

    def add_tombstone(self, attempt: int, until: int) -> None:
        """Remove the letters up to the offset `until`; what came after it was written stays."""
        self.resolved_attempt = max(self.resolved_attempt, attempt)
        if self.offset <= until:
            self.offset = NONE
        elif NONE < self._attempt <= self.resolved_attempt:
            self.outcome = Outcome.DROP
        else:
            self.add_of_malformed()

    def add_of_malformed(self) -> None:
        """Add a malformed letter, or the tombstone of one: it lies on top of the live letter."""
        if self.offset != NONE and self.outcome in LEFT_IN_STORE:
            self.outcome = Outcome.RESTORE

    def _is_stale(self, attempt: int) -> bool:
        is_live = self.offset != NONE and self.outcome != Outcome.DROP
        return attempt <= self.resolved_attempt or (is_live and attempt < self._attempt)

    def _add_stale(self, offset: int) -> None:
        """Keep a failure that was resolved, or is older than the live one, from replacing it."""
        if self.offset == NONE or self.outcome == Outcome.DROP:
            self.offset, self.outcome = offset, Outcome.DROP
        elif self.outcome in LEFT_IN_STORE:
            self.outcome = Outcome.RESTORE
