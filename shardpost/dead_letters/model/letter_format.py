"""The format of a dead letter: headers, limits, state and name.

The format of a dead letter: the names of its headers, their limits, and the letter as a value.

The headers are those of docs/dead-letters.md (What a letter is). The id of a letter is
`topic-partition-offset@timestamp` of the record whose processing failed first, so the same failure
makes the same letter however often it is reported, and a retry that fails is that letter again,
with the retry's attempt. The timestamp tells the record from the one at that offset of a topic of
that name that was deleted. Whoever reads an id takes it as it is.

Where a letter is in its life.

The names of letters: their keys, in a form that a person can read and type.

A key that is no letter id may be any bytes. spark/letters_table_rows.py computes the same in the
JVM; a test holds one against the other.

The table of dead letters.
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
from shardpost.kafka.records import HEADERS_LEFT_OUT

ID = "letter-id"
ORIGIN_TOPIC = "origin-topic"
ORIGIN_PARTITION = "origin-partition"
ORIGIN_OFFSET = "origin-offset"
ORIGIN_KEY = "origin-key"
ORIGIN_NULL = "origin-null"
ATTEMPT = "attempt"
ERROR = "error"
FAILED_AT = "failed-at"
# When the store took a letter that a sweep has written again, in milliseconds since 1970.
STORED_AT = "stored-at"

# Headers of every record of a letter, retries too; and those that only a letter itself has.
ORIGIN_HEADERS = (ID, ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_KEY, ORIGIN_NULL)
FAILURE_HEADERS = (ATTEMPT, ERROR, FAILED_AT)
RESERVED = frozenset((*ORIGIN_HEADERS, *FAILURE_HEADERS, STORED_AT, HEADERS_LEFT_OUT))

# The beginning of the error of a letter that was parked because it could not be parsed.
MALFORMED = "malformed: "

MAX_ATTEMPTS = 9_999
MAX_OFFSET = 2**63 - 1
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

    `stored_at` is when the store took it, by the broker's clock; None where the broker does not
    stamp records.
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
        """When its delay begins: by the broker's clock, if that is known."""
        return self.stored_at or self.failed_at


@dataclass(frozen=True)
class Malformed:
    """A record of the store that cannot be parsed as a letter, and why."""

    reason: str


def header_text(value: str | bytes | None) -> str:
    """Return a header's value as text; what is not UTF-8 in it becomes U+FFFD."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


class LetterState(StrEnum):
    """Where a letter is; `dropped` is a failure reported again after it had been resolved."""

    WAITING = "waiting"
    RETRIED = "retried"
    PARKED = "parked"
    REDRIVEN = "redriven"
    DISCARDED = "discarded"
    DROPPED = "dropped"


# The letter is in its topic: nothing has dealt with it yet.
OPEN = (LetterState.WAITING, LetterState.PARKED)


# An id of ours is far shorter: the name of a topic has at most 249 characters.
MAX_KEY_BYTES = 1_000
# Control characters, and those that change the direction of a line.
UNPRINTABLE = r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
BASE64, SHA256 = "base64 ", "sha256 "

_UNPRINTABLE = re.compile(UNPRINTABLE)


def name_of(key: bytes | None) -> str:
    """Return a key as text; in base64 where it is none; its SHA-256 where it is empty or long."""
    key = key or b""
    if not 0 < len(key) <= MAX_KEY_BYTES:
        return SHA256 + sha256(key).hexdigest()
    with suppress(UnicodeDecodeError):
        text = key.decode()
        if not _UNPRINTABLE.search(text):
            return text
    return BASE64 + base64.b64encode(key).decode()


def keys_of(name: str) -> set[bytes]:
    """Return the keys of at most MAX_KEY_BYTES that have a name: itself, and what it encodes."""
    found = {name.encode()}
    if name.startswith(BASE64):
        with suppress(binascii.Error, ValueError):
            found.add(base64.b64decode(name.removeprefix(BASE64), validate=True))
    return found


# Every step in the life of every dead letter, made of the records of dead-letters and parking-lot.
# Each sweep appends to it, and it belongs to no snapshot. How far the topics were read, and which
# topic of a name that was (`generation`), is kept in its commits.
DEAD_LETTERS = Table(
    "dead_letters",
    columns(
        "id STRING, state STRING, attempt INT, at TIMESTAMP, origin_topic STRING,"
        " origin_partition INT, origin_offset BIGINT, origin_key BINARY, size BIGINT, error STRING,"
        " fingerprint STRING, failed_at TIMESTAMP, due TIMESTAMP, topic STRING, partition INT,"
        " offset BIGINT, generation INT, key STRING"
    ),
    not_in_dictionaries=("id", "offset", "origin_offset"),
    contacts=("error",),
)
