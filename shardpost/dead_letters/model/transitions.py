"""The records by which a letter is dealt with: its retry, its place in the parking lot, tombstones.

All records about one letter go out in one transaction; who reads committed records sees all of
them or none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice

from shardpost.dead_letters.model.fingerprints import fingerprint
from shardpost.dead_letters.model.letter_names import name_of
from shardpost.dead_letters.model.letters import (
    ATTEMPT,
    ERROR,
    MOST_ATTEMPTS,
    OF_OTHERS,
    Letter,
    Malformed,
    letter_headers,
    own_headers,
    parse,
)
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import BY_KEY, Header, Headers, Outgoing, Record

# Of a tombstone: what was done with which attempt, when, and where the record was that it is of.
STATE = "state"
AT = "at"
DEALT_OFFSET = "dealt-offset"
# Of a parked letter: why, the fingerprint of its error, how often that one parked it, and how often
# the others did that parked it before: `fingerprint=count`, the latest first.
PARKED_REASON = "parked-reason"
PARKED_ERROR = "parked-error"
PARKED_COUNT = "parked-count"
PARKED_BEFORE = "parked-before"
_ERRORS_KEPT = 10
_DIGITS = 18  # of numbers that fit into 64 bits
_OF_PARKING = frozenset({PARKED_REASON, PARKED_ERROR, PARKED_COUNT, PARKED_BEFORE})


class LetterState(StrEnum):
    """Where a letter is in its life; `dropped` is a report of a failure that was dealt with."""

    WAITING = "waiting"
    RETRIED = "retried"
    PARKED = "parked"
    REDRIVEN = "redriven"
    DISCARDED = "discarded"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Routes:
    """Topics by their names in this installation, and how many partitions each has."""

    store: str
    parking_lot: str
    partitions: Mapping[str, int]


def retry(letter: Letter, record: Record, topic: str, routes: Routes) -> Outgoing:
    """Return the next attempt at a letter: its original key, value and headers.

    A value that is there is sent, even if the letter says that it was null. Left out is what others
    wrote on it when it failed: with it, its next failure could not be told from the last one.
    """
    letter = letter._replace(is_null=letter.is_null and not record.value)
    own = (h for h in own_headers(record.headers) if h[0] != PARKED_REASON)
    headers = [h for h in own if not h[0].startswith(OF_OTHERS)]
    headers += letter_headers(letter, more_attempts=1)
    value = None if letter.is_null else record.value
    place = BY_KEY
    if not letter.origin_key:  # librdkafka may place what has no key anywhere
        place = partition_of(letter.origin_key or letter.id, routes.partitions[topic])
    return Outgoing(topic, letter.origin_key, value, headers, place)


def parked(letter: Letter | Malformed, record: Record, reason: str, routes: Routes) -> Outgoing:
    """Return the record of the parking lot that holds a letter."""
    error = reason if isinstance(letter, Malformed) else letter.error
    mark = fingerprint(error)
    before = _parked_by(dict(record.headers))
    count = before.pop(mark, 0) + 1
    headers = [h for h in record.headers if h[0] not in _OF_PARKING and h[0] != ERROR]
    headers += [(ERROR, error), (PARKED_REASON, reason), (PARKED_ERROR, mark)]
    headers.append((PARKED_COUNT, str(count)))
    if before:
        others = islice(before.items(), _ERRORS_KEPT)
        headers.append((PARKED_BEFORE, ",".join(f"{name}={times}" for name, times in others)))
    key = parking_key(letter, record)
    home = partition_of(key, routes.partitions[routes.parking_lot])
    return Outgoing(routes.parking_lot, key, record.value or b"", headers, home)


def parking_key(letter: Letter | Malformed, record: Record) -> bytes:
    """Return the letter's id; of a malformed one what its key is called."""
    return letter.id.encode() if isinstance(letter, Letter) else name_of(record.key).encode()


def tombstone(record: Record, attempt: int | None, state: LetterState, at: datetime) -> Outgoing:
    """Return the record that takes a letter out of its topic, and says what became of it.

    It is of that record and those before it: another may have come in the meantime.
    Without an attempt, nothing that comes later under its key is taken for the same failure.
    """
    headers: list[Header] = [(STATE, str(state)), (AT, at.isoformat())]
    headers.append((DEALT_OFFSET, str(record.offset)))
    if attempt is not None:
        headers.append((ATTEMPT, str(attempt)))
    return Outgoing(record.topic, record.key, None, headers, record.partition)


def restored(record: Record) -> Outgoing:
    """Return a letter once more, on top of what came after it and must not replace it."""
    headers = list(record.headers)
    return Outgoing(
        record.topic, record.key, record.value, headers, record.partition, record.timestamp
    )


def attempt_dealt_with(headers: Headers) -> int:
    """Return the attempt that a tombstone speaks of; -1 if it says none."""
    return min(_number(dict(headers).get(ATTEMPT), -1), MOST_ATTEMPTS)


def offset_dealt_with(headers: Headers, offset: int) -> int:
    """Return up to which offset a tombstone speaks; up to its own if it was written by hand."""
    return _number(dict(headers).get(DEALT_OFFSET), offset)


def parked_count(headers: Mapping[str, str | bytes | None]) -> int:
    """Return how often a letter was parked by the error that parked it last."""
    return _number(headers.get(PARKED_COUNT), 0)


def _parked_by(headers: Mapping[str, str | bytes | None]) -> dict[str, int]:
    """Return how often which error parked a letter, the latest first."""
    found = {}
    if last := as_text(headers.get(PARKED_ERROR)):
        found[last] = parked_count(headers)
    for entry in as_text(headers.get(PARKED_BEFORE)).split(","):
        name, _, times = entry.partition("=")
        if name and name not in found:
            found[name] = _number(times, 0)
    return found


def read_parked(record: Record) -> Letter | Malformed:
    """Read a letter of the parking lot."""
    return parse(record.key, record.headers, record.timestamp)


def as_text(value: str | bytes | None) -> str:
    """Return a header's value as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


def _number(value: str | bytes | None, otherwise: int) -> int:
    digits = as_text(value)
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS
    return int(digits) if is_number else otherwise
