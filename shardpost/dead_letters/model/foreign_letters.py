"""Dead letters of other frameworks, converted to ours: DIALECTS has how each says what failed.

Where a record failed before, Connect and Spring append their headers, so one that carries several
coordinates failed at each, in that order. The last ones are those of the failure that is reported.
Those before it are of the same record only where it failed in a topic of retries or of dead
letters; else they came along from another record, which a consumer passed on with its headers, or
from before somebody produced it to its topic again.
"""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from shardpost.dead_letters.model.letter_format import (
    ERROR,
    ORIGIN_KEY,
    QUOTED_BYTES,
    HeaderMap,
    attempt_of,
    header_text,
    number_of,
    utf8_header,
)
from shardpost.dead_letters.model.letters import (
    as_record,
    failed_again,
    first_failure,
    letter_id,
    own_headers,
)
from shardpost.kafka.coordinates import Coordinates
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import NO_TIMESTAMP, Outgoing, Record
from shardpost.values.retry_settings import RetryRules
from shardpost.values.topic_names import LEGAL


class Dialect(NamedTuple):
    """How a framework writes why a record failed: headers, all of them after `prefix`.

    Behind it, they begin with one of `families`: others of that prefix are not of a failure.
    Numbers are text, or big-endian bytes. The timestamp of the original record, which is part of
    the letter's id, is that of the dead letter where no header has it. The error has the first kind
    and the first message that are there.
    """

    prefix: str
    kinds: tuple[str, ...]
    messages: tuple[str, ...]
    place: tuple[str, str, str] = ("topic", "partition", "offset")
    timestamp: str | None = None
    is_binary: bool = False
    has_record: bool = True
    families: tuple[str, ...] = ("",)

    def lacks(self, record: Record) -> bool:
        """Tell whether a dead letter may not have what failed."""
        return not self.has_record and record.key is None and record.value is None


_OF_SPRING = Dialect(
    "kafka_dlt-",
    ("exception-cause-fqcn", "exception-fqcn", "key-exception-cause-fqcn", "key-exception-fqcn"),
    ("exception-message", "key-exception-message"),
    ("original-topic", "original-partition", "original-offset"),
    timestamp="original-timestamp",
    is_binary=True,
)
DIALECTS = (
    Dialect("__connect.errors.", ("exception.class.name",), ("exception.message",)),  # KIP-298
    _OF_SPRING,  # its DeadLetterPublishingRecoverer
    _OF_SPRING._replace(  # its @RetryableTopic
        prefix="kafka_", families=("original-", "exception-", "key-exception-")
    ),
    Dialect("__streams.errors.", ("exception",), ("message",)),  # KIP-1034
    # KIP-1191: when the record was written nobody says, and what it was only if the group is to.
    Dialect("__dlq.errors.", ("group",), ("message",), timestamp="timestamp", has_record=False),
)
# How the headers begin that others add to a record that failed; in the last, Spring counts.
FOREIGN_PREFIXES = (
    *(f"{dialect.prefix}{family}" for dialect in DIALECTS for family in dialect.families),
    "retry_topic-",
)
COPY = "a share group copies it with errors.deadletterqueue.copy.record.enable=true"
_INT_BYTES, _LONG_BYTES = 4, 8


class KnownTopics(NamedTuple):
    """Where retries are sent, and which topics have foreign dead letters."""

    rules: RetryRules
    foreign: Collection[str]


class _Failure(NamedTuple):
    """The record that one set of such headers describes, and the error of the last failure.

    `timestamp` is that record's; None where the record that was made of it has the same.
    """

    coordinates: Coordinates
    error: str
    timestamp: int | None


def from_foreign(
    record: Record, now: datetime, store: str, partitions: int, known: KnownTopics
) -> Outgoing:
    """Return the record of the store that holds a foreign dead letter.

    None says when it failed, so it counts as failed `now`. A record that is of no dialect, or does
    not have what failed, is passed on as it is, to be found malformed, with why as its error.
    """
    failures = _failures(record)
    failure = _reported_failure(failures, known)
    if failure is not None:
        letter, topic = failed_again(record, failure.error, now), failure.coordinates.topic
        retry_topics = known.rules.retry_only_topics
        if not letter or topic not in {*retry_topics, known.rules.retry_topic(letter.origin_topic)}:
            # Wherever else a retry went on, its attempts are counted on: it comes to an end. A
            # retry is sent without such headers.
            topics = {one.coordinates.topic for one in failures if one}
            was_retried = not topics.isdisjoint(retry_topics)
            attempt = attempt_of(record.headers) if was_retried else 0
            timestamp = failure.timestamp
            if timestamp is None:  # of a topic that the broker stamps nobody knows it any more
                timestamp = NO_TIMESTAMP if record.is_append_time else record.timestamp
            original = record._replace(**failure.coordinates._asdict(), timestamp=timestamp)
            letter = first_failure(original, failure.error, now)._replace(attempt=attempt)
        return as_record(letter, record, store, partitions)
    key = letter_id(record.coordinates, record.timestamp).encode()
    headers = [*own_headers(record.headers), (ERROR, _fault(record))]
    if record.key is not None:
        headers.append((ORIGIN_KEY, record.key))
    return Outgoing(store, key, record.value or b"", headers, partition_of(key, partitions))


def _failures(record: Record) -> list[_Failure | None]:
    """Return the failures that headers describe, in order; None for one without coordinates.

    A header that comes a second time begins another failure. All have the error of the last of
    their kind: Spring writes an error before its coordinates, Connect after them, and only the last
    error counts.
    """
    last_of_name: HeaderMap = dict(record.headers)
    sets: list[tuple[Dialect, dict[str, str | bytes | None]]] = []
    current: dict[str, dict[str, str | bytes | None]] = {}  # by prefix
    for name, value in record.headers:
        for dialect in DIALECTS:
            rest = name.removeprefix(dialect.prefix)
            if rest != name and rest in (*dialect.place, dialect.timestamp):
                coordinates = current.get(dialect.prefix)
                if coordinates is None or rest in coordinates:
                    coordinates = current[dialect.prefix] = {}
                    sets.append((dialect, coordinates))
                coordinates[rest] = value
    return [
        None if dialect.lacks(record) else _parsed(dialect, coordinates, last_of_name)
        for dialect, coordinates in sets
    ]


def _reported_failure(failures: list[_Failure | None], known: KnownTopics) -> _Failure | None:
    """Return the failure that is reported; None if its headers do not say enough.

    A record that failed as a dead letter is followed to where it failed before.
    """
    left = [*failures]
    while len(left) > 1 and (last := left[-1]) and last.coordinates.topic in known.foreign:
        *left, before = left[:-1]
        if before:
            timestamp = last.timestamp if before.timestamp is None else before.timestamp
            before = before._replace(error=last.error, timestamp=timestamp)
        left.append(before)
    return left[-1] if left else None


def _parsed(dialect: Dialect, coordinates: HeaderMap, headers: HeaderMap) -> _Failure | None:
    raw_topic, raw_partition, raw_offset = (coordinates.get(name) for name in dialect.place)
    topic = utf8_header(raw_topic)
    partition = _number(dialect, raw_partition, _INT_BYTES)
    offset = _number(dialect, raw_offset, _LONG_BYTES)
    if not topic or not LEGAL.fullmatch(topic) or partition is None or offset is None:
        return None
    timestamp = None
    if dialect.timestamp is not None:
        at = _number(dialect, coordinates.get(dialect.timestamp), _LONG_BYTES)
        timestamp = NO_TIMESTAMP if at is None else at
    kind, message = (
        next(filter(None, (header_text(headers.get(dialect.prefix + one)) for one in names)), "")
        for names in (dialect.kinds, dialect.messages)
    )
    place = Coordinates(topic, partition, offset)
    return _Failure(place, f"{kind}: {message}", timestamp)


def _fault(record: Record) -> str:
    by_name = dict(record.headers)
    for dialect in DIALECTS:
        found = {name: by_name.get(dialect.prefix + name) for name in dialect.place}
        if any(value is not None for value in found.values()):
            values = ", ".join(
                f"{name} {'none' if value is None else repr(value[:QUOTED_BYTES])}"
                for name, value in found.items()
            )
            if dialect.lacks(record):
                return f"expected the record, found neither key nor value ({COPY}): {values}"
            place = "where the record was: a name that a topic can have, and two numbers"
            return f"expected {dialect.prefix}… to say {place}; found {values}"
    prefixes = " or ".join(f"{one.prefix}{one.place[0]}" for one in DIALECTS)
    return f"expected a header {prefixes}, found none"


def _number(dialect: Dialect, value: str | bytes | None, size: int) -> int | None:
    if not dialect.is_binary:
        return number_of(value)
    if not isinstance(value, bytes) or len(value) != size:
        return None
    number = int.from_bytes(value, "big", signed=True)
    return number if number >= 0 else None
