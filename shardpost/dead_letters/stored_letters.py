"""The letters of a partition of `dead-letters`, as a projection: a few numbers for each key.

Values and headers stay in Kafka: the tables have each letter's place, due time and resolved attempt
(from tombstones). SQL computes its outcome.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import partial
from hashlib import blake2b
from sqlite3 import Connection
from typing import NamedTuple

from shardpost.dead_letters import letters_table
from shardpost.dead_letters.model.letter_format import Letter, Malformed, parse_record
from shardpost.dead_letters.model.retry_policy import Outcome, SelectedLetter, decide
from shardpost.dead_letters.model.transition_records import resolved_attempt, resolved_offset
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.offsets import stable_ends
from shardpost.kafka.records import Record, TopicPartition
from shardpost.projection import Form, Projections
from shardpost.values.retry_settings import RetryRules

NONE = -1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A longer key is stored as a hash of this many bytes.
MAX_KEY_BYTES = 32

# `offset` is the live letter's, or NONE; `due` is when it is retried, in microseconds since 1970,
# null if it is to be parked. `origin_key` is a hash of its original key, `origin_offset` its place
# in that key's order.
_LETTERS = """letters (
    key BLOB PRIMARY KEY, offset INTEGER, attempt INTEGER, resolved_attempt INTEGER,
    standing INTEGER, due INTEGER, origin_offset INTEGER, origin_key INTEGER
) WITHOUT ROWID"""
# Malformed letters are not grouped by key: each is removed by its own tombstone, or by a
# hand-written one, which covers all before it.
_MALFORMED = "malformed (offset INTEGER PRIMARY KEY, key BLOB)"
TABLES = (_LETTERS, _MALFORMED)

_OUTCOMES = {outcome.name: int(outcome) for outcome in Outcome}
_LIVE = """
SELECT *, CASE
  WHEN standing = 2 THEN :DROP
  WHEN due IS NULL THEN :PARK
  WHEN due <= :now THEN :RETRY
  ELSE iif(standing = 1, :RESTORE, :WAIT)
END AS outcome FROM letters WHERE offset >= 0"""
_OF_KEYS = "SELECT * FROM letters WHERE key IN ({})"
_COUNTS = f"""
SELECT outcome, sum(letters) FROM (
  SELECT outcome, count(*) AS letters FROM ({_LIVE}) GROUP BY outcome
  UNION ALL SELECT :PARK, count(*) FROM malformed
) GROUP BY outcome HAVING sum(letters) > 0"""  # noqa: S608 - constants
# With the offset up to which to read before a letter is sent: that of the last letter of its
# original key that precedes it in the order of the origin.
_SELECT = f"""
CREATE TEMP TABLE selected AS
WITH going AS (
  SELECT key, offset, outcome, iif(outcome = :DROP, resolved_attempt, NULL) AS resolved_attempt,
    origin_offset, iif(outcome IN (:RETRY, :PARK), origin_key, NULL) AS origin_key
  FROM ({_LIVE}) WHERE outcome != :WAIT
  UNION ALL SELECT key, offset, :PARK, NULL, NULL, NULL FROM malformed
)
SELECT key, offset, outcome, offset AS release_offset, resolved_attempt, origin_offset
FROM going WHERE origin_key IS NULL
UNION ALL SELECT key, offset, outcome, max(offset) OVER (
  PARTITION BY origin_key ORDER BY origin_offset, offset ROWS UNBOUNDED PRECEDING
), resolved_attempt, origin_offset
FROM going WHERE origin_key IS NOT NULL"""  # noqa: S608 - constants
_SELECTED = """
SELECT offset, outcome, release_offset, resolved_attempt, key FROM selected ORDER BY offset"""
_IN_RELEASE_ORDER = """
SELECT offset, release_offset FROM selected WHERE release_offset > offset
ORDER BY release_offset, origin_offset, offset"""


class OtherRecordError(ShardpostError):
    """The record at a selected letter's offset has another key."""


class Standing(IntEnum):
    """Whether a letter may be sent as it is, or is covered or was resolved before."""

    FREE = 0
    COVERED = 1
    RESOLVED = 2


class Facts(NamedTuple):
    """A letter that may be sent: its due time, its place in the origin."""

    due: int | None = None
    origin_offset: int | None = None
    origin_key: int | None = None


NO_FACTS = Facts()


@dataclass(slots=True)
class KeyFold:
    """The fold of a key's records, taken in the order of their offsets.

    `offset` is the live letter's, or NONE; `resolved_attempt` is the highest attempt that a
    tombstone resolved. Malformed letters are not grouped by key, but must not replace a waiting
    letter before them.
    """

    offset: int = NONE
    attempt: int = NONE
    resolved_attempt: int = NONE
    standing: int = Standing.FREE
    facts: Facts = NO_FACTS

    def add_letter(self, offset: int, attempt: int, facts: Facts) -> None:
        """Add a letter."""
        is_live = self.offset != NONE and self.standing != Standing.RESOLVED
        if attempt > self.resolved_attempt and not (is_live and attempt < self.attempt):
            self.offset, self.attempt, self.facts = offset, attempt, facts
            self.standing = Standing.FREE
        elif is_live:  # a resolved or older failure must not replace the live one
            self.standing = Standing.COVERED
        else:
            self.offset, self.standing = offset, Standing.RESOLVED

    def add_tombstone(self, attempt: int, until: int) -> None:
        """Remove the letters up to the offset `until`, and no later ones."""
        self.resolved_attempt = max(self.resolved_attempt, attempt)
        if self.offset <= until:
            self.offset = NONE
        elif NONE < self.attempt <= self.resolved_attempt:
            self.standing = Standing.RESOLVED
        else:
            self.add_of_malformed()

    def add_of_malformed(self) -> None:
        """Add a malformed letter, or its tombstone, which covers the live letter."""
        if self.standing == Standing.FREE:
            self.standing = Standing.COVERED


def projections_of(
    installation: Installation, partitions: Sequence[TopicPartition], *, committed: bool = False
) -> Projections:
    """Return the projections of the store's partitions, with the rules of the settings."""
    own, rules = installation, installation.settings.retry_rules
    made_by = (rules.default, sorted(rules.of_origin.items()), sorted(rules.fatal))
    form = Form("letters", TABLES, partial(fold, rules), repr((*made_by, rules.common_topic)))
    return Projections(own.kafka, own.files, form, partitions, committed=committed)


def fold(rules: RetryRules, database: Connection, records: Sequence[Record]) -> None:
    """Fold records into the tables."""
    keys = {_stored_key(record) for record in records}
    rows = database.execute(_OF_KEYS.format(", ".join("?" * len(keys))), [*keys])
    folds = {
        key: KeyFold(offset, attempt, resolved, standing, Facts(*facts))
        for key, offset, attempt, resolved, standing, *facts in rows
    }
    for record in records:
        key, offset = _stored_key(record), record.offset
        of_key = folds.setdefault(key, KeyFold())
        if record.value is None:
            attempt = resolved_attempt(record.headers)
            until = resolved_offset(record.headers, offset)
            if attempt == NONE and until < offset:
                database.execute("DELETE FROM malformed WHERE key = ? AND offset = ?", (key, until))
                of_key.add_of_malformed()
                continue
            of_key.add_tombstone(attempt, until)
            if until >= offset:  # it was written by hand
                database.execute("DELETE FROM malformed WHERE key = ?", (key,))
            continue
        letter = parse_record(record)
        if isinstance(letter, Malformed):
            database.execute("INSERT INTO malformed VALUES (?, ?)", (offset, key))
            of_key.add_of_malformed()
        else:
            of_key.add_letter(offset, letter.attempt, _facts(letter, rules))
    changed = (
        (key, one.offset, one.attempt, one.resolved_attempt, one.standing, *one.facts)
        for key, one in folds.items()
    )
    database.executemany("REPLACE INTO letters VALUES (?, ?, ?, ?, ?, ?, ?, ?)", changed)


def _stored_key(record: Record) -> bytes:
    key = record.key or b""
    return key if len(key) <= MAX_KEY_BYTES else blake2b(key, digest_size=MAX_KEY_BYTES).digest()


def _facts(letter: Letter, rules: RetryRules) -> Facts:
    due = _microseconds(decide(letter, rules).due)
    if letter.origin_key is None:
        return Facts(due)
    origin = repr((letter.origin_topic, letter.origin_partition, letter.origin_key)).encode()
    hashed = blake2b(origin, digest_size=8).digest()  # the same in each process
    return Facts(due, letter.origin_offset, int.from_bytes(hashed, signed=True))


def _microseconds(at: datetime | None) -> int | None:
    return None if at is None else (at - EPOCH) // timedelta(microseconds=1)


class LettersNow:
    """The letters of a partition as of a time."""

    def __init__(self, database: Connection, now: datetime) -> None:
        self._database = database
        self._given = {**_OUTCOMES, "now": _microseconds(now)}

    def counts(self) -> Counter[Outcome]:
        """Return the number of letters for each outcome."""
        rows = self._database.execute(_COUNTS, self._given)
        return Counter({Outcome(outcome): count for outcome, count in rows})

    def select(self) -> int:
        """Select the letters to move, and return their number; others may write afterwards.

        The selection is fixed, whatever is folded from now on.
        """
        self._database.execute(_SELECT, self._given)
        self._database.execute("CREATE INDEX temp.in_order ON selected (offset)")
        self._database.commit()
        count: int = self._database.execute("SELECT count(*) FROM selected").fetchone()[0]
        return count

    def selected(self) -> Iterator[SelectedLetter]:
        """Yield the selected letters, in the order of their offsets."""
        outcomes = tuple(Outcome)
        for offset, outcome, *more in self._database.execute(_SELECTED):
            yield SelectedLetter(offset, outcomes[outcome], *more)

    def delayed(self) -> Iterator[tuple[int, int]]:
        """Yield (offset, offset that releases it) of letters that must wait, in that order."""
        return self._database.execute(_IN_RELEASE_ORDER)


def require_same(record: Record, letter: SelectedLetter) -> tuple[Record, SelectedLetter]:
    """Return a selected letter with its record; raises OtherRecordError for another key.

    Then the topic was truncated and has grown again, so the folded state is wrong.
    """
    if _stored_key(record) != letter.stored_key:
        raise OtherRecordError(
            f"{record.coordinates}: expected the key that was read there before, found"
            " another key: the topic lost records and has new ones in their place; the cached"
            " state of the partition was removed: sweep again"
        )
    return record, letter


def known_to_wait(
    installation: Installation, store: str, partitions: int, now: datetime
) -> int | None:
    """Return the number of waiting letters if the store has nothing else to do, or None.

    It is None if much is new or a transaction is open: then the sweep's tasks run.
    """
    ends = stable_ends(installation.kafka, {store: partitions}, most_seconds=0)
    marks = ends.stable[store].items()
    with_records = [TopicPartition(store, number) for number, (low, end) in marks if low < end]
    projections = projections_of(installation, with_records, committed=True)
    if ends.open or projections.unread() > letters_table.FEW_OFFSETS:
        return None
    counts = Counter[Outcome]()
    for partition in with_records:
        with projections.open(partition) as database:
            counts += LettersNow(database, now).counts()
    return None if counts.keys() - {Outcome.WAIT} else counts[Outcome.WAIT]


def read_on(
    installation: Installation, partitions: Sequence[TopicPartition], *, beside: int = 1
) -> None:
    """Read many new records on this machine, so that the next sweep finds few.

    A task reads its own partition `beside` those of other tasks.
    """
    projections = projections_of(installation, partitions)
    if projections.unread() > letters_table.FEW_OFFSETS // beside:
        for partition in partitions:
            with projections.open(partition):
                pass
