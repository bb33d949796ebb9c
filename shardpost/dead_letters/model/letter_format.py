"""The format of a dead letter: headers and their parsing, states, name and table.

The headers are those of docs/dead-letters.md (What a letter is). The id of a letter is
`topic-partition-offset@timestamp` of the record whose processing failed first, so that the same
failure makes the same letter however often it is reported, and a failed retry is that letter again,
with the retry's attempt. The timestamp distinguishes the record from one at that offset of a
deleted topic of the same name. Readers do not parse ids.

The name of a letter is its key in a form that a person can read and type: a key that is no letter
id may be any bytes.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from shardpost.delta.table import Table, columns
from shardpost.errors import UsageError
from shardpost.instants import instant_of, parse_instant
from shardpost.kafka.records import HEADERS_LEFT_OUT, Headers, Record, header_bytes, utf8_text

ID = "letter-id"
ORIGIN_TOPIC = "origin-topic"
ORIGIN_PARTITION = "origin-partition"
ORIGIN_OFFSET = "origin-offset"
ORIGIN_KEY = "origin-key"
ORIGIN_NULL = "origin-null"
ATTEMPT = "attempt"
ERROR = "error"
FAILED_AT = "failed-at"
# The original store time of a letter that a sweep rewrote, in milliseconds since 1970.
STORED_AT = "stored-at"

# Headers of every record of a letter, retries too; and those that only a letter itself has.
ORIGIN_HEADERS = (ID, ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_KEY, ORIGIN_NULL)
FAILURE_HEADERS = (ATTEMPT, ERROR, FAILED_AT)
RESERVED = frozenset((*ORIGIN_HEADERS, *FAILURE_HEADERS, STORED_AT, HEADERS_LEFT_OUT))

# The prefix of the error of a letter parked because it could not be parsed.
MALFORMED = "malformed: "

MAX_ATTEMPTS = 9_999
MAX_OFFSET = 2**63 - 1
_MAX_DIGITS = len(str(MAX_OFFSET))
MAX_NUMBER = 10**18 - 1  # in headers that have no other limit
MAX_PARTITION = 2**31 - 1
# Bytes of the error's text, and of all headers of the original record that are kept.
ERROR_BYTES = 2_000
HEADERS_BYTES = 32_768
# Bytes of a wrong value that an error message quotes.
QUOTED_BYTES = 100
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)

HeaderMap = Mapping[str, str | bytes | None]


class Letter(NamedTuple):
    """A dead letter without its value. `failed_at` is never later than the record's timestamp.

    `stored_at` is its time in the store by the broker's clock; None if the broker does not stamp
    records.
    """

    id: str
    origin_topic: str
    origin_partition: int
    origin_offset: int
    origin_key: bytes | None
    attempt: int
    error: str
    failed_at: datetime
    is_null: bool
    stored_at: datetime | None = None

    @property
    def delayed_from(self) -> datetime:
        """The start of its delay, by the broker's clock if known."""
        return self.stored_at or self.failed_at


@dataclass(frozen=True)
class Malformed:
    """A record of the store that cannot be parsed as a letter, and why."""

    reason: str


def header_text(value: str | bytes | None) -> str:
    """Return a header's value as text; invalid UTF-8 becomes U+FFFD."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


class LetterState(StrEnum):
    """The state of a letter; `dropped` is a failure reported again after its resolution."""

    WAITING = "waiting"
    RETRIED = "retried"
    PARKED = "parked"
    REDRIVEN = "redriven"
    DISCARDED = "discarded"
    DROPPED = "dropped"


# The letter is in its topic and not resolved yet.
OPEN = (LetterState.WAITING, LetterState.PARKED)
# An id of ours is far shorter: the name of a topic has at most 249 characters.
MAX_KEY_BYTES = 1_000
# Control characters, and those that change the direction of a line.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
BASE64, SHA256 = "base64 ", "sha256 "


def name_of(key: bytes | None) -> str:
    """Return a key as text, in base64 if it is not text, or as SHA-256 if empty or long."""
    key = key or b""
    if not 0 < len(key) <= MAX_KEY_BYTES:
        return SHA256 + sha256(key).hexdigest()
    text = utf8_text(key)
    if text is None or _UNPRINTABLE.search(text):
        return BASE64 + base64.b64encode(key).decode()
    return text


def keys_of(name: str) -> set[bytes]:
    """Return the keys of at most MAX_KEY_BYTES that have a name: itself, and what it encodes."""
    keys = {name.encode()}
    if name.startswith(BASE64):
        with suppress(binascii.Error, ValueError):
            keys.add(base64.b64decode(name.removeprefix(BASE64), validate=True))
    return keys


# Every step of every dead letter, from the records of dead-letters and parking-lot. Each sweep
# appends to it, and it belongs to no snapshot. The offsets read, and the `generation` of each
# topic, are kept in its commits.
DEAD_LETTERS = Table(
    "dead_letters",
    columns(
        "id STRING, state STRING, attempt INT, at TIMESTAMP, origin_topic STRING,"
        " origin_partition INT, origin_offset BIGINT, origin_key BINARY, size BIGINT, error STRING,"
        " fingerprint STRING, failed_at TIMESTAMP, delayed_from TIMESTAMP, jitter DOUBLE,"
        " topic STRING, partition INT, offset BIGINT, generation INT, key STRING"
    ),
    not_in_dictionaries=("id", "offset", "origin_offset"),
    contacts=("error",),
    comments={
        "id": "name; base64 if not plain text",
        "state": "`waiting`, `retried`, `parked`, `redriven`, `discarded`",
        "attempt": "that failed; 0 if missing; null for a tombstone written by hand",
        "at": "the record's; in `dead-letters` by the broker's clock",
        "origin_topic": "null, like the columns up to `jitter`, for `retried`, `redriven`,"
        " `discarded`",
        "origin_key": "null if none",
        "size": "bytes of the value",
        "fingerprint": "class, and checksum of the fixed parts of the message",
        "failed_at": "the consumer's, at most `at`",
        "delayed_from": "start of the delay, if waiting; current settings say how long",
        "jitter": "its share of the jitter, 0 to 1",
        "topic": "coordinates of the record",
        "generation": "0 or null: first topic of that name; next after each recreation or"
        " truncation",
        "key": "if not `id`: base64 if not plain text, SHA-256 if empty or over 1,000 bytes",
    },
)


class _BadHeaderError(Exception):
    pass


def parse_record(record: Record) -> Letter | Malformed:
    """Parse the letter that a record holds. Never raises."""
    headers, at = dict(record.headers), instant_of(record.timestamp)
    stored_at = None
    if record.is_append_time:
        milliseconds = stored_milliseconds(headers, record.timestamp)
        stored_at = at if milliseconds == record.timestamp else instant_of(milliseconds)
    try:
        return Letter(
            id=_id(headers, record.key),
            origin_topic=_text(headers, ORIGIN_TOPIC),
            origin_partition=_number(headers, ORIGIN_PARTITION, MAX_PARTITION),
            origin_offset=_number(headers, ORIGIN_OFFSET, MAX_OFFSET),
            origin_key=header_bytes(headers.get(ORIGIN_KEY)),
            attempt=_number(headers, ATTEMPT, MAX_ATTEMPTS),
            error=(header_bytes(headers.get(ERROR)) or b"")[:ERROR_BYTES].decode(errors="replace"),
            failed_at=min(_time(headers, FAILED_AT), at),
            is_null=header_bytes(headers.get(ORIGIN_NULL)) == b"true",
            stored_at=stored_at,
        )
    except _BadHeaderError as error:
        return Malformed(str(error))


def stored_milliseconds(headers: HeaderMap, timestamp: int) -> int:
    """Return a letter's time in the store: before its timestamp, if a sweep rewrote it."""
    stored_at = number_of(headers.get(STORED_AT), MAX_OFFSET)
    return timestamp if stored_at is None else min(stored_at, timestamp)


def attempt_of(headers: Headers, *, require_id: bool = True) -> int:
    """Return the attempt in a letter's headers; 0 if it, or the letter id, is missing."""
    by_name = dict(headers)
    is_there = ID in by_name or not require_id
    return (number_of(by_name.get(ATTEMPT), MAX_ATTEMPTS) or 0) if is_there else 0


def number_of(value: str | bytes | None, most: int = MAX_NUMBER) -> int | None:
    """Return the number from 0 to `most` in a header's ASCII digits, else None."""
    raw = header_bytes(value)
    # isdigit of text accepts more digits than ASCII's, of bytes it does not
    if raw and raw.isdigit() and len(raw) <= _MAX_DIGITS and (number := int(raw)) <= most:
        return number
    return None


def _id(headers: HeaderMap, key: bytes | None) -> str:
    if headers.get(ID) is None and (raw := header_bytes(headers.get(ERROR))):
        error = raw[:ERROR_BYTES].decode(errors="replace")
        reason = error.removeprefix(MALFORMED)  # it was parked, with what is wrong as its error
        if reason == error:
            reason = f"expected a header {ID} beside its error: {error}"
        raise _BadHeaderError(reason)
    text = _text(headers, ID)
    if key is None or text.encode() != key:
        raise _BadHeaderError(
            f"expected {ID} to be the record's key, found {text[:QUOTED_BYTES]!r}"
        )
    if len(key) > MAX_KEY_BYTES:
        raise _BadHeaderError(f"expected {ID} of at most {MAX_KEY_BYTES} bytes, found {len(key)}")
    return text


def _text(headers: HeaderMap, name: str) -> str:
    raw = header_bytes(headers.get(name)) or b""
    if (text := utf8_text(raw)) is None:
        raise _BadHeaderError(f"expected {name} in UTF-8, found {raw[:QUOTED_BYTES]!r}")
    if not text:
        raise _BadHeaderError(f"expected a header {name}, found none")
    return text


def _number(headers: HeaderMap, name: str, most: int) -> int:
    number = number_of(headers.get(name), most)
    if number is not None:
        return number
    raw = header_bytes(headers.get(name))
    quoted = "none" if raw is None else repr(raw[:QUOTED_BYTES])
    raise _BadHeaderError(f"expected {name} to be 0 to {most}, found {quoted}")


def _time(headers: HeaderMap, name: str) -> datetime:
    text = _text(headers, name)
    try:
        at = parse_instant(text)
    except UsageError:
        why = f"expected {name} in ISO 8601, found {text[:QUOTED_BYTES]!r}"
        raise _BadHeaderError(why) from None
    if at < EARLIEST:
        why = f"expected {name} after {EARLIEST.year}, found {text[:QUOTED_BYTES]!r}"
        raise _BadHeaderError(why)
    return at
