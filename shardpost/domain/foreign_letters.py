"""Dead letters of others, as they are: Kafka Connect's sinks and Spring Kafka.

Connect (KIP-298) writes headers `__connect.errors.*` as text. Spring's
DeadLetterPublishingRecoverer writes `kafka_dlt-*`: text, and big-endian numbers of 4 and 8 bytes.
Where a record failed more than once both append, so the first header of a name is of the first
failure, and the last one of the last.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from shardpost.domain.dealing import as_text
from shardpost.domain.letters import (
    ERROR,
    ORIGIN_KEY,
    SHOWN,
    Letter,
    as_record,
    error_text,
    failed_again,
    own_headers,
)
from shardpost.domain.partitioning import partition_of
from shardpost.domain.records import Header, Headers, Outgoing, Record

_CONNECT = "__connect.errors."
_SPRING = "kafka_dlt-"
_PLACE = {
    _CONNECT: ("topic", "partition", "offset"),
    _SPRING: ("original-topic", "original-partition", "original-offset"),
}
_INT_BYTES, _LONG_BYTES = 4, 8

_Said = Mapping[str, str | bytes | None]


class _Failure(NamedTuple):
    """What one set of such headers says: of which record, and why."""

    topic: str
    partition: int
    offset: int
    error: str


def translated(
    record: Record, now: datetime, store: str, partitions: int, retry_topics: Collection[str]
) -> Outgoing:
    """Return the record of the store that holds a foreign dead letter.

    Nobody says when it failed: both keep the timestamp of the original record. So it counts as
    failed `now`. A record that is of neither kind is passed on, to be found malformed, with what is
    wrong as its error.
    """
    again = _failed_again(record, now, retry_topics)
    if again is not None:
        first_set = record._replace(headers=_without_later_sets(record.headers))
        return as_record(again, first_set, store, partitions)
    letter = letter_of(record, now)
    if letter is not None:
        return as_record(letter, record, store, partitions)
    key = record.place.encode()
    headers = [*own_headers(record.headers), (ERROR, _fault(record.headers))]
    if record.key is not None:
        headers.append((ORIGIN_KEY, record.key))
    return Outgoing(store, key, record.value or b"", headers, partition_of(key, partitions))


def letter_of(record: Record, now: datetime) -> Letter | None:
    """Return the letter that a foreign dead letter is; None if its headers do not say enough."""
    first = _failure(dict(reversed(record.headers)))
    if first is None:
        return None
    return Letter(
        id=f"{first.topic}-{first.partition}-{first.offset}",
        origin_topic=first.topic,
        origin_partition=first.partition,
        origin_offset=first.offset,
        origin_key=record.key,
        attempt=0,
        error=error_text(first.error),
        failed_at=now,
        is_null=record.value is None,
    )


def _failed_again(record: Record, now: datetime, retry_topics: Collection[str]) -> Letter | None:
    """Return the letter of a retry that failed: its last failure was of a retry topic's record."""
    last = _failure(dict(record.headers))
    if last is None or last.topic not in retry_topics:
        return None
    return failed_again(record, last.error, now)


def _without_later_sets(headers: Headers) -> list[Header]:
    """Keep the first failure's set only, or each retry would add one more."""
    first = {name: number for number, (name, _) in reversed([*enumerate(headers)])}
    foreign = tuple(_PLACE)
    return [
        header
        for number, header in enumerate(headers)
        if first[header[0]] == number or not header[0].startswith(foreign)
    ]


def _failure(said: _Said) -> _Failure | None:
    return _of_connect(said) or _of_spring(said)


def _of_connect(said: _Said) -> _Failure | None:
    topic, partition, offset = (as_text(said.get(_CONNECT + name)) for name in _PLACE[_CONNECT])
    if not (topic and _is_number(partition) and _is_number(offset)):
        return None
    names = ("exception.class.name", "exception.message")
    kind, message = (as_text(said.get(_CONNECT + name)) for name in names)
    return _Failure(topic, int(partition), int(offset), f"{kind}: {message}")


def _of_spring(said: _Said) -> _Failure | None:
    at_topic, at_partition, at_offset = (said.get(_SPRING + name) for name in _PLACE[_SPRING])
    topic = as_text(at_topic)
    partition = _big_endian(at_partition, _INT_BYTES)
    offset = _big_endian(at_offset, _LONG_BYTES)
    if not topic or partition is None or offset is None:
        return None
    names = ("exception-cause-fqcn", "exception-fqcn", "exception-message")
    cause, kind, message = (as_text(said.get(_SPRING + name)) for name in names)
    return _Failure(topic, partition, offset, f"{cause or kind}: {message}")


def _fault(headers: Headers) -> str:
    """Say why a record is no letter of either kind."""
    said = dict(headers)
    for prefix, names in _PLACE.items():
        if any(name.startswith(prefix) for name in said):
            found = ", ".join(f"{name} {_shown(said.get(prefix + name))}" for name in names)
            return f"expected {prefix}… to say where the record was, found {found}"
    return f"expected headers {' or '.join(f'{prefix}…' for prefix in _PLACE)}, found none"


def _shown(value: str | bytes | None) -> str:
    return "none" if value is None else repr(value[:SHOWN])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < len(str(2**63))


def _big_endian(value: str | bytes | None, size: int) -> int | None:
    if not isinstance(value, bytes) or len(value) != size:
        return None
    number = int.from_bytes(value, "big", signed=True)
    return number if number >= 0 else None
