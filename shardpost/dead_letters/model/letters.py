"""Dead letters: records that a consumer could not process, with where they came from and why.

The headers are those of CONTRACT.md. The id of a letter is `topic-partition-offset` of the record
whose processing failed first, so the same failure makes the same letter however often it is
reported, and a retry that fails is that letter again, with the retry's attempt.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from shardpost.dead_letters.model.letter_names import LONGEST_KEY
from shardpost.errors import UsageError
from shardpost.instants import parse_instant
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import (
    HEADERS_LEFT_OUT,
    HEADERS_UNREADABLE,
    Header,
    Headers,
    Outgoing,
    Record,
)

ID = "letter-id"
ORIGIN_TOPIC = "origin-topic"
ORIGIN_PARTITION = "origin-partition"
ORIGIN_OFFSET = "origin-offset"
ORIGIN_KEY = "origin-key"
ORIGIN_NULL = "origin-null"
ATTEMPT = "attempt"
ERROR = "error"
FAILED_AT = "failed-at"

# The class of the error by which a compaction rejects a record; no retry of the same value helps.
UNDECODABLE = "Undecodable"
# How the error of a letter begins that was parked since it could not be read.
MALFORMED = "malformed: "

# What every record of a letter says of it, retries too; and what only a letter itself says.
OF_THE_ORIGIN = (ID, ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_KEY, ORIGIN_NULL)
OF_THE_FAILURE = (ATTEMPT, ERROR, FAILED_AT)
RESERVED = frozenset((*OF_THE_ORIGIN, *OF_THE_FAILURE, HEADERS_LEFT_OUT))

# What Kafka Connect and Spring Kafka write on records that failed: dead_letters/model/foreign_letters.py.
OF_OTHERS = ("__connect.errors.", "kafka_dlt-")

MOST_ATTEMPTS = 9_999
MOST_OFFSET = 2**63 - 1
MOST_PARTITION = 2**31 - 1
# Bytes of the error's text, and of all headers of the original record that are kept.
ERROR_BYTES = 2_000
HEADERS_BYTES = 32_768
SHOWN = 100
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_MOST_DIGITS = len(str(MOST_OFFSET))
_LATEST_MS = 253_402_300_799_000  # the end of the year 9999


_Found = Mapping[str, str | bytes | None]


class Letter(NamedTuple):
    """A dead letter without its value. `failed_at` is never later than the record's timestamp."""

    id: str
    origin_topic: str
    origin_partition: int
    origin_offset: int
    origin_key: bytes | None
    attempt: int
    error: str
    failed_at: datetime
    is_null: bool


@dataclass(frozen=True)
class Malformed:
    """A record of the store that cannot be understood as a letter, and why."""

    reason: str


class _BadHeaderError(Exception):
    pass


def parse(key: bytes | None, headers: Headers, timestamp: int) -> Letter | Malformed:
    """Read a letter from a record's key, headers and timestamp (milliseconds); never raises."""
    found: _Found = dict(headers)
    return _sound(found, key, timestamp) or _closely(found, key, timestamp)


def _sound(found: Mapping[str, Any], key: bytes | None, timestamp: int) -> Letter | None:
    """Read what is without any fault, as nearly all is, at half the cost; None for the rest.

    Headers that were read are bytes: of anything else these methods of bytes raise TypeError.
    """
    try:
        partition, offset, attempt = found[ORIGIN_PARTITION], found[ORIGIN_OFFSET], found[ATTEMPT]
        said = datetime.fromisoformat(bytes.decode(found[FAILED_AT]))
        letter = Letter(
            bytes.decode(found[ID]),
            bytes.decode(found[ORIGIN_TOPIC]),
            int(partition),
            int(offset),
            _raw(found.get(ORIGIN_KEY)),
            int(attempt),
            bytes.decode(found[ERROR]),
            said if said.timestamp() * 1000 <= timestamp else _instant(timestamp),
            _raw(found.get(ORIGIN_NULL)) == b"true",
        )
        is_sound = (
            found[ID] == key != b""
            and letter.origin_topic
            and bytes.isdigit(attempt + partition + offset)
            and len(found[ID]) <= LONGEST_KEY
            and len(found[ERROR]) <= ERROR_BYTES
            and len(attempt) <= 4
            and len(partition) <= 9
            and len(offset) <= 18
            and said.tzinfo is UTC
            and said >= EARLIEST
        )
    except (KeyError, TypeError, ValueError):
        return None
    return letter if is_sound else None


def _closely(found: _Found, key: bytes | None, timestamp: int) -> Letter | Malformed:
    try:
        return Letter(
            id=_id(found, key),
            origin_topic=_text(found, ORIGIN_TOPIC),
            origin_partition=_number(found, ORIGIN_PARTITION, MOST_PARTITION),
            origin_offset=_number(found, ORIGIN_OFFSET, MOST_OFFSET),
            origin_key=_raw(found.get(ORIGIN_KEY)),
            attempt=_number(found, ATTEMPT, MOST_ATTEMPTS),
            error=(_raw(found.get(ERROR)) or b"")[:ERROR_BYTES].decode(errors="replace"),
            failed_at=min(_time(found, FAILED_AT), _instant(timestamp)),
            is_null=_raw(found.get(ORIGIN_NULL)) == b"true",
        )
    except _BadHeaderError as error:
        return Malformed(str(error))


def first_failure(record: Record, error: BaseException | str, failed_at: datetime) -> Letter:
    """Return the letter of a record that failed for the first time."""
    return Letter(
        id=record.id,
        origin_topic=record.topic,
        origin_partition=record.partition,
        origin_offset=record.offset,
        origin_key=record.key,
        attempt=0,
        error=error_text(error),
        failed_at=failed_at,
        is_null=record.value is None,
    )


def failure(
    record: Record,
    error: BaseException | str,
    failed_at: datetime,
    retry_topics: Collection[str],
) -> Letter:
    """Return the letter of a record that failed; only one of a retry topic is taken for a retry."""
    again = failed_again(record, error, failed_at) if record.topic in retry_topics else None
    return again or first_failure(record, error, failed_at)


def failed_again(retry: Record, error: BaseException | str, failed_at: datetime) -> Letter | None:
    """Return the letter of a retry that failed: the same one, at the retry's attempt.

    None if the record's headers are not those of a retry.
    """
    headers = [*retry.headers, (ERROR, error_text(error)), (FAILED_AT, failed_at.isoformat())]
    names = dict(retry.headers)
    found = parse(_raw(names.get(ID)), headers, _milliseconds(failed_at))
    # What is null is told by the value itself: it may have been mended on its way.
    return found._replace(is_null=retry.value is None) if isinstance(found, Letter) else None


def as_record(letter: Letter, original: Record, topic: str, partitions: int) -> Outgoing:
    """Return the record of the store that holds a letter, the original value untouched."""
    home = letter.id.encode() if letter.origin_key is None else letter.origin_key
    kept, left_out = _bounded(own_headers(original.headers))
    headers = [*kept, *letter_headers(letter), (ERROR, letter.error)]
    headers.append((FAILED_AT, letter.failed_at.isoformat()))
    if dict(original.headers).get(HEADERS_LEFT_OUT) == HEADERS_UNREADABLE:
        headers.append((HEADERS_LEFT_OUT, HEADERS_UNREADABLE))
    elif left_out:
        headers.append((HEADERS_LEFT_OUT, str(left_out)))
    value = b"" if letter.is_null else original.value
    return Outgoing(topic, letter.id.encode(), value, headers, partition_of(home, partitions))


def attempt_of(headers: Headers, *, even_alone: bool = False) -> int:
    """Return the attempt that a letter's headers say, 0 if none; `even_alone`: without its id."""
    found = dict(headers)
    try:
        return _number(found, ATTEMPT, MOST_ATTEMPTS) if even_alone or ID in found else 0
    except _BadHeaderError:
        return 0


def letter_headers(letter: Letter, more_attempts: int = 0) -> list[Header]:
    """Return the headers that say which letter it is, at its attempt or a later one."""
    found: list[Header] = [
        (ID, letter.id),
        (ORIGIN_TOPIC, letter.origin_topic),
        (ORIGIN_PARTITION, str(letter.origin_partition)),
        (ORIGIN_OFFSET, str(letter.origin_offset)),
        (ATTEMPT, str(letter.attempt + more_attempts)),
    ]
    if letter.origin_key is not None:
        found.append((ORIGIN_KEY, letter.origin_key))
    if letter.is_null:
        found.append((ORIGIN_NULL, "true"))
    return found


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
        try:  # an error's own method may do anything
            message = str(error)
        except Exception:
            message = "its message cannot be read"
        text = f"{module}{kind.__qualname__}: {message}"
    return text.encode(errors="replace")[:ERROR_BYTES].decode(errors="ignore")


def _bounded(headers: list[Header]) -> tuple[list[Header], int]:
    """Return the headers that fit into HEADERS_BYTES, and how many do not."""
    kept, room = [], HEADERS_BYTES
    for name, value in headers:
        size = len(name) + len(value or "")
        if size <= room:
            kept.append((name, value))
            room -= size
    return kept, len(headers) - len(kept)


def _id(found: _Found, key: bytes | None) -> str:
    if found.get(ID) is None and (error := _raw(found.get(ERROR))):
        said = error[:ERROR_BYTES].decode(errors="replace")
        known = said.removeprefix(MALFORMED)  # it was parked, with what is wrong as its error
        why = f"expected a header {ID} beside its error: {said}" if known == said else known
        raise _BadHeaderError(why)
    text = _text(found, ID)
    if key is None or text.encode() != key:
        raise _BadHeaderError(f"expected {ID} to be the record's key, found {text[:SHOWN]!r}")
    if len(key) > LONGEST_KEY:
        raise _BadHeaderError(f"expected {ID} of at most {LONGEST_KEY} bytes, found {len(key)}")
    return text


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _text(found: _Found, name: str) -> str:
    raw = _raw(found.get(name)) or b""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise _BadHeaderError(f"expected {name} in UTF-8, found {raw[:SHOWN]!r}") from None
    if not text:
        raise _BadHeaderError(f"expected a header {name}, found none")
    return text


def _number(found: _Found, name: str, most: int) -> int:
    raw = _raw(found.get(name))
    # isdigit of text knows more digits than ASCII's, of bytes it does not
    if raw and raw.isdigit() and len(raw) <= _MOST_DIGITS and (number := int(raw)) <= most:
        return number
    raise _BadHeaderError(f"expected {name} to be 0 to {most}, found {_shown(raw)}")


def _time(found: _Found, name: str) -> datetime:
    text = _text(found, name)
    try:
        at = parse_instant(text)
    except UsageError:
        raise _BadHeaderError(f"expected {name} in ISO 8601, found {text[:SHOWN]!r}") from None
    if at < EARLIEST:
        raise _BadHeaderError(f"expected {name} after {EARLIEST.year}, found {text[:SHOWN]!r}")
    return at


def _shown(raw: bytes | None) -> str:
    return "none" if raw is None else repr(raw[:SHOWN])


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(min(max(milliseconds, 0), _LATEST_MS) / 1000, UTC)


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)
