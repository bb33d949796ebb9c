"""Dead letters of others, as they are: Kafka Connect's sinks and Spring Kafka.

Connect (KIP-298) writes headers `__connect.errors.*` as text. Spring's
DeadLetterPublishingRecoverer writes `kafka_dlt-*`: text, and big-endian numbers of 4 and 8 bytes;
where a record failed more than once it appends, so the first header of a name is of the first
failure.
"""

from collections.abc import Mapping
from datetime import datetime

from shardpost.domain.dealing import as_text
from shardpost.domain.letters import Letter, as_record, error_text, own_headers
from shardpost.domain.partitioning import partition_of
from shardpost.domain.records import Outgoing, Record

_CONNECT = "__connect.errors."
_SPRING = "kafka_dlt-"
_INT_BYTES, _LONG_BYTES = 4, 8

_First = Mapping[str, str | bytes | None]


def translated(record: Record, now: datetime, store: str, partitions: int) -> Outgoing:
    """Return the record of the store that holds a foreign dead letter.

    Nobody says when it failed: both keep the timestamp of the original record. So it counts as
    failed `now`. A record that is of neither kind is passed on as it is, to be found malformed.
    """
    letter = letter_of(record, now)
    if letter is not None:
        return as_record(letter, record, store, partitions)
    key = record.place.encode()
    headers = own_headers(record.headers)
    return Outgoing(store, key, record.value or b"", headers, partition_of(key, partitions))


def letter_of(record: Record, now: datetime) -> Letter | None:
    """Return the letter that a foreign dead letter is; None if its headers do not say enough."""
    first: _First = dict(reversed(record.headers))
    origin = _of_connect(first) or _of_spring(first)
    if origin is None:
        return None
    topic, partition, offset, error = origin
    return Letter(
        id=f"{topic}-{partition}-{offset}",
        origin_topic=topic,
        origin_partition=partition,
        origin_offset=offset,
        origin_key=record.key,
        attempt=0,
        error=error_text(error),
        failed_at=now,
        is_null=record.value is None,
    )


def _of_connect(first: _First) -> tuple[str, int, int, str] | None:
    topic, partition, offset, kind, message = (
        as_text(first.get(_CONNECT + name))
        for name in ("topic", "partition", "offset", "exception.class.name", "exception.message")
    )
    if not (topic and _is_number(partition) and _is_number(offset)):
        return None
    return topic, int(partition), int(offset), f"{kind}: {message}"


def _of_spring(first: _First) -> tuple[str, int, int, str] | None:
    topic = as_text(first.get(_SPRING + "original-topic"))
    partition = _big_endian(first.get(_SPRING + "original-partition"), _INT_BYTES)
    offset = _big_endian(first.get(_SPRING + "original-offset"), _LONG_BYTES)
    if not topic or partition is None or offset is None:
        return None
    names = ("exception-cause-fqcn", "exception-fqcn", "exception-message")
    cause, kind, message = (as_text(first.get(_SPRING + name)) for name in names)
    return topic, partition, offset, f"{cause or kind}: {message}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < len(str(2**63))


def _big_endian(value: str | bytes | None, size: int) -> int | None:
    if not isinstance(value, bytes) or len(value) != size:
        return None
    number = int.from_bytes(value, "big", signed=True)
    return number if number >= 0 else None
