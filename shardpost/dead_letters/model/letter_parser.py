"""Parsing a letter from a record's key, headers and timestamp.

Nearly all letters are well-formed, so these are parsed by a fast path at half the cost; all others
by a strict one, which says what is wrong. A test holds one against the other.
"""

from datetime import UTC, datetime
from typing import Any

from shardpost.dead_letters.model.letter_format import (
    ATTEMPT,
    EARLIEST,
    ERROR,
    ERROR_BYTES,
    FAILED_AT,
    ID,
    MALFORMED,
    MAX_ATTEMPTS,
    MAX_KEY_BYTES,
    MAX_OFFSET,
    MAX_PARTITION,
    ORIGIN_KEY,
    ORIGIN_NULL,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TOPIC,
    QUOTED_BYTES,
    STORED_AT,
    HeaderMap,
    Letter,
    Malformed,
)
from shardpost.errors import UsageError
from shardpost.instants import instant_of, parse_instant
from shardpost.kafka.records import Headers, Record

_MAX_DIGITS = len(str(MAX_OFFSET))


class _BadHeaderError(Exception):
    pass


def parse(
    key: bytes | None, headers: Headers, timestamp: int, *, is_append_time: bool = False
) -> Letter | Malformed:
    """Parse a letter; `timestamp` in milliseconds, the broker's if so told. Never raises."""
    by_name: dict[str, Any] = dict(headers)
    stored_at = instant_of(stored_milliseconds(by_name, timestamp)) if is_append_time else None
    return _parse_fast(by_name, key, timestamp, stored_at) or _parse_strictly(
        by_name, key, timestamp, stored_at
    )


def parse_record(record: Record) -> Letter | Malformed:
    """Parse the letter that a record holds. Never raises."""
    key, headers, timestamp = record.key, record.headers, record.timestamp
    return parse(key, headers, timestamp, is_append_time=record.is_append_time)


def stored_milliseconds(headers: HeaderMap, timestamp: int) -> int:
    """Return when the store took a letter: before its timestamp, if it was written again."""
    if STORED_AT not in headers:
        return timestamp
    try:
        return min(_number(headers, STORED_AT, MAX_OFFSET), timestamp)
    except _BadHeaderError:
        return timestamp


def attempt_of(headers: Headers, *, require_id: bool = True) -> int:
    """Return the attempt in a letter's headers; 0 if there is none, or no letter id beside it."""
    found = dict(headers)
    try:
        return _number(found, ATTEMPT, MAX_ATTEMPTS) if ID in found or not require_id else 0
    except _BadHeaderError:
        return 0


def header_bytes(value: str | bytes | None) -> bytes | None:
    """Return a header's value as bytes."""
    return value.encode() if isinstance(value, str) else value


def _parse_fast(
    found: dict[str, Any], key: bytes | None, timestamp: int, stored_at: datetime | None = None
) -> Letter | None:
    """Parse a letter without any fault; None for any other.

    Headers that were read are bytes: of anything else these methods of bytes raise TypeError.
    """
    try:
        partition, offset, attempt = found[ORIGIN_PARTITION], found[ORIGIN_OFFSET], found[ATTEMPT]
        failed_at = datetime.fromisoformat(bytes.decode(found[FAILED_AT]))
        letter = Letter(
            bytes.decode(found[ID]),
            bytes.decode(found[ORIGIN_TOPIC]),
            int(partition),
            int(offset),
            header_bytes(found.get(ORIGIN_KEY)),
            int(attempt),
            bytes.decode(found[ERROR]),
            failed_at if failed_at.timestamp() * 1000 <= timestamp else instant_of(timestamp),
            header_bytes(found.get(ORIGIN_NULL)) == b"true",
            stored_at,
        )
        is_well_formed = (
            found[ID] == key != b""
            and letter.origin_topic
            and bytes.isdigit(attempt + partition + offset)
            and len(found[ID]) <= MAX_KEY_BYTES
            and len(found[ERROR]) <= ERROR_BYTES
            and len(attempt) <= 4
            and len(partition) <= 9
            and len(offset) <= 18
            and failed_at.tzinfo is UTC
            and failed_at >= EARLIEST
        )
    except (KeyError, TypeError, ValueError):
        return None
    return letter if is_well_formed else None


def _parse_strictly(
    found: HeaderMap, key: bytes | None, timestamp: int, stored_at: datetime | None = None
) -> Letter | Malformed:
    try:
        return Letter(
            id=_id(found, key),
            origin_topic=_text(found, ORIGIN_TOPIC),
            origin_partition=_number(found, ORIGIN_PARTITION, MAX_PARTITION),
            origin_offset=_number(found, ORIGIN_OFFSET, MAX_OFFSET),
            origin_key=header_bytes(found.get(ORIGIN_KEY)),
            attempt=_number(found, ATTEMPT, MAX_ATTEMPTS),
            error=(header_bytes(found.get(ERROR)) or b"")[:ERROR_BYTES].decode(errors="replace"),
            failed_at=min(_time(found, FAILED_AT), instant_of(timestamp)),
            is_null=header_bytes(found.get(ORIGIN_NULL)) == b"true",
            stored_at=stored_at,
        )
    except _BadHeaderError as error:
        return Malformed(str(error))


def _id(found: HeaderMap, key: bytes | None) -> str:
    if found.get(ID) is None and (raw := header_bytes(found.get(ERROR))):
        error = raw[:ERROR_BYTES].decode(errors="replace")
        reason = error.removeprefix(MALFORMED)  # it was parked, with what is wrong as its error
        if reason == error:
            reason = f"expected a header {ID} beside its error: {error}"
        raise _BadHeaderError(reason)
    text = _text(found, ID)
    if key is None or text.encode() != key:
        raise _BadHeaderError(
            f"expected {ID} to be the record's key, found {text[:QUOTED_BYTES]!r}"
        )
    if len(key) > MAX_KEY_BYTES:
        raise _BadHeaderError(f"expected {ID} of at most {MAX_KEY_BYTES} bytes, found {len(key)}")
    return text


def _text(found: HeaderMap, name: str) -> str:
    raw = header_bytes(found.get(name)) or b""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise _BadHeaderError(f"expected {name} in UTF-8, found {raw[:QUOTED_BYTES]!r}") from None
    if not text:
        raise _BadHeaderError(f"expected a header {name}, found none")
    return text


def _number(found: HeaderMap, name: str, most: int) -> int:
    raw = header_bytes(found.get(name))
    # isdigit of text accepts more digits than ASCII's, of bytes it does not
    if raw and raw.isdigit() and len(raw) <= _MAX_DIGITS and (number := int(raw)) <= most:
        return number
    quoted = "none" if raw is None else repr(raw[:QUOTED_BYTES])
    raise _BadHeaderError(f"expected {name} to be 0 to {most}, found {quoted}")


def _time(found: HeaderMap, name: str) -> datetime:
    text = _text(found, name)
    quoted = repr(text[:QUOTED_BYTES])
    try:
        at = parse_instant(text)
    except UsageError:
        raise _BadHeaderError(f"expected {name} in ISO 8601, found {quoted}") from None
    if at < EARLIEST:
        raise _BadHeaderError(f"expected {name} after {EARLIEST.year}, found {quoted}")
    return at
