"""What a partition of dead letters holds, in a few numbers for each of its records, on disk.

Values and headers stay in Kafka: the index knows where each letter is, whether it is due, and which
attempt of it was dealt with, as the tombstones say while Kafka keeps them. What that makes of each
key is found out when all is read: nearly every key has one record only.
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

from shardpost.dead_letters.model.fingerprints import fingerprint
from shardpost.dead_letters.model.key_fold import NONE, KeyFold, Outcome
from shardpost.dead_letters.model.letters import Malformed, parse
from shardpost.dead_letters.model.retry_policy import Park, Retry, Wait, decide
from shardpost.dead_letters.model.transitions import attempt_dealt_with, offset_dealt_with
from shardpost.dead_letters.temporary_database import scratch
from shardpost.kafka.records import Headers
from shardpost.retry_settings import RetryRules

LONG_KEY = 32
ROWS = 1_000  # that are added at a time
_FATES = {Retry: Outcome.RETRY, Wait: Outcome.WAIT, Park: Outcome.PARK}
_NUMBERS = {fate.name: int(fate) for fate in Outcome}

# `fate` is null of what is no letter, or none any more. `origin` is a letter's original key as a
# number, and `place` its place in the order of that; of what waits they are null. A tombstone's
# place is the offset up to which it speaks. `mark` is the fingerprint of what is due, of a guarded
# index only. `dealt` is the attempt that was dealt with, of a letter that is dropped.
_RECORDS = """records (
    offset INTEGER PRIMARY KEY, key BLOB, fate INTEGER, attempt INTEGER, place INTEGER,
    origin INTEGER, mark TEXT, dealt INTEGER)"""
_ADD = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, NULL)"
_ADD_WAITING = "INSERT INTO records (offset, key, fate, attempt) VALUES (?, ?, ?, ?)"

# The keys of several records, and what became of their letters; of one offset the last row counts.
_SEVERAL = "several (key BLOB PRIMARY KEY) WITHOUT ROWID"
_FIND_SEVERAL = "INSERT INTO several SELECT key FROM records GROUP BY key HAVING count(*) > 1"
_FOLDED = "folded (fate INTEGER, dealt INTEGER, offset INTEGER)"
_BY_KEY = """
SELECT key, offset, fate, attempt, place FROM records
WHERE key IN several ORDER BY key, offset"""
_SETTLE = "UPDATE records SET fate = ?, dealt = ? WHERE offset = ?"

# Letters that have to wait for one behind them.
_LATE = "late (offset INTEGER, release INTEGER, place INTEGER)"
_FIND_LATE = """
INSERT INTO late SELECT offset, release, place FROM (
    SELECT offset, place, max(offset) OVER (
        PARTITION BY origin ORDER BY place, offset ROWS UNBOUNDED PRECEDING
    ) AS release
    FROM records WHERE origin IS NOT NULL AND fate IN (:RETRY, :PARK)
) WHERE release > offset"""
_CHOSEN = """
SELECT offset, fate, coalesce(release, offset), dealt
FROM records LEFT JOIN late USING (offset)
WHERE fate NOT IN (:WAIT, :HOLD) ORDER BY offset"""

_TABLES = (_RECORDS, _SEVERAL, _FOLDED, _LATE)


class Chosen(NamedTuple):
    """A letter that is to be dealt with now.

    `release` is the offset up to which the store has to be read before it may go, so that letters
    of one original key go in the order of the origin. `dealt` is the attempt that was dealt with,
    of one that is dropped.
    """

    offset: int
    fate: Outcome
    release: int
    dealt: int | None


class Late(NamedTuple):
    """When a letter may go that has to wait for one behind it."""

    offset: int
    release: int


@dataclass
class SweepIndex:
    """The records of a partition, added in the order of their offsets; then what they come to."""

    rules: RetryRules
    now: datetime
    held: frozenset[str] = frozenset()
    is_guarded: bool = False
    _database: sqlite3.Connection = field(default_factory=lambda: scratch(*_TABLES))
    _waiting: list[tuple[int, bytes, int, int]] = field(default_factory=list)
    _others: list[tuple[object, ...]] = field(default_factory=list)

    def close(self) -> None:
        """Give the disk back."""
        self._database.close()

    def add(
        self, offset: int, key: bytes | None, headers: Headers, timestamp: int, *, is_letter: bool
    ) -> Outcome:
        """Take one record in; return what is to be done with it if no other is of its key."""
        slot = key or b""
        if len(slot) > LONG_KEY:
            slot = blake2b(slot, digest_size=LONG_KEY).digest()
        if len(self._waiting) == ROWS or len(self._others) == ROWS:
            self._write()
        if not is_letter:
            attempt, until = attempt_dealt_with(headers), offset_dealt_with(headers, offset)
            self._others.append((offset, slot, None, attempt, until, None, None))
            return Outcome.WAIT
        letter = parse(key, headers, timestamp)
        fate = _FATES[type(decide(letter, self.now, self.rules))]
        if isinstance(letter, Malformed):
            self._others.append((offset, slot, int(fate), NONE, None, None, None))
            return fate
        if fate is Outcome.WAIT:
            self._waiting.append((offset, slot, int(fate), letter.attempt))
            return fate
        mark = fingerprint(letter.error) if self.is_guarded and fate is Outcome.RETRY else None
        if mark in self.held:
            fate = Outcome.HOLD
        place = origin = None
        if letter.origin_key is not None:
            place = letter.origin_offset
            origin = hash((letter.origin_topic, letter.origin_partition, letter.origin_key))
        self._others.append((offset, slot, int(fate), letter.attempt, place, origin, mark))
        return fate

    def counts(self) -> Counter[Outcome]:
        """Return how many live letters have which fate."""
        rows = self._settled.execute(
            "SELECT fate, count(*) FROM records WHERE fate NOT NULL GROUP BY fate"
        )
        return Counter({Outcome(fate): count for fate, count in rows})

    def due_by_error(self) -> Counter[str]:
        """Return how many letters of each fingerprint are due; of a guarded index only."""
        due = "SELECT mark, count(*) FROM records WHERE fate IN (:RETRY, :HOLD) GROUP BY mark"
        return Counter(dict(self._settled.execute(due, _NUMBERS)))

    def chosen(self) -> Iterator[Chosen]:
        """Yield the letters that are to be dealt with now, in the order of the store."""
        fates = tuple(Outcome)
        for offset, fate, release, dealt in self._ordered.execute(_CHOSEN, _NUMBERS):
            yield Chosen._make((offset, fates[fate], release, dealt))

    def late(self) -> Iterator[Late]:
        """Yield those that have to wait for one behind them, in the order in which they go."""
        by_place = "SELECT offset, release FROM late ORDER BY release, place, offset"
        return map(Late._make, self._ordered.execute(by_place))

    def _write(self) -> None:
        for add, rows in ((_ADD_WAITING, self._waiting), (_ADD, self._others)):
            self._database.executemany(add, rows)
            rows.clear()

    @cached_property
    def _settled(self) -> sqlite3.Connection:
        """The records, with what each letter comes to of which there are several."""
        self._write()
        database = self._database
        database.execute(_FIND_SEVERAL)
        keys = groupby(database.execute(_BY_KEY), itemgetter(0))
        found = chain.from_iterable(_folded(records) for _, records in keys)
        database.executemany("INSERT INTO folded VALUES (?, ?, ?)", found)
        in_order = database.execute("SELECT * FROM folded ORDER BY offset, rowid")
        database.executemany(_SETTLE, in_order)
        return database

    @cached_property
    def _ordered(self) -> sqlite3.Connection:
        """The same, and which letters have to wait for one behind them."""
        database = self._settled
        database.execute(_FIND_LATE, _NUMBERS)
        database.execute("CREATE INDEX late_by_offset ON late (offset, release)")
        return database


_Row = tuple[bytes, int, int | None, int, int]


def _folded(records: Iterator[_Row]) -> Iterator[tuple[int | None, int | None, int]]:
    """Yield fate and attempt that was dealt with, by offset, of the records of one key."""
    life = KeyFold()
    for _, offset, fate, attempt, place in records:
        if fate is None:
            life.tombstone(attempt, place)
        else:
            life.letter(offset, attempt, Outcome(fate))
            yield None, None, offset
    if life.offset != NONE:
        yield int(life.fate), (life.dealt if life.fate is Outcome.DROP else None), life.offset
