"""The life of a letter: the steps that records of dead-letters and parking-lot tell.

The table `dead_letters` has them as rows; dead_letters/spark/letter_rows.py reads the same from records in
the JVM, and a test holds one against the other.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from shardpost.dead_letters.model import letters
from shardpost.dead_letters.model.backoff import due
from shardpost.dead_letters.model.fingerprints import fingerprint
from shardpost.dead_letters.model.letter_names import name_of
from shardpost.dead_letters.model.letters import Letter, attempt_of
from shardpost.dead_letters.model.transitions import STATE, LetterState, as_text
from shardpost.kafka.records import Record
from shardpost.retry_settings import RetryRules

# Of one attempt: it waits, it is retried, or is in the parking lot and what a person makes of it.
_STAGES = {
    LetterState.WAITING: 0,
    LetterState.RETRIED: 1,
    LetterState.PARKED: 2,
    LetterState.REDRIVEN: 2,
    LetterState.DISCARDED: 2,
}


@dataclass(frozen=True)
class Step:
    """One step, and what its record says of the letter; None where it does not say it.

    `topic`, `partition` and `offset` are where the record is. Without an attempt it is a tombstone
    that was written by hand, which may be of no letter at all.
    """

    id: str
    state: LetterState
    attempt: int | None
    at: datetime
    topic: str
    partition: int
    offset: int
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
    def order(self) -> tuple[int, int, int]:
        """Where in the letter's life it stands; of one stage all are in one partition."""
        return self.attempt or 0, _STAGES[self.state], self.offset

    @property
    def is_by_hand(self) -> bool:
        """Whether it is a tombstone that Shardpost has not written."""
        return self.attempt is None

    def takes_out(self, other: "Step") -> bool:
        """Tell whether this tombstone takes that record out of its topic."""
        here, there = (self.topic, self.partition), (other.topic, other.partition)
        is_there = other.state in (LetterState.WAITING, LetterState.PARKED)
        return is_there and here == there and self.offset > other.offset

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


def fold(steps: Iterable[Step]) -> dict[str, Step]:
    """Return where each letter stands, in whatever order the steps come.

    What only tombstones by hand speak of is no letter.
    """
    last: dict[str, Step] = {}
    by_hand: list[Step] = []
    for step in steps:
        before = last.get(step.id)
        if step.is_by_hand:
            by_hand.append(step)
        elif before is None:
            last[step.id] = step
        elif step.order >= before.order:
            last[step.id] = step.after(before)
        else:
            last[step.id] = before.after(step)
    for step in by_hand:
        if step.id in last and step.takes_out(last[step.id]):
            last[step.id] = replace(step, attempt=last[step.id].attempt).after(last[step.id])
    return last


def in_order(steps: Iterable[Step]) -> Sequence[Step]:
    """Return the steps of one letter in the order of its life, those by hand by their time."""
    found = sorted(steps, key=lambda step: (step.is_by_hand, step.order, step.at))
    life = [step for step in found if not step.is_by_hand]
    for step in found[len(life) :]:
        later = (n for n, other in enumerate(life) if other.at > step.at)
        life.insert(next(later, len(life)), step)
    return life


def step_of(record: Record, rules: RetryRules, *, is_store: bool) -> Step | None:
    """Return the step that a record tells; None for a tombstone that tells none of its own.

    A letter that was parked left the store by a tombstone too: its step is that of the parking lot.
    """
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=record.timestamp)
    name, attempt = name_of(record.key), attempt_of(record.headers, even_alone=True)
    headers = dict(record.headers)
    place = record.topic, record.partition, record.offset
    if record.value is None:
        told = _told(as_text(headers.get(STATE)))
        if told is None:
            return Step(name, LetterState.DISCARDED, None, at, *place)
        is_own = told is not LetterState.DROPPED and not (is_store and told is LetterState.PARKED)
        return Step(name, told, attempt, at, *place) if is_own else None
    state = LetterState.WAITING if is_store else LetterState.PARKED
    error = _valid(headers.get(letters.ERROR))
    return Step(
        *(name, state, attempt, at, *place),
        origin_topic=_valid(headers.get(letters.ORIGIN_TOPIC)),
        error=error,
        fingerprint=None if error is None else fingerprint(error),
        size=len(record.value),
        **_of_letter(record, rules, is_waiting=is_store),
    )


def _of_letter(record: Record, rules: RetryRules, *, is_waiting: bool) -> dict[str, Any]:
    """Return what only a letter that is well-formed says."""
    letter = letters.parse(record.key, record.headers, record.timestamp)
    if not isinstance(letter, Letter):
        return {}
    return {
        "origin_partition": letter.origin_partition,
        "origin_offset": letter.origin_offset,
        "origin_key": letter.origin_key,
        "failed_at": letter.failed_at,
        "due": due(rules.of(letter.origin_topic), letter) if is_waiting else None,
    }


def _valid(raw: str | bytes | None) -> str | None:
    """Return a header as text; None where it is no UTF-8."""
    with suppress(UnicodeDecodeError):
        return raw.decode() if isinstance(raw, bytes) else raw
    return None


def _told(text: str) -> LetterState | None:
    """Return the state of a tombstone; one that says none was written by hand."""
    with suppress(ValueError):
        return LetterState(text)
    return None
