"""Dead letters of others, as they are: Kafka Connect's sinks and Spring Kafka.

Connect (KIP-298) writes headers `__connect.errors.*` as text. Spring's
DeadLetterPublishingRecoverer writes `kafka_dlt-*`: text, and big-endian numbers of 4 and 8 bytes.
Where a record failed before, both append, so one that carries several places failed in each, in
that order. The last one is that of the failure that is reported. Those before it are of the same
record only where it failed in a topic of retries or of dead letters; else they came along from
another record, which a consumer passed on with its headers, or from a life before somebody put it
in its topic again.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from shardpost.dead_letters.model.letters import (
    ERROR,
    OF_OTHERS,
    ORIGIN_KEY,
    SHOWN,
    Letter,
    as_record,
    attempt_of,
    failed_again,
    first_failure,
    own_headers,
)
from shardpost.dead_letters.model.transitions import as_text
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import Headers, Outgoing, Record
from shardpost.retry_settings import RetryRules

_CONNECT, _SPRING = OF_OTHERS
_PLACE = {
    _CONNECT: ("topic", "partition", "offset"),
    _SPRING: ("original-topic", "original-partition", "original-offset"),
}
_INT_BYTES, _LONG_BYTES = 4, 8

_Said = Mapping[str, str | bytes | None]


class Known(NamedTuple):
    """What is known of topics: where retries go, and which have foreign dead letters."""

    rules: RetryRules
    foreign: Collection[str]

    def is_retried_into(self, topic: str, origin: str) -> bool:
        """Tell whether a record of a topic can be a retry of that origin's."""
        return topic in self.rules.no_origins or topic == self.rules.retry_topic(origin)


class _Failure(NamedTuple):
    """Of which record one set of such headers is, and why the last one failed."""

    topic: str
    partition: int
    offset: int
    error: str


def translated(
    record: Record, now: datetime, store: str, partitions: int, known: Known
) -> Outgoing:
    """Return the record of the store that holds a foreign dead letter.

    Neither says when it failed, so it counts as failed `now`. A record that is of neither kind is
    passed on, to be found malformed, with what is wrong as its error.
    """
    failures = _failures(record.headers)
    failure = _reported(failures, known)
    if failure is not None:
        # However a retry went on from where it failed, it does not go on for ever.
        attempt = attempt_of(record.headers) if _is_of_a_retry(failures, known) else 0
        letter = _again(record, failure, now, known) or _first(record, failure, now, attempt)
        return as_record(letter, record, store, partitions)
    key = record.id.encode()
    headers = [*own_headers(record.headers), (ERROR, _fault(record.headers))]
    if record.key is not None:
        headers.append((ORIGIN_KEY, record.key))
    return Outgoing(store, key, record.value or b"", headers, partition_of(key, partitions))


def _first(record: Record, failure: _Failure, now: datetime, attempt: int) -> Letter:
    """Return the letter of the original record, of which the foreign one has key and value."""
    original = record._replace(
        topic=failure.topic, partition=failure.partition, offset=failure.offset
    )
    return first_failure(original, failure.error, now)._replace(attempt=attempt)


def _again(record: Record, failure: _Failure, now: datetime, known: Known) -> Letter | None:
    """Return the letter of a retry that failed; None for what is no retry of its origin's."""
    again = failed_again(record, failure.error, now)
    if again and known.is_retried_into(failure.topic, again.origin_topic):
        return again
    return None


def _is_of_a_retry(failures: list[_Failure | None], known: Known) -> bool:
    """Tell whether a record failed as a retry before; a retry brings no failures along."""
    return any(one and one.topic in known.rules.no_origins for one in failures)


def _failures(headers: Headers) -> list[_Failure | None]:
    """Return the failures that headers tell of, in order; None for one without a sound place.

    A place that is said anew begins another. All have the error of the last of their kind: Spring
    writes an error before its place, Connect after it, and only the last error counts.
    """
    said: _Said = dict(headers)
    found: list[tuple[str, dict[str, str | bytes | None]]] = []
    of_prefix: dict[str, dict[str, str | bytes | None]] = {}
    for name, value in headers:
        for prefix, names in _PLACE.items():
            if name.startswith(prefix) and (rest := name.removeprefix(prefix)) in names:
                place = of_prefix.get(prefix)
                if place is None or rest in place:
                    place = of_prefix[prefix] = {}
                    found.append((prefix, place))
                place[rest] = value
    return [_PARSE[prefix](place, said) for prefix, place in found]


def _reported(failures: list[_Failure | None], known: Known) -> _Failure | None:
    """Return the failure that is reported; None if its headers do not say enough.

    A record that failed as a dead letter is followed to where it failed before.
    """
    left = [*failures]
    while len(left) > 1 and (last := left[-1]) and last.topic in known.foreign:
        *left, before = left[:-1]
        left.append(before and before._replace(error=last.error))
    return left[-1] if left else None


def _of_connect(place: _Said, said: _Said) -> _Failure | None:
    topic, partition, offset = (as_text(place.get(name)) for name in _PLACE[_CONNECT])
    if not (topic and _is_number(partition) and _is_number(offset)):
        return None
    names = ("exception.class.name", "exception.message")
    kind, message = (as_text(said.get(_CONNECT + name)) for name in names)
    return _Failure(topic, int(partition), int(offset), f"{kind}: {message}")


def _of_spring(place: _Said, said: _Said) -> _Failure | None:
    at_topic, at_partition, at_offset = (place.get(name) for name in _PLACE[_SPRING])
    topic = as_text(at_topic)
    partition = _big_endian(at_partition, _INT_BYTES)
    offset = _big_endian(at_offset, _LONG_BYTES)
    if not topic or partition is None or offset is None:
        return None
    of = "" if f"{_SPRING}exception-fqcn" in said else "key-"  # a key that cannot be deserialised
    names = ("exception-cause-fqcn", "exception-fqcn", "exception-message")
    cause, kind, message = (as_text(said.get(f"{_SPRING}{of}{name}")) for name in names)
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
