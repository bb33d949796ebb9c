"""An index of a partition of dead letters: a few numbers for each of its records, on disk.

Values and headers stay in Kafka: the index knows where each letter is, whether it is due, and which
attempt of it was resolved, as the tombstones say while Kafka keeps them. Which record of a key is
the live letter, and its outcome, is computed when all are read: nearly every key has one record.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from hashlib import blake2b
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple

from shardpost.dead_letters.model.error_fingerprint import fingerprint
from shardpost.dead_letters.model.letter_format import Malformed, parse_record
from shardpost.dead_letters.model.retry_policy import LEFT_IN_STORE, Outcome, SelectedLetter, decide
from shardpost.dead_letters.model.transition_records import resolved_attempt, resolved_offset
from shardpost.kafka.records import Record
from shardpost.projection import open_temporary
from shardpost.retry_settings import RetryRules

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
        """Add a letter, with the outcome that it would have alone."""
        if self._is_stale(attempt):
            self._add_stale(offset)
        else:
            self.offset, self._attempt, self.outcome = offset, attempt, outcome

    def add_tombstone(self, attempt: int, until: int) -> None:
        """Remove the letters up to the offset `until`, and no later ones."""
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


# A key that is longer is stored as a hash of that many bytes.
MAX_KEY_BYTES = 32
ROWS = 1_000  # that are inserted at a time
_OUTCOMES = {outcome.name: int(outcome) for outcome in Outcome}

# `outcome` is null of what is no letter, or none any more. A malformed letter has
# the attempt NONE, as has its tombstone. `origin_key` is a hash of a letter's
# original key, and `origin_offset` its place in the order of that; of what waits they are null. Of
# a tombstone, `origin_offset` is the last offset that it covers. `fingerprint` is of what is due,
# in a guarded index only. `resolved_attempt` is of a letter that is dropped.
_RECORDS = """records (
    offset INTEGER PRIMARY KEY, key BLOB, outcome INTEGER, attempt INTEGER, origin_offset INTEGER,
    origin_key INTEGER, fingerprint TEXT, resolved_attempt INTEGER)"""
_ADD = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, NULL)"
_ADD_WAITING = "INSERT INTO records (offset, key, outcome, attempt) VALUES (?, ?, ?, ?)"

# The keys of several records, and the outcomes of their letters; of one offset the last row counts.
_SEVERAL = "several (key BLOB PRIMARY KEY) WITHOUT ROWID"
_FIND_SEVERAL = "INSERT INTO several SELECT key FROM records GROUP BY key HAVING count(*) > 1"
_FOLDED = "folded (outcome INTEGER, resolved_attempt INTEGER, offset INTEGER)"
_BY_KEY = """
SELECT key, offset, outcome, attempt, origin_offset FROM records
WHERE key IN several ORDER BY key, offset"""
# Malformed letters are none of one key: each is removed by its own tombstone, or by one that was
# written by hand, which covers all that is before it.
_REMOVE_MALFORMED = """
UPDATE records SET outcome = NULL WHERE attempt = :NONE AND outcome NOT NULL AND (key, offset) IN (
    SELECT key, origin_offset FROM records
    WHERE outcome IS NULL AND attempt = :NONE AND origin_offset < offset)"""
_BY_HAND = "by_hand (key BLOB PRIMARY KEY, offset INTEGER) WITHOUT ROWID"
_FIND_BY_HAND = """
INSERT INTO by_hand SELECT key, max(offset) FROM records
WHERE outcome IS NULL AND origin_offset >= offset GROUP BY key"""
_REMOVE_MALFORMED_BY_HAND = """
UPDATE records SET outcome = NULL WHERE attempt = :NONE AND outcome NOT NULL
    AND offset < (SELECT by_hand.offset FROM by_hand WHERE by_hand.key = records.key)"""
_SET_OUTCOME = "UPDATE records SET outcome = ?, resolved_attempt = ? WHERE offset = ?"

# Letters that have to wait for one behind them.
_DELAYED = "delayed (offset INTEGER, release_offset INTEGER, origin_offset INTEGER)"
_FIND_DELAYED = """
INSERT INTO delayed SELECT offset, release_offset, origin_offset FROM (
    SELECT offset, origin_offset, max(offset) OVER (
        PARTITION BY origin_key ORDER BY origin_offset, offset ROWS UNBOUNDED PRECEDING
    ) AS release_offset
    FROM records WHERE origin_key IS NOT NULL AND outcome IN (:RETRY, :PARK)
) WHERE release_offset > offset"""
_SELECTED = """
SELECT offset, outcome, coalesce(release_offset, offset), resolved_attempt
FROM records LEFT JOIN delayed USING (offset)
WHERE outcome NOT IN (:WAIT, :HOLD) ORDER BY offset"""
_IN_RELEASE_ORDER = """
SELECT offset, release_offset FROM delayed ORDER BY release_offset, origin_offset, offset"""
_COUNTS = "SELECT outcome, count(*) FROM records WHERE outcome NOT NULL GROUP BY outcome"
_DUE = """
SELECT fingerprint, count(*) FROM records WHERE outcome IN (:RETRY, :HOLD) GROUP BY fingerprint"""

_TABLES = (_RECORDS, _SEVERAL, _FOLDED, _DELAYED, _BY_HAND)


class DelayedLetter(NamedTuple):
    """A letter that must wait for one behind it, and the offset after which it is released."""

    offset: int
    release_offset: int


@dataclass
class SweepIndex:
    """The records of a partition, added in the order of their offsets, and the letters' outcomes.

    `held` are the fingerprints of errors whose letters are held; a guarded index also counts the
    due letters of each fingerprint. `next_due` is the least time at which one that waits is due, or
    was to be before another record of its key came.
    """

    rules: RetryRules
    now: datetime
    held: frozenset[str] = frozenset()
    is_guarded: bool = False
    _database: sqlite3.Connection = field(default_factory=lambda: open_temporary(*_TABLES))
    _waiting: list[tuple[int, bytes, int, int]] = field(default_factory=list)
    _others: list[tuple[object, ...]] = field(default_factory=list)
    _has_malformed: bool = False
    next_due: datetime | None = None

    def close(self) -> None:
        """Remove the temporary file."""
        self._database.close()

    def add(self, record: Record) -> Outcome:
        """Add one record; return its outcome if there is no other record of its key."""
        offset, stored_key = record.offset, record.key or b""
        if len(stored_key) > MAX_KEY_BYTES:
            stored_key = blake2b(stored_key, digest_size=MAX_KEY_BYTES).digest()
        if len(self._waiting) == ROWS or len(self._others) == ROWS:
            self._insert()
        if record.value is None:
            headers = record.headers
            attempt, until = resolved_attempt(headers), resolved_offset(headers, offset)
            self._others.append((offset, stored_key, None, attempt, until, None, None))
            return Outcome.WAIT
        letter = parse_record(record)
        outcome, due, _ = decide(letter, self.now, self.rules)
        if isinstance(letter, Malformed):
            self._has_malformed = True
            self._others.append((offset, stored_key, int(outcome), NONE, None, None, None))
            return outcome
        if outcome is Outcome.WAIT:
            self._note_due(due)
            self._waiting.append((offset, stored_key, int(outcome), letter.attempt))
            return outcome
        error = fingerprint(letter.error) if self.is_guarded and outcome is Outcome.RETRY else None
        if error in self.held:
            outcome = Outcome.HOLD
        origin_offset = origin_key = None
        if letter.origin_key is not None:
            origin_offset = letter.origin_offset
            origin_key = hash((letter.origin_topic, letter.origin_partition, letter.origin_key))
        self._others.append(
            (offset, stored_key, int(outcome), letter.attempt, origin_offset, origin_key, error)
        )
        return outcome

    def _note_due(self, due: datetime | None) -> None:
        if due is not None and (self.next_due is None or due < self.next_due):
            self.next_due = due

    def counts(self) -> Counter[Outcome]:
        """Return how many live letters have which outcome."""
        rows = self._folded.execute(_COUNTS)
        return Counter({Outcome(outcome): count for outcome, count in rows})

    def due_by_fingerprint(self) -> Counter[str]:
        """Return how many letters of each fingerprint are due; of a guarded index only."""
        return Counter(dict(self._folded.execute(_DUE, _OUTCOMES)))

    def selected(self) -> Iterator[SelectedLetter]:
        """Yield the letters that are not left in the store, in the order of their offsets."""
        outcomes = tuple(Outcome)
        for offset, outcome, release, attempt in self._ordered.execute(_SELECTED, _OUTCOMES):
            yield SelectedLetter._make((offset, outcomes[outcome], release, attempt))

    def delayed(self) -> Iterator[DelayedLetter]:
        """Yield the letters that must wait for one behind them, in the order of their release."""
        return map(DelayedLetter._make, self._ordered.execute(_IN_RELEASE_ORDER))

    def _insert(self) -> None:
        for insert, rows in ((_ADD_WAITING, self._waiting), (_ADD, self._others)):
            self._database.executemany(insert, rows)
            rows.clear()

    @cached_property
    def _folded(self) -> sqlite3.Connection:
        """The database, with the outcomes of keys that have several records."""
        self._insert()
        database = self._database
        database.execute(_FIND_SEVERAL)
        keys = groupby(database.execute(_BY_KEY), itemgetter(0))
        outcomes = chain.from_iterable(_fold(records) for _, records in keys)
        database.executemany("INSERT INTO folded VALUES (?, ?, ?)", outcomes)
        if self._has_malformed:
            database.execute(_FIND_BY_HAND)
            for remove in (_REMOVE_MALFORMED, _REMOVE_MALFORMED_BY_HAND):
                database.execute(remove, {"NONE": NONE})
        in_order = database.execute("SELECT * FROM folded ORDER BY offset, rowid")
        database.executemany(_SET_OUTCOME, in_order)
        return database

    @cached_property
    def _ordered(self) -> sqlite3.Connection:
        """The same, and which letters must wait for one behind them."""
        database = self._folded
        database.execute(_FIND_DELAYED, _OUTCOMES)
        database.execute("CREATE INDEX delayed_by_offset ON delayed (offset, release_offset)")
        return database


_Row = tuple[bytes, int, int | None, int, int]


def _fold(records: Iterator[_Row]) -> Iterator[tuple[int | None, int | None, int]]:
    """Yield (outcome, resolved attempt, offset) of the letters of one key; the last one counts."""
    fold = KeyFold()
    for _, offset, outcome, attempt, until in records:
        if attempt == NONE and (outcome is not None or until < offset):
            fold.add_of_malformed()
        elif outcome is None:
            fold.add_tombstone(attempt, until)
        else:
            fold.add_letter(offset, attempt, Outcome(outcome))
            yield None, None, offset
    if fold.offset != NONE:
        is_dropped = fold.outcome is Outcome.DROP
        yield int(fold.outcome), (fold.resolved_attempt if is_dropped else None), fold.offset
