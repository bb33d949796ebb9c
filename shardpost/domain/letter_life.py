"""The life of a letter: the steps that records of dead-letters and parking-lot tell.

The table `dead_letters` has them as rows; spark_jobs/letter_rows.py reads the same from records in
the JVM, and a test holds one against the other.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from shardpost.domain import letters
from shardpost.domain.backoff import Rules
from shardpost.domain.dealing import STATE, State, as_text
from shardpost.domain.fingerprints import fingerprint
from shardpost.domain.letters import Letter, attempt_of
from shardpost.domain.records import Record

# Of one attempt: it waits, it is dealt with, a person decides about what was parked.
_STAGES = {
    State.WAITING: 0,
    State.RETRIED: 1,
    State.PARKED: 1,
    State.REDRIVEN: 2,
    State.DISCARDED: 2,
}


@dataclass(frozen=True)
class Step:
    """One step, and what its record says of the letter; None where it does not say it."""

    id: str
    state: State
    attempt: int
    at: datetime
    origin_topic: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    due: datetime | None = None
    origin_partition: int | None = None
    origin_offset: int | None = None
    origin_key: bytes | None = None
    size: int | None = None
    failed_at: datetime | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Where in the letter's life it stands."""
        return self.attempt, _STAGES[self.state]

    def after(self, before: "Step") -> "Step":
        """Return this step with what only an earlier one says of the letter."""
        return replace(
            self,
            origin_topic=self.origin_topic or before.origin_topic,
            error=self.error or before.error,
            fingerprint=self.fingerprint or before.fingerprint,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the contract's form of `letters list --json`."""
        return {
            "letter_id": self.id,
            "state": str(self.state),
            "origin": self.origin_topic,
            "attempt": self.attempt,
            "error": self.error,
            "due": self.due.isoformat() if self.due else None,
        }


def fold(steps: Iterable[Step], known: Iterable[Step] = ()) -> dict[str, Step]:
    """Return where each letter stands, after what is known; in whatever order the steps come."""
    last = {step.id: step for step in known}
    for step in steps:
        before = last.get(step.id)
        if before is None:
            last[step.id] = step
        elif step.order >= before.order:
            last[step.id] = step.after(before)
        else:
            last[step.id] = before.after(step)
    return last


def step_of(record: Record, rules: Rules, *, is_store: bool) -> Step | None:
    """Return the step that a record tells; None for a tombstone that tells none of its own.

    A letter that was parked left the store by a tombstone too: its step is that of the parking lot.
    """
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=record.timestamp)
    name, attempt = as_text(record.key), attempt_of(record.headers, even_alone=True)
    headers = dict(record.headers)
    if record.value is None:
        state = _told(as_text(headers.get(STATE)))
        is_own = state is not State.DROPPED and not (is_store and state is State.PARKED)
        return Step(name, state, attempt, at) if is_own else None
    state = State.WAITING if is_store else State.PARKED
    error = _valid(headers.get(letters.ERROR))
    return Step(
        *(name, state, attempt, at),
        origin_topic=_valid(headers.get(letters.ORIGIN_TOPIC)),
        error=error,
        fingerprint=None if error is None else fingerprint(error),
        size=len(record.value),
        **_of_letter(record, rules, is_waiting=is_store),
    )


def _of_letter(record: Record, rules: Rules, *, is_waiting: bool) -> dict[str, Any]:
    """Return what only a letter that is well-formed says."""
    letter = letters.parse(record.key, record.headers, record.timestamp)
    if not isinstance(letter, Letter):
        return {}
    return {
        "origin_partition": letter.origin_partition,
        "origin_offset": letter.origin_offset,
        "origin_key": letter.origin_key,
        "failed_at": letter.failed_at,
        "due": rules.backoff(letter.origin_topic).due(letter) if is_waiting else None,
    }


def _valid(raw: str | bytes | None) -> str | None:
    """Return a header as text; None where it is no UTF-8."""
    with suppress(UnicodeDecodeError):
        return raw.decode() if isinstance(raw, bytes) else raw
    return None


def _told(text: str) -> State:
    """Return the state of a tombstone; one that says none was written by hand."""
    with suppress(ValueError):
        return State(text)
    return State.DISCARDED
