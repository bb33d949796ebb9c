"""The records that move a letter from one state to the next: retries, parked letters, tombstones.

All records about one letter are written in one transaction; a reader of committed records sees all
of them or none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from shardpost.dead_letters.model import letters
from shardpost.dead_letters.model.foreign_letters import FOREIGN_PREFIXES
from shardpost.dead_letters.model.letter_format import (
    ATTEMPT,
    ERROR,
    ID,
    MALFORMED,
    MAX_ATTEMPTS,
    ORIGIN_TOPIC,
    STORED_AT,
    HeaderMap,
    Letter,
    LetterState,
    Malformed,
    header_text,
    number_of,
    parse_record,
    stored_milliseconds,
)
from shardpost.dead_letters.model.retry_policy import Outcome, SelectedLetter, decide, fingerprint
from shardpost.kafka.records import (
    BY_KEY,
    Header,
    Headers,
    Outgoing,
    Record,
    header_bytes,
    partition_of,
)
from shardpost.values.retry_settings import RetryRules

# Headers of a tombstone: the state that the letter goes to, when, and the offset of the resolved
# record; beside them the attempt, and the name of a misplaced letter.
STATE = "state"
AT = "at"
RESOLVED_OFFSET = "dealt-offset"
NAME = "letter-name"
# Headers of a parked letter: the reason, the fingerprint of its error, how often that error parked
# it, and how often others did: `fingerprint=count`, the latest first. For a malformed letter, its
# key in the store.
PARKED_REASON = "parked-reason"
PARKED_ERROR = "parked-error"
PARKED_COUNT = "parked-count"
PARKED_BEFORE = "parked-before"
STORED_KEY = "stored-key"
_PARKED_HEADERS = frozenset({PARKED_REASON, PARKED_ERROR, PARKED_COUNT, PARKED_BEFORE})
_MAX_ERRORS = 10


@dataclass(frozen=True)
class Routes:
    """The topics of letters by their names in this installation, and their partition counts."""

    store: str
    parking_lot: str
    partitions: Mapping[str, int]


def retry_record(letter: Letter, record: Record, topic: str, routes: Routes) -> Outgoing:
    """Return the next attempt at a letter: its original key, value and headers.

    A value is sent if present, even if the letter is marked as null. Headers added by frameworks at
    the failure are left out: with them, its next failure would look like the last.
    """
    letter = letter._replace(is_null=letter.is_null and not record.value)
    headers = [
        header
        for header in letters.own_headers(record.headers)
        if header[0] != PARKED_REASON and not header[0].startswith(FOREIGN_PREFIXES)
    ]
    headers += letters.letter_headers(letter, more_attempts=1)
    value = None if letter.is_null else record.value
    partition = BY_KEY
    if not letter.origin_key:  # librdkafka may put a record without a key anywhere
        partition = partition_of(letter.id, routes.partitions[topic])
    return Outgoing(topic, letter.origin_key, value, headers, partition)


def parked_record(
    letter: Letter | Malformed, record: Record, reason: str, routes: Routes
) -> Outgoing:
    """Return the record of the parking lot that holds a letter."""
    error = reason if isinstance(letter, Malformed) else letter.error
    error_fingerprint = fingerprint(error)
    before = _parked_counts(dict(record.headers))
    count = before.pop(error_fingerprint, 0) + 1
    headers = [h for h in record.headers if h[0] not in _PARKED_HEADERS and h[0] != ERROR]
    headers += [(ERROR, error), (PARKED_REASON, reason), (PARKED_ERROR, error_fingerprint)]
    headers.append((PARKED_COUNT, str(count)))
    if before:
        others = islice(before.items(), _MAX_ERRORS)
        headers.append((PARKED_BEFORE, ",".join(f"{name}={times}" for name, times in others)))
    if isinstance(letter, Malformed):  # the last header of a name counts
        headers.append((STORED_KEY, record.key))
    key = letters.parking_key(letter, record, routes.partitions[routes.store])
    partition = partition_of(key, routes.partitions[routes.parking_lot])
    return Outgoing(routes.parking_lot, key, record.value or b"", headers, partition)


def tombstone(record: Record, attempt: int | None, state: LetterState, at: datetime) -> Outgoing:
    """Return the tombstone that removes a letter from its topic, with its new state.

    It covers that record and those before it, but none that came meanwhile. Without an attempt it
    is for a malformed letter, and covers that record alone.
    """
    headers: list[Header] = [(STATE, str(state)), (AT, at.isoformat())]
    headers.append((RESOLVED_OFFSET, str(record.offset)))
    if attempt is not None:
        headers.append((ATTEMPT, str(attempt)))
    return Outgoing(record.topic, record.key, None, headers, record.partition)


def removed(
    letter: Letter | Malformed, record: Record, state: LetterState, at: datetime, routes: Routes
) -> Outgoing:
    """Return the tombstone of a letter of the store that was retried or parked."""
    if isinstance(letter, Malformed):
        return tombstone(record, None, state, at)
    gone = tombstone(record, letter.attempt, state, at)
    name = letters.parking_key(letter, record, routes.partitions[routes.store])
    if name != record.key:
        gone.headers.append((NAME, name))
    return gone


def is_of_misplaced(gone: Outgoing, record: Record, routes: Routes) -> bool:
    """Tell whether a tombstone is of a letter in another partition than its original key's."""
    if all(name != NAME for name, _ in gone.headers):
        return False
    letter = parse_record(record)
    partitions = routes.partitions[routes.store]
    return isinstance(letter, Letter) and letters.is_misplaced(letter, record, partitions)


def restored(record: Record) -> Outgoing:
    """Return a copy of a letter, to be written after a record that must not replace it.

    It keeps its time, in a header if the broker stamps records.
    """
    headers = list(record.headers)
    if record.is_append_time:
        stored_at = stored_milliseconds(dict(headers), record.timestamp)
        headers = [header for header in headers if header[0] != STORED_AT]
        headers.append((STORED_AT, str(stored_at)))
    return Outgoing(
        record.topic, record.key, record.value, headers, record.partition, record.timestamp
    )


def resolved_attempt(headers: Headers) -> int:
    """Return the attempt that a tombstone resolves; -1 if it names none."""
    attempt = number_of(dict(headers).get(ATTEMPT))
    return -1 if attempt is None else min(attempt, MAX_ATTEMPTS)


def resolved_offset(headers: Headers, offset: int) -> int:
    """Return the last offset that a tombstone covers; its own if it was written by hand."""
    resolved = number_of(dict(headers).get(RESOLVED_OFFSET))
    return offset if resolved is None else resolved


class ParkedGroup(NamedTuple):
    """Parked letters of one origin, with one fingerprint of the error that parked them."""

    origin: str
    error: str

    @classmethod
    def of(cls, headers: HeaderMap) -> "ParkedGroup":
        """Return the group of a letter in the parking lot; a malformed one may have no origin."""
        return cls(header_text(headers.get(ORIGIN_TOPIC)), header_text(headers.get(PARKED_ERROR)))


def parked_count(headers: HeaderMap) -> int:
    """Return how often a letter was parked by its last error."""
    return number_of(headers.get(PARKED_COUNT)) or 0


def parse_parked(record: Record) -> Letter | Malformed:
    """Parse a record of the parking lot, whose key may be a name of its own."""
    headers = dict(record.headers)
    reason = header_text(headers.get(PARKED_REASON))
    if reason.startswith(MALFORMED):
        return Malformed(reason.removeprefix(MALFORMED))
    return parse_record(record._replace(key=header_bytes(headers.get(ID))) if reason else record)


def _parked_counts(headers: HeaderMap) -> dict[str, int]:
    """Return {fingerprint: how often that error parked the letter}, the latest first."""
    counts = {}
    if last := header_text(headers.get(PARKED_ERROR)):
        counts[last] = parked_count(headers)
    for entry in header_text(headers.get(PARKED_BEFORE)).split(","):
        name, _, times = entry.partition("=")
        if name and name not in counts:
            counts[name] = number_of(times) or 0
    return counts


def outcome_records(
    record: Record, selected: SelectedLetter, rules: RetryRules, routes: Routes, now: datetime
) -> Sequence[Outgoing]:
    """Return the records that are to be written, in one transaction."""
    outcome = selected.outcome
    if outcome is Outcome.DROP:
        return [tombstone(record, selected.resolved_attempt, LetterState.DROPPED, now)]
    if outcome is Outcome.RESTORE:
        return [restored(record)]
    letter = parse_record(record)
    if outcome is Outcome.RETRY and isinstance(letter, Letter):
        topic = rules.retry_topic(letter.origin_topic)
        gone = removed(letter, record, LetterState.RETRIED, now, routes)
        return [retry_record(letter, record, topic, routes), gone]
    reason = decide(letter, rules).reason
    if reason is None:  # due, but its retry topic does not accept it
        reason = "too large for its retry topic together with its original key"
    gone = removed(letter, record, LetterState.PARKED, now, routes)
    return [parked_record(letter, record, reason, routes), gone]
