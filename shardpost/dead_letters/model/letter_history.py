"""The life of a letter: its steps from state to state, and which one is the newest.

The table `dead_letters` has the steps as rows; record_steps.py makes them of records.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from shardpost.dead_letters.model.letter_state import LetterState
from shardpost.kafka.coordinates import TopicPartition

# The order of the states within one attempt.
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
        """Its place in the order of the letter's life; one stage is in one partition."""
        return self.attempt or 0, _STAGES[self.state], self.offset

    @property
    def is_by_hand(self) -> bool:
        """Whether it is a tombstone that Shardpost has not written."""
        return self.attempt is None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that its record is in."""
        return TopicPartition(self.topic, self.partition)

    def removes(self, other: "Step") -> bool:
        """Tell whether this tombstone removes the other step's record from its topic."""
        is_stored = other.state in (LetterState.WAITING, LetterState.PARKED)
        is_same = self.topic_partition == other.topic_partition
        return is_stored and is_same and self.offset > other.offset

    def with_facts_of(self, earlier: "Step") -> "Step":
        """Return this step with what only an earlier one says of the letter."""
        return replace(
            self,
            origin_topic=self.origin_topic or earlier.origin_topic,
            error=self.error or earlier.error,
            fingerprint=self.fingerprint or earlier.fingerprint,
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


def newest_steps(steps: Iterable[Step]) -> dict[str, Step]:
    """Return the newest step of each letter by its id, in whatever order the steps come.

    An id of which there are only tombstones written by hand is no letter.
    """
    newest: dict[str, Step] = {}
    by_hand: list[Step] = []
    for step in steps:
        before = newest.get(step.id)
        if step.is_by_hand:
            by_hand.append(step)
        elif before is None:
            newest[step.id] = step
        elif step.order >= before.order:
            newest[step.id] = step.with_facts_of(before)
        else:
            newest[step.id] = before.with_facts_of(step)
    for step in by_hand:
        last = newest.get(step.id)
        if last is not None and step.removes(last):
            newest[step.id] = replace(step, attempt=last.attempt).with_facts_of(last)
    return newest


def in_order(steps: Iterable[Step]) -> Sequence[Step]:
    """Return the steps of one letter in the order of its life, those by hand by their time."""
    found = sorted(steps, key=lambda step: (step.is_by_hand, step.order, step.at))
    life = [step for step in found if not step.is_by_hand]
    for step in found[len(life) :]:
        later = (n for n, other in enumerate(life) if other.at > step.at)
        life.insert(next(later, len(life)), step)
    return life
