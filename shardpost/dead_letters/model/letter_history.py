"""The life of a letter: its steps, its newest step, and which letters are listed.

The table `dead_letters` has the steps of all records of dead-letters and parking-lot as rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from shardpost.dead_letters.model.letter_format import (
    ERROR,
    OPEN,
    ORIGIN_TOPIC,
    Letter,
    LetterState,
    attempt_of,
    header_text,
    name_of,
    parse_record,
)
from shardpost.dead_letters.model.letters import parking_key
from shardpost.dead_letters.model.retry_policy import due, fingerprint, jitter_of
from shardpost.dead_letters.model.transition_records import NAME, STATE
from shardpost.instants import instant_of
from shardpost.kafka.records import Record, header_bytes, utf8_text
from shardpost.values.retry_settings import RetryRules

STATES = [str(state) for state in LetterState if state is not LetterState.DROPPED]
# Letters resolved in this time are listed, too: `retries` still has their records.
RECENT = timedelta(days=7)
# The order of the states within one attempt.
_STAGES = {
    LetterState.WAITING: 0,
    LetterState.RETRIED: 1,
    LetterState.PARKED: 2,
    LetterState.REDRIVEN: 2,
    LetterState.DISCARDED: 2,
}

# {topic: its generation}: 0 is the first known; a recreated topic is the next.
Generations = Mapping[str, int]


@dataclass(frozen=True)
class Step:
    """One step, with the facts of the letter that its record has; others are None.

    `topic`, `partition` and `offset` are where the record is. Without an attempt it is a tombstone
    written by hand, perhaps of no letter at all.

    `generation` is that of the topic. `key` is the name of the record's key if it differs from the
    letter's. `delayed_from` and `jitter` belong to a waiting letter; the reader's rules decide when
    it is `due`.
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
    delayed_from: datetime | None = None
    jitter: float | None = None
    due: datetime | None = None
    origin_partition: int | None = None
    origin_offset: int | None = None
    origin_key: bytes | None = None
    size: int | None = None
    failed_at: datetime | None = None
    generation: int = 0
    key: str | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        """Its place in the order of the letter's life; one stage is in one partition."""
        return self.attempt or 0, _STAGES[self.state], self.offset

    @property
    def is_by_hand(self) -> bool:
        """Whether it is a tombstone that Shardpost has not written."""
        return self.attempt is None

    def removes(self, other: "Step") -> bool:
        """Tell whether this tombstone removes the other step's record from its topic."""
        place, others = ((s.topic, s.partition, s.generation) for s in (self, other))
        return other.is_in_topic and place == others and self.offset > other.offset

    @property
    def is_in_topic(self) -> bool:
        """Whether the letter is in the step's topic: waiting there, or parked."""
        return self.state in OPEN

    def with_facts_of(self, earlier: "Step") -> "Step":
        """Return this step, with facts that only an earlier one has."""
        return replace(
            self,
            origin_topic=self.origin_topic or earlier.origin_topic,
            error=self.error or earlier.error,
            fingerprint=self.fingerprint or earlier.fingerprint,
        )

    def by(self, rules: RetryRules) -> "Step":
        """Return this step with its due time, if it is waiting."""
        if self.delayed_from is None or self.jitter is None:
            return self
        retries = rules.of(self.origin_topic or "")
        return replace(self, due=due(retries, self.delayed_from, self.attempt or 0, self.jitter))

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


def newest_steps(steps: Iterable[Step], generations: Generations) -> dict[str, Step]:
    """Return the newest step of each letter by its id, for steps in any order.

    An id with only tombstones written by hand is not a letter. A letter waiting or parked in a
    deleted topic is lost.
    """
    current: list[Step] = []
    past: list[Step] = []
    by_hand: list[Step] = []
    for step in steps:
        if step.is_by_hand:
            by_hand.append(step)
        else:
            is_past = step.generation < generations.get(step.topic, 0)  # its topic was deleted
            (past if is_past else current).append(step)
    of_now = _newest(current, by_hand, lambda step: step.order)
    of_deleted = _newest(past, by_hand, lambda step: (step.generation, *step.order))
    names = of_now | of_deleted
    newest = {n: _of_both(of_now.get(n), of_deleted.get(n), generations) for n in names}
    return {name: step for name, step in newest.items() if step and later_name(step) not in names}


def _newest(
    steps: Sequence[Step], by_hand: Sequence[Step], place: Callable[[Step], tuple[int, ...]]
) -> dict[str, Step]:
    """Return the newest step of each letter by its id, after tombstones by hand.

    It has the facts of its newest failure. Of steps of one place the last one counts.
    """
    ordered = sorted(steps, key=place)
    newest = {step.id: step for step in ordered}
    failures = {step.id: step for step in ordered if step.error or step.origin_topic}
    for name, failure in failures.items():
        if failure is not newest[name]:
            newest[name] = newest[name].with_facts_of(failure)
    of_key: dict[str, list[Step]] = {}
    for last in newest.values():
        of_key.setdefault(last.key or last.id, []).append(last)
    for step in by_hand:
        for last in filter(step.removes, of_key.get(step.id, ())):
            gone = replace(step, id=last.id, key=last.key, attempt=last.attempt)
            newest[last.id] = gone.with_facts_of(last)
    return newest


def later_name(step: Step) -> str | None:
    """Return a waiting letter's name after its store got more partitions."""
    is_own = step.state is LetterState.WAITING and step.key is None
    return f"{step.id}~{step.partition}" if is_own else None


def _of_both(current: Step | None, past: Step | None, generations: Generations) -> Step | None:
    """Return the newest step of a letter, even with steps of deleted topics.

    If only one of both topics was recreated, the order of a letter's life still holds between the
    old topic and the other.
    """
    if past is None:
        return current
    if current is not None:
        is_of_new_topic = generations.get(current.topic, 0) > 0
        if is_of_new_topic or current.order >= past.order:
            return current.with_facts_of(past)
    return None if past.is_in_topic else past


def in_order(steps: Iterable[Step]) -> Sequence[Step]:
    """Return the steps of one letter in the order of its life; those by hand by their time.

    If a topic was recreated, all are ordered by time.
    """
    ordered = sorted(steps, key=lambda step: (step.is_by_hand, step.order, step.at))
    if len({step.generation for step in ordered}) > 1:
        return sorted(ordered, key=lambda step: step.at)
    life = [step for step in ordered if not step.is_by_hand]
    for step in ordered[len(life) :]:
        later = (n for n, other in enumerate(life) if other.at > step.at)
        life.insert(next(later, len(life)), step)
    return life


def step_of(record: Record, *, store_partitions: int | None) -> Step | None:
    """Return a record as a step; None for a tombstone that is not a step of its own.

    `partitions` is that number of the store, or None for the parking lot. The store's tombstone of
    a parked letter is not a step: the record in the parking lot is.
    """
    is_store = store_partitions is not None
    if record.value is None:
        return _tombstone_step(record, is_store=is_store)
    letter = parse_record(record)
    headers = dict(record.headers)
    error = utf8_text(headers.get(ERROR))
    name = key = name_of(record.key)
    if store_partitions is not None:
        own_key = parking_key(letter, record, store_partitions)
        name = key if own_key == record.key else name_of(own_key)
    origin = letter if isinstance(letter, Letter) else None
    waits = origin if is_store else None
    return Step(
        name,
        LetterState.WAITING if is_store else LetterState.PARKED,
        origin.attempt if origin else attempt_of(record.headers, require_id=False),
        instant_of(record.timestamp),
        *record.coordinates,
        origin_topic=utf8_text(headers.get(ORIGIN_TOPIC)),
        error=error,
        fingerprint=None if error is None else fingerprint(error),
        delayed_from=waits and waits.delayed_from,
        jitter=waits and jitter_of(waits.id, waits.attempt),
        origin_partition=origin.origin_partition if origin else None,
        origin_offset=origin.origin_offset if origin else None,
        origin_key=origin.origin_key if origin else None,
        size=len(record.value),
        failed_at=origin.failed_at if origin else None,
        key=None if key == name else key,
    )


def _tombstone_step(record: Record, *, is_store: bool) -> Step | None:
    headers, key, at = dict(record.headers), name_of(record.key), instant_of(record.timestamp)
    try:
        state = LetterState(header_text(headers.get(STATE)))
    except ValueError:  # it was written by hand
        return Step(key, LetterState.DISCARDED, None, at, *record.coordinates)
    if state is LetterState.DROPPED or (is_store and state is LetterState.PARKED):
        return None
    attempt = attempt_of(record.headers, require_id=False)
    name = name_of(header_bytes(headers.get(NAME)) or record.key)
    own_key = None if key == name else key
    return Step(name, state, attempt, at, *record.coordinates, key=own_key)


@dataclass(frozen=True)
class ListFilters:
    """Which letters are chosen; None chooses all, with only the recent resolved ones.

    `text` is in the id or the original key. No ids are not the same as all.
    """

    state: str | None = None
    origin: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    ids: frozenset[str] | None = None

    def closed_since(self, now: datetime) -> datetime | None:
        """Return the earliest resolution time of listed letters; None: any."""
        if self.state in OPEN:
            return now
        if self.since is None and self.until is None:
            return now - RECENT
        return self.since

    def choose(self, origin: str | None, error: str | None, at: datetime) -> bool:
        """Tell whether they choose a letter of that origin, error and time, whatever its state."""
        return (
            self.origin in (None, origin)
            and self.error in (None, error)
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )
