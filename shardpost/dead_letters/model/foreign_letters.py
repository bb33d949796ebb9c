"""Dead letters of Kafka Connect's sinks and of Spring Kafka, converted to ours.

Connect (KIP-298) writes headers `__connect.errors.*` as text. Spring's
DeadLetterPublishingRecoverer writes `kafka_dlt-*`: text, and big-endian numbers of 4 and 8 bytes.
Where a record failed before, both append, so one that carries several coordinates failed at each,
in that order. The last ones are those of the failure that is reported. Those before it are of the
same record only where it failed in a topic of retries or of dead letters; else they came along from
another record, which a consumer passed on with its headers, or from before somebody produced it to
its topic again.

The timestamp of the original record, which is part of the letter's id, Spring writes as a header;
Connect gives it to the dead letter.
"""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from shardpost.dead_letters.model.letter_format import (
    ERROR,
    ORIGIN_KEY,
    QUOTED_BYTES,
    HeaderMap,
    Letter,
    attempt_of,
    header_text,
)
from shardpost.dead_letters.model.letters import (
    as_record,
    failed_again,
    first_failure,
    letter_id,
    own_headers,
)
from shardpost.dead_letters.model.transition_records import CONNECT_PREFIX, SPRING_PREFIX
from shardpost.kafka.coordinates import Coordinates
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import NO_TIMESTAMP, Headers, Outgoing, Record
from shardpost.retry_settings import RetryRules

# After each prefix, the headers of topic, partition and offset.
_COORDINATES = {
    CONNECT_PREFIX: ("topic", "partition", "offset"),
    SPRING_PREFIX: ("original-topic", "original-partition", "original-offset"),
}
_SPRING_TIMESTAMP = "original-timestamp"  # beside them
_INT_BYTES, _LONG_BYTES = 4, 8


class KnownTopics(NamedTuple):
    """Where retries are sent, and which topics have foreign dead letters."""

    rules: RetryRules
    foreign: Collection[str]

    def is_retried_into(self, topic: str, origin: str) -> bool:
        """Tell whether a record of a topic can be a retry of that origin's."""
        return topic in self.rules.retry_only_topics or topic == self.rules.retry_topic(origin)


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

    Neither says when it failed, so it counts as failed `now`. A record that is of neither kind is
    passed on as it is, to be found malformed, with what is wrong as its error.
    """
    failures = _failures(record.headers)
    failure = _reported_failure(failures, known)
    if failure is not None:
        letter = _retry_letter(record, failure, now, known)
        if letter is None:
            # Wherever else a retry went on, its attempts are counted on: it comes to an end.
            attempt = attempt_of(record.headers) if _was_retried(failures, known) else 0
            letter = _first_letter(record, failure, now, attempt)
        return as_record(letter, record, store, partitions)
    key = letter_id(record.coordinates, record.timestamp).encode()
    headers = [*own_headers(record.headers), (ERROR, _fault(record.headers))]
    if record.key is not None:
        headers.append((ORIGIN_KEY, record.key))
    return Outgoing(store, key, record.value or b"", headers, partition_of(key, partitions))


def _retry_letter(
    record: Record, failure: _Failure, now: datetime, known: KnownTopics
) -> Letter | None:
    """Return the letter of a retry that failed; None for what is no retry of its origin's."""
    letter = failed_again(record, failure.error, now)
    if letter and known.is_retried_into(failure.coordinates.topic, letter.origin_topic):
        return letter
    return None


def _first_letter(record: Record, failure: _Failure, now: datetime, attempt: int) -> Letter:
    """Return the letter of the original record, of which the foreign one has key and value."""
    timestamp = failure.timestamp
    if timestamp is None:  # of a topic that the broker stamps nobody knows it any more
        timestamp = NO_TIMESTAMP if record.is_append_time else record.timestamp
    original = record._replace(**failure.coordinates._asdict(), timestamp=timestamp)
    return first_failure(original, failure.error, now)._replace(attempt=attempt)


def _was_retried(failures: list[_Failure | None], known: KnownTopics) -> bool:
    """Tell whether a record failed as a retry before; a retry is sent without such headers."""
    retry_topics = known.rules.retry_only_topics
    return any(failure and failure.coordinates.topic in retry_topics for failure in failures)


def _failures(headers: Headers) -> list[_Failure | None]:
    """Return the failures that headers describe, in order; None for one without coordinates.

    A header that comes a second time begins another failure. All have the error of the last of
    their kind: Spring writes an error before its coordinates, Connect after them, and only the last
    error counts.
    """
    last_of_name: HeaderMap = dict(headers)
    sets: list[tuple[str, dict[str, str | bytes | None]]] = []
    current: dict[str, dict[str, str | bytes | None]] = {}  # by prefix
    for name, value in headers:
        for prefix, names in _COORDINATES.items():
            rest = name.removeprefix(prefix)
            if name.startswith(prefix) and rest in (*names, _SPRING_TIMESTAMP):
                coordinates = current.get(prefix)
                if coordinates is None or rest in coordinates:
                    coordinates = current[prefix] = {}
                    sets.append((prefix, coordinates))
                coordinates[rest] = value
    return [_PARSE[prefix](coordinates, last_of_name) for prefix, coordinates in sets]


def _reported_failure(failures: list[_Failure | None], known: KnownTopics) -> _Failure | None:
    """Return the failure that is reported; None if its headers do not say enough.

    A record that failed as a dead letter is followed to where it failed before.
    """
    left = [*failures]
    while len(left) > 1 and (last := left[-1]) and last.coordinates.topic in known.foreign:
        *left, before = left[:-1]
        left.append(before and _as_reported(before, last))
    return left[-1] if left else None


def _as_reported(before: _Failure, last: _Failure) -> _Failure:
    """Return the failure of which the dead letter was made that failed last."""
    timestamp = last.timestamp if before.timestamp is None else before.timestamp
    return before._replace(error=last.error, timestamp=timestamp)


def _of_connect(coordinates: HeaderMap, headers: HeaderMap) -> _Failure | None:
    topic, partition, offset = (
        header_text(coordinates.get(name)) for name in _COORDINATES[CONNECT_PREFIX]
    )
    if not (topic and _is_number(partition) and _is_number(offset)):
        return None
    names = ("exception.class.name", "exception.message")
    kind, message = (header_text(headers.get(CONNECT_PREFIX + name)) for name in names)
    place = Coordinates(topic, int(partition), int(offset))
    return _Failure(place, f"{kind}: {message}", timestamp=None)


def _of_spring(coordinates: HeaderMap, headers: HeaderMap) -> _Failure | None:
    raw_topic, raw_partition, raw_offset = (
        coordinates.get(name) for name in _COORDINATES[SPRING_PREFIX]
    )
    topic = header_text(raw_topic)
    partition = _big_endian(raw_partition, _INT_BYTES)
    offset = _big_endian(raw_offset, _LONG_BYTES)
    if not topic or partition is None or offset is None:
        return None
    # `key-` is of a key that could not be deserialised
    infix = "" if f"{SPRING_PREFIX}exception-fqcn" in headers else "key-"
    names = ("exception-cause-fqcn", "exception-fqcn", "exception-message")
    cause, kind, message = (
        header_text(headers.get(f"{SPRING_PREFIX}{infix}{name}")) for name in names
    )
    at = _big_endian(coordinates.get(_SPRING_TIMESTAMP), _LONG_BYTES)
    timestamp = NO_TIMESTAMP if at is None else at
    return _Failure(Coordinates(topic, partition, offset), f"{cause or kind}: {message}", timestamp)


_PARSE = {CONNECT_PREFIX: _of_connect, SPRING_PREFIX: _of_spring}


def _fault(headers: Headers) -> str:
    """Return why a record is no dead letter of either kind."""
    by_name = dict(headers)
    for prefix, names in _COORDINATES.items():
        if any(name.startswith(prefix) for name in by_name):
            values = ", ".join(f"{name} {_quoted(by_name.get(prefix + name))}" for name in names)
            return f"expected {prefix}… to say where the record was, found {values}"
    prefixes = " or ".join(f"{prefix}…" for prefix in _COORDINATES)
    return f"expected headers {prefixes}, found none"


def _quoted(value: str | bytes | None) -> str:
    return "none" if value is None else repr(value[:QUOTED_BYTES])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < len(str(2**63))


def _big_endian(value: str | bytes | None, size: int) -> int | None:
    if not isinstance(value, bytes) or len(value) != size:
        return None
    number = int.from_bytes(value, "big", signed=True)
    return number if number >= 0 else None
