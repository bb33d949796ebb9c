"""Dead letters of records that failed: how they are made, written to the store, and named.

This is the one module of dead letters that other features import; the format is in
letter_format.py.

A letter lies in the partition of its original key. Its name, which is also its key in the parking
lot, is its id: records of one id in one partition are one letter. To keep names unique, two kinds
have names of their own:

- a **malformed** letter has no id, and its key may be anything, such as an account number: its name
  is its place, `topic-partition-offset@timestamp`;
- a **misplaced** letter lies in another partition, where duplicates of its id are not noticed: its
  name is the id with that partition, `id~partition`.
"""

import re
from collections.abc import Collection
from datetime import datetime
from functools import cache

from shardpost.dead_letters.model.letter_format import (
    ATTEMPT,
    ERROR,
    ERROR_BYTES,
    FAILED_AT,
    HEADERS_BYTES,
    ID,
    MALFORMED,
    MAX_KEY_BYTES,
    ORIGIN_KEY,
    ORIGIN_NULL,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TOPIC,
    RESERVED,
    Letter,
    Malformed,
    header_text,
    name_of,
    parse_record,
)
from shardpost.instants import EARLIEST_MS, LATEST_MS
from shardpost.kafka.records import (
    HEADERS_LEFT_OUT,
    HEADERS_UNREADABLE,
    Coordinates,
    Header,
    Headers,
    Outgoing,
    Record,
    batch_bytes,
    header_bytes,
    partition_of,
)

# What others import from here.
__all__ = ["HEADERS_BYTES", "ORIGIN_NULL", "ORIGIN_OFFSET", "ORIGIN_PARTITION", "ORIGIN_TOPIC"]

# The headers kept if not even all headers fit.
_SMALL_HEADERS = frozenset((ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ERROR))
# The error class of a rejected record; retrying the same value does not help.
UNDECODABLE = "Undecodable"


def letter_id(origin: Coordinates, timestamp: int) -> str:
    """Return the id of a record's letter: `topic-partition-offset@timestamp`.

    `@timestamp` is left out if the record has none. Topic names never contain an `@`. The time is
    rounded to that of tables, so that the id is the same from a table.
    """
    place = f"{origin.topic}-{origin.partition}-{origin.offset}"
    return place if timestamp <= EARLIEST_MS else f"{place}@{min(timestamp, LATEST_MS)}"


def failure(
    record: Record, error: BaseException | str, failed_at: datetime, retry_topics: Collection[str]
) -> Letter:
    """Return the letter of a failed record; only a record of a retry topic counts as a retry."""
    again = failed_again(record, error, failed_at) if record.topic in retry_topics else None
    return again or first_failure(record, error, failed_at)


def first_failure(record: Record, error: BaseException | str, failed_at: datetime) -> Letter:
    """Return the letter of a record that failed for the first time."""
    return Letter(
        id=letter_id(record.coordinates, record.timestamp),
        origin_topic=record.topic,
        origin_partition=record.partition,
        origin_offset=record.offset,
        origin_key=record.key,
        attempt=0,
        error=error_text(error),
        failed_at=failed_at,
        is_null=record.value is None,
    )


def failed_again(retry: Record, error: BaseException | str, failed_at: datetime) -> Letter | None:
    """Return the same letter at a failed retry's attempt; None without the headers of a retry."""
    headers = [*retry.headers, (ERROR, error_text(error)), (FAILED_AT, failed_at.isoformat())]
    key, at = header_bytes(dict(retry.headers).get(ID)), int(failed_at.timestamp() * 1000)
    again = retry._replace(key=key, headers=headers, timestamp=at, is_append_time=False)
    letter = parse_record(again)
    # Only the value shows whether it is null: it may have been edited.
    return letter._replace(is_null=retry.value is None) if isinstance(letter, Letter) else None


def as_record(letter: Letter, original: Record, topic: str, partitions: int) -> Outgoing:
    """Return the record of the store that holds a letter, with the original value."""
    placing_key = letter.id.encode() if letter.origin_key is None else letter.origin_key
    kept, room = [], HEADERS_BYTES
    own = own_headers(original.headers)
    for name, raw in own:
        size = len(name) + len(raw or "")
        if size <= room:
            kept.append((name, raw))
            room -= size
    headers = [*kept, *letter_headers(letter), (ERROR, letter.error)]
    headers.append((FAILED_AT, letter.failed_at.isoformat()))
    if dict(original.headers).get(HEADERS_LEFT_OUT) == HEADERS_UNREADABLE:
        headers.append((HEADERS_LEFT_OUT, HEADERS_UNREADABLE))
    elif left_out := len(own) - len(kept):
        headers.append((HEADERS_LEFT_OUT, str(left_out)))
    value = b"" if letter.is_null else original.value
    partition = partition_of(placing_key, partitions)
    return Outgoing(topic, letter.id.encode(), value, headers, partition)


def fitting(out: Outgoing, max_bytes: int) -> Outgoing:
    """Return the record of a letter, without its value if it is too large for the store.

    Such a letter is malformed, so it is parked with a description, and never retried. `max_bytes`
    is the store's `max.message.bytes`.
    """
    size = batch_bytes(out)
    if size <= max_bytes:
        return out
    said = header_text(dict(out.headers)[ERROR])
    error = (
        f"{MALFORMED}its value was left out: expected a letter of at most {max_bytes} bytes,"
        f" found {size}; {said}"
    )
    # Without an id, and with this error, it is malformed for the reason in the error.
    headers = [header for header in out.headers if header[0] not in (ID, ERROR)]
    headers.append((ERROR, error_text(error)))
    without = out._replace(value=b"", headers=headers)
    if batch_bytes(without) <= max_bytes:
        return without
    return without._replace(headers=[h for h in headers if h[0] in _SMALL_HEADERS])


def letter_headers(letter: Letter, more_attempts: int = 0) -> list[Header]:
    """Return the headers that identify a letter, at its attempt or a later one."""
    headers: list[Header] = [
        (ID, letter.id),
        (ORIGIN_TOPIC, letter.origin_topic),
        (ORIGIN_PARTITION, str(letter.origin_partition)),
        (ORIGIN_OFFSET, str(letter.origin_offset)),
        (ATTEMPT, str(letter.attempt + more_attempts)),
    ]
    if letter.origin_key is not None:
        headers.append((ORIGIN_KEY, letter.origin_key))
    if letter.is_null:
        headers.append((ORIGIN_NULL, "true"))
    return headers


def own_headers(headers: Headers) -> list[Header]:
    """Return the headers that are the record's own, not those of a letter."""
    return [header for header in headers if header[0] not in RESERVED]


def error_text(error: BaseException | str) -> str:
    """Return `module.Class: message`, in at most ERROR_BYTES of UTF-8."""
    if isinstance(error, str):
        text = error
    else:
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        try:  # an exception's own method may raise anything
            message = str(error)
        except Exception:
            message = "its message is unreadable"
        text = f"{module}{kind.__qualname__}: {message}"
    return text.encode(errors="replace")[:ERROR_BYTES].decode(errors="ignore")


def parking_key(letter: Letter | Malformed, record: Record, partitions: int) -> bytes:
    """Return the key of a record of the store in the parking lot.

    `partitions` is that number of the store. The same record always has the same key.
    """
    if isinstance(letter, Malformed):
        return letter_id(record.coordinates, record.timestamp).encode()
    raw_id = letter.id.encode()
    looks_named = _form_of_names(record.topic).fullmatch(letter.id) is not None
    if not looks_named and not is_misplaced(letter, record, partitions):
        return raw_id
    key = b"%s~%d" % (raw_id, record.partition)
    return key if len(key) <= MAX_KEY_BYTES else name_of(key).encode()


def is_misplaced(letter: Letter, record: Record, partitions: int) -> bool:
    """Tell whether a letter lies in another partition than that of its original key."""
    placing_key = letter.id if letter.origin_key is None else letter.origin_key
    return record.partition != partition_of(placing_key, partitions)


@cache
def _form_of_names(store: str) -> re.Pattern[str]:
    """Return the pattern of names that are not ids: an id like that cannot be a name."""
    return re.compile(rf"(?s)(?:.*~[0-9]+|{re.escape(store)}-[0-9]+-[0-9]+(?:@[0-9]+)?)")
