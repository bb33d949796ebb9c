"""What a person decides about parked letters: which, to do what, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shardpost.dead_letters.model.letter_names import name_of
from shardpost.dead_letters.model.letters import HEADERS_BYTES, ORIGIN_TOPIC, Malformed
from shardpost.dead_letters.model.retry_policy import no_origin
from shardpost.dead_letters.model.transitions import (
    PARKED_ERROR,
    as_text,
    parked_count,
    read_parked,
)
from shardpost.decisions.decision import Kind
from shardpost.kafka.records import Record
from shardpost.retry_settings import RetryRules
from shardpost.topics.declared import LETTER_BYTES, STORED_BYTES

# Parked so often by one error, a letter is not sent back without being told again.
TOO_OFTEN = 2
# So large may a value be that a letter with all its headers still fits into the store.
VALUE_BYTES = STORED_BYTES - LETTER_BYTES - HEADERS_BYTES
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Selection:
    """Which parked letters are meant; what is not given chooses all."""

    ids: frozenset[str] = frozenset()
    origin: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def takes(self, record: Record) -> bool:
        """Tell whether a record of the parking lot is meant; one named by its id always is."""
        return name_of(record.key) in self.ids if self.ids else self.lets_through(record)

    def lets_through(self, record: Record) -> bool:
        """Tell whether a record is as all but the ids say; its time is when it was parked."""
        headers = dict(record.headers)
        at = _EPOCH + timedelta(milliseconds=record.timestamp)
        return (
            self.origin in (None, origin_of(headers))
            and self.error in (None, error_of(headers))
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )


@dataclass(frozen=True)
class RedriveRequest:
    """Send back or discard; `value` replaces that of the letter, `again` one parked too often."""

    choice: Selection
    is_redrive: bool
    who: str
    why: str
    now: datetime
    again: bool = False
    value: bytes | None = None

    @property
    def kind(self) -> Kind:
        """What the record in `decisions` says."""
        if not self.is_redrive:
            return Kind.DISCARDED
        return Kind.REDRIVEN if self.value is None else Kind.EDITED

    def refusal(self, record: Record, rules: RetryRules) -> str | None:
        """Return why a parked letter is not dealt with so; None if it is."""
        if not self.choice.lets_through(record):
            return "parked, but --origin, --error, --since or --until leave it out"
        if not self.is_redrive:
            return None
        letter = read_parked(record)
        if isinstance(letter, Malformed):
            return f"malformed, it can only be discarded: {letter.reason}"
        if letter.origin_topic in rules.no_origins:
            return f"{no_origin(letter)}; it can only be discarded"
        count = parked_count(dict(record.headers))
        if count >= TOO_OFTEN and not self.again:
            return f"parked {count} times by the same error: mend that first, or say --again"
        return None


def origin_of(headers: Mapping[str, str | bytes | None]) -> str:
    """Return the origin topic as the headers say it."""
    return as_text(headers.get(ORIGIN_TOPIC))


def error_of(headers: Mapping[str, str | bytes | None]) -> str:
    """Return the fingerprint of the error by which it was parked."""
    return as_text(headers.get(PARKED_ERROR))
