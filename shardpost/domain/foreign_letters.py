"""Dead letters of others, as they are: Kafka Connect's sinks and Spring Kafka.

Connect (KIP-298) writes headers `__connect.errors.*` as text. Spring's
DeadLetterPublishingRecoverer writes `kafka_dlt-*`: text, and big-endian numbers of 4 and 8 bytes.
Where a record failed before, both append: each failure is a set of such headers, in order. The last
set is of the failure that is reported. Those before it are of the same record only where it failed
in a topic of retries or of dead letters; else they came along from another record, which a
consumer passed on with its headers, or from a life before somebody put it in its topic again.
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


class Known(NamedTuple):
    """The topics in which a record is on its way again: of retries, and of foreign dead letters."""

    retries: Collection[str]
    foreign: Collection[str]


class _Failure(NamedTuple):
    """What one set of such headers says: of which record, and why."""

    topic: str
    partition: int
    offset: int
    error: str

    @property
    def id(self) -> str:
        return f"{self.topic}-{self.partition}-{self.offset}"


class _Set(NamedTuple):
    """The headers of one failure, without their prefix, and where they are among all."""

    prefix: str
    said: dict[str, str | bytes | None]
    numbers: list[int]


def translated(
    record: Record, now: datetime, store: str, partitions: int, known: Known
) -> Outgoing:
    """Return the record of the store that holds a foreign dead letter.

    Nobody says when it failed: both keep the timestamp of the original record. So it counts as
    failed `now`. A record that is of neither kind is passed on, to be found malformed, with what is
    wrong as its error.
    """
    sets = _sets(record.headers)
    failure = _failure(sets, known)
    if failure is not None:
        letter = _again(record, failure, now, known)
        if letter is None:
            return as_record(_first(record, failure, now), record, store, partitions)
        headers = _without_retries(record.headers, sets, known)
        return as_record(letter, record._replace(headers=headers), store, partitions)
    key = record.place.encode()
    headers = [*own_headers(record.headers), (ERROR, _fault(record.headers))]
    if record.key is not None:
        headers.append((ORIGIN_KEY, record.key))
    return Outgoing(store, key, record.value or b"", headers, partition_of(key, partitions))


def _first(record: Record, failure: _Failure, now: datetime) -> Letter:
    return Letter(
        id=failure.id,
        origin_topic=failure.topic,
        origin_partition=failure.partition,
        origin_offset=failure.offset,
        origin_key=record.key,
        attempt=0,
        error=error_text(failure.error),
        failed_at=now,
        is_null=record.value is None,
    )


def _again(record: Record, failure: _Failure, now: datetime, known: Known) -> Letter | None:
    """Return the letter of a retry that failed; None for what is no retry.

    Spring can be told to keep the place of the first failure only; then it is the letter's own.
    """
    again = failed_again(record, failure.error, now)
    if again and (failure.topic in known.retries or failure.id == again.id):
        return again
    return None


def _sets(headers: Headers) -> list[_Set]:
    """Return the failures that headers tell of, in order: a place that is said anew begins one."""
    found: list[_Set] = []
    of_prefix: dict[str, _Set] = {}
    for number, (name, value) in enumerate(headers):
        prefix = next(filter(name.startswith, _PLACE), None)
        if prefix is None:
            continue
        rest = name.removeprefix(prefix)
        one = of_prefix.get(prefix)
        if one is None or (rest in one.said and rest in _PLACE[prefix]):
            one = of_prefix[prefix] = _Set(prefix, {}, [])
            found.append(one)
        one.said[rest] = value
        one.numbers.append(number)
    return found


def _failure(sets: list[_Set], known: Known) -> _Failure | None:
    """Return the failure that is reported; None if its headers do not say enough.

    A record that failed as a dead letter is followed to where it failed before.
    """
    failures = [_PARSE[one.prefix](one.said) for one in sets]
    while len(failures) > 1 and (last := failures[-1]) and last.topic in known.foreign:
        *failures, before = failures[:-1]
        failures.append(before and before._replace(error=last.error))
    return failures[-1] if failures else None


def _without_retries(headers: Headers, sets: list[_Set], known: Known) -> list[Header]:
    """Leave out the sets of retries that failed, or each would add one more."""
    topics = (as_text(one.said.get(_PLACE[one.prefix][0])) for one in sets)
    left_out = {
        number
        for one, topic in zip(sets, topics, strict=True)
        if topic in known.retries
        for number in one.numbers
    }
    return [header for number, header in enumerate(headers) if number not in left_out]


def _of_connect(said: _Said) -> _Failure | None:
    topic, partition, offset = (as_text(said.get(name)) for name in _PLACE[_CONNECT])
    if not (topic and _is_number(partition) and _is_number(offset)):
        return None
    kind, message = (as_text(said.get(f"exception.{name}")) for name in ("class.name", "message"))
    return _Failure(topic, int(partition), int(offset), f"{kind}: {message}")


def _of_spring(said: _Said) -> _Failure | None:
    at_topic, at_partition, at_offset = (said.get(name) for name in _PLACE[_SPRING])
    topic = as_text(at_topic)
    partition = _big_endian(at_partition, _INT_BYTES)
    offset = _big_endian(at_offset, _LONG_BYTES)
    if not topic or partition is None or offset is None:
        return None
    names = ("cause-fqcn", "fqcn", "message")
    cause, kind, message = (as_text(said.get(f"exception-{name}")) for name in names)
    return _Failure(topic, partition, offset, f"{cause or kind}: {message}")


_PARSE = {_CONNECT: _of_connect, _SPRING: _of_spring}


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
