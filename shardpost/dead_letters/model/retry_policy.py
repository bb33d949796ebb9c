"""The retry policy: what a sweep does with one letter, from its attempt, its error and its age.

Exhausted, fatal and malformed letters, and those of unknown origin, are parked; others are retried
after their backoff. The backoff starts when the letter was appended to `dead-letters`, by the
broker's clock, since a consumer's clock may be slow; if the broker does not stamp records, at the
reported failure.

The fingerprint of an error, by which letters are counted, is the same for errors that differ only
in values: numbers, ids, what is quoted, and what comes after `, found`.
"""

import math
import re
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from shardpost.dead_letters.model.letter_format import MALFORMED, Letter, Malformed
from shardpost.values.retry_settings import RetryRules, RetrySettings

NO_CLASS = "error"
_LENGTH = 300
_CLASS = re.compile(r"(?:[A-Za-z0-9_$]+[.])*([A-Za-z0-9_$]+)(?::|\Z)")
# What was found, values in quotes, UUIDs, hexadecimal and other numbers; first what all of these
# begin with, since most characters are none of it.
_VARIABLE = re.compile(
    r"(?=[,\"'0-9a-fA-F])"
    r"(?:, found [\s\S]*|\"[^\"]*\"|'[^']*'|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|0x[0-9a-fA-F]+|[0-9]+)"
)


def due(retries: RetrySettings, delayed_from: datetime, attempt: int, fraction: float) -> datetime:
    """Return when a letter may be retried; the delay is in whole milliseconds, no less."""
    milliseconds = math.ceil(delay(retries, attempt, fraction) * 1000)
    try:
        return delayed_from + timedelta(milliseconds=milliseconds)
    except OverflowError:  # for a clock in the year 9999
        return datetime.max.replace(tzinfo=UTC)


def jitter_of(letter_id: str, attempt: int) -> float:
    """Return a letter's constant fraction of the configured jitter."""
    return crc32(f"{letter_id}/{attempt}".encode()) / 2**32


def delay(retries: RetrySettings, attempt: int, fraction: float) -> float:
    """Return the seconds between a failed attempt and the next."""
    try:
        delay_without_jitter = min(retries.cap, retries.first_delay * retries.factor**attempt)
    except OverflowError:
        delay_without_jitter = retries.cap
    return delay_without_jitter * (1 + retries.jitter * fraction)


class Outcome(IntEnum):
    """What a sweep does with a live letter."""

    WAIT = 0
    RETRY = 1
    PARK = 2
    DROP = 3  # a failure reported again after its resolution
    RESTORE = 4  # waiting, but before a record of its key that must not replace it
    HOLD = 5  # too large to be parked


class SelectedLetter(NamedTuple):
    """A letter that a sweep retries, parks, drops or restores now.

    `release_offset` is the offset up to which `dead-letters` has to be read before it is sent, so
    that letters of one original key keep the order of the origin. `resolved_attempt` is, for a
    dropped letter, the attempt that was resolved before; `stored_key` is its
    key, or the hash of a long one.
    """

    offset: int
    outcome: Outcome
    release_offset: int
    resolved_attempt: int | None
    stored_key: bytes


class RetryDecision(NamedTuple):
    """When a letter is due, or the reason why it is parked instead."""

    due: datetime | None = None
    reason: str | None = None


def decide(letter: Letter | Malformed, rules: RetryRules) -> RetryDecision:
    """Decide when a letter is retried, or that it is parked; a sweep retries it when it is due."""
    if isinstance(letter, Malformed):
        return park(MALFORMED + letter.reason)
    retries = rules.of(letter.origin_topic)
    if letter.origin_topic in rules.retry_only_topics:
        return park(unknown_origin(letter))
    if letter.attempt >= retries.attempts:
        return park(f"exhausted: attempt {letter.attempt} of {retries.attempts} failed")
    if rules.fatal and _is_fatal(letter.error, rules):
        return park(f"fatal: {error_class(letter.error)} is not retried")
    fraction = jitter_of(letter.id, letter.attempt)
    return RetryDecision(due(retries, letter.delayed_from, letter.attempt, fraction))


def park(reason: str) -> RetryDecision:
    """Return the decision to park a letter."""
    return RetryDecision(reason=reason)


def unknown_origin(letter: Letter) -> str:
    """Return why a letter from a retry topic is not retried: its original topic is unknown."""
    return (
        "unknown origin: expected the topic of the original record, found the retry topic"
        f" {letter.origin_topic}"
    )


def _is_fatal(error: str, rules: RetryRules) -> bool:
    """Compare the class with and without its module; first see whether a name is there at all."""
    for name in rules.fatal:
        if name in error or name == NO_CLASS:
            return error_class(error) in rules.fatal or error.partition(":")[0] in rules.fatal
    return False


def error_class(error: str) -> str:
    """Return the class that the error's text begins with, without its module; or `error`."""
    match = _CLASS.match(_first_line(error))
    return match[1] if match else NO_CLASS


@lru_cache(maxsize=1_000)
def fingerprint(error: str) -> str:
    """Return `Class-` and eight hexadecimal digits of the message without what varies in it."""
    line = _first_line(error)
    return f"{error_class(line)}-{crc32(_VARIABLE.sub('#', line).encode(errors='replace')):08x}"


def _first_line(error: str) -> str:
    return error.split("\n", 1)[0][:_LENGTH]
