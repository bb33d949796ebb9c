"""Dead letters of other frameworks, converted to ours; DIALECTS has their headers.

At a repeated failure Connect and Spring append their headers, so a record with several coordinates
failed at each, in that order. The last are those of the reported failure. Earlier ones belong to
the same record only if it failed in a retry or dead-letter topic; else they were copied along from
another record, or from before the record was produced to its topic again.
"""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from shardpost.dead_letters.model import letters
from shardpost.dead_letters.model.letter_format import (
    ERROR,
    ORIGIN_KEY,
    QUOTED_BYTES,
    HeaderMap,
    attempt_of,
    header_text,
    number_of,
)
from shardpost.kafka.records import (
    NO_TIMESTAMP,
    Coordinates,
    Outgoing,
    Record,
    partition_of,
    utf8_text,
)
from shardpost.values.retry_settings import RetryRules
from shardpost.values.topic_names import LEGAL


class Dialect(NamedTuple):
    """The headers by which a framework describes a failure; their names start with `prefix`.

    It is followed by one of `families`: other headers with the prefix do not describe a failure.
    Numbers are text or big-endian bytes. Without a header for it, the timestamp of the original
    record, a part of the letter's id, is that of the dead letter. The error uses the first kind and
    message present.
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
    # KIP-1191: the record's time is missing, and its contents depend on the group's settings.
    Dialect("__dlq.errors.", ("group",), ("message",), timestamp="timestamp", has_record=False),
)
# Prefixes of headers that frameworks add to a failed record; the last is Spring's counter.
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
    """The record described by one set of such headers, and the error of the last failure.

    `timestamp` is that record's; None if the dead letter has the same.
    """

    coordinates: Coordinates
    error: str
    timestamp: int | None


def from_foreign(
    record: Record, now: datetime, store: str, partitions: int, known: KnownTopics
) -> Outgoing:
    """Return the store's record for a foreign dead letter.

    No dialect has the time of the failure, so it is `now`. A record of no dialect, or without the
    failed record, is passed on unchanged with the reason as its error, and becomes malformed.
    """
    failures = _failures(record)
    failure = _reported_failure(failures, known)
    if failure is not None:
        letter, topic = letters.failed_again(record, failure.error, now), failure.coordinates.topic
        retry_topics = known.rules.retry_only_topics
        if not letter or topic not in {*retry_topics, known.rules.retry_topic(letter.origin_topic)}:
            # A retry that passed through another framework keeps its attempts, so that it ends. A
            # retry is sent without such headers.
            topics = {one.coordinates.topic for one in failures if one}
            was_retried = not topics.isdisjoint(retry_topics)
            attempt = attempt_of(record.headers) if was_retried else 0
            timestamp = failure.timestamp
            if timestamp is None:  # lost for a topic that the broker stamps
                timestamp = NO_TIMESTAMP if record.is_append_time else record.timestamp
            original = record._replace(**failure.coordinates._asdict(), timestamp=timestamp)
            letter = letters.first_failure(original, failure.error, now)._replace(attempt=attempt)
        return letters.as_record(letter, record, store, partitions)
    key = letters.letter_id(record.coordinates, record.timestamp).encode()
    headers = [*letters.own_headers(record.headers), (ERROR, _fault(record))]
    if record.key is not None:
        headers.append((ORIGIN_KEY, record.key))
    return Outgoing(store, key, record.value or b"", headers, partition_of(key, partitions))


def _failures(record: Record) -> list[_Failure | None]:
    """Return the failures that headers describe, in order; None for one without coordinates.

    A repeated header begins another failure. All get the last error: Spring writes an error before
    its coordinates, Connect after them, and only the last error counts.
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
    """Return the reported failure; None if its headers are incomplete.

    A record that failed as a dead letter is traced to its earlier failure.
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
    topic = utf8_text(raw_topic)
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
            place = "the record's place: a valid topic name and two numbers"
            return f"expected {dialect.prefix}… to have {place}; found {values}"
    prefixes = " or ".join(f"{one.prefix}{one.place[0]}" for one in DIALECTS)
    return f"expected a header {prefixes}, found none"


def _number(dialect: Dialect, value: str | bytes | None, size: int) -> int | None:
    if not dialect.is_binary:
        return number_of(value)
    if not isinstance(value, bytes) or len(value) != size:
        return None
    number = int.from_bytes(value, "big", signed=True)
    return number if number >= 0 else None
