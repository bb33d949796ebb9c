"""The Spark job `sweep_dead_letters`, as commands and DAGs submit it, and its result."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from shardpost.dead_letters.model.retry_policy import Outcome
from shardpost.dead_letters.model.transition_records import ParkedGroup
from shardpost.errors import DONE, one_line
from shardpost.installation import Installation
from shardpost.kafka.records import TopicPartition, total_size
from shardpost.spark.job import JobResult, JobSpec, request_of

log = logging.getLogger(__name__)

GONE = "deleted by Kafka before they were read: sweep more often, or increase the topic's retention"
RECREATED = (
    "unread records may be lost: the topic was deleted and recreated, and is read from its start"
)
CUT_OFF = (
    "read and now missing: the topic was truncated or recreated, so it is read again from its start"
)
TOO_LARGE = "too large for a letter: it remains only in that topic"
# The most groups, gaps and partitions that a result names; counts include all.
NAMED = 100
NOT_COUNTED = (
    "its sweep was lost with a Spark executor and repeated: letters that the first attempt"
    " retried or parked are not counted here; `shardpost letters list` has them"
)
SEE_PARKED = "`shardpost letters list --state parked` lists them"


@dataclass(frozen=True)
class Gap:
    """Offsets of a foreign partition that were not taken in, and why; None: end unknown."""

    partition: TopicPartition
    first: int
    last: int | None
    reason: str

    def __str__(self) -> str:
        until = "on" if self.last is None else f"to {self.last}"
        return f"{self.partition}: offsets {self.first} {until}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Return the gap's form in `letters sweep --json`; both offsets are inclusive."""
        topic, partition = self.partition
        place = {"topic": topic, "partition": partition, "from": self.first, "to": self.last}
        return {**place, "reason": self.reason}


def next_offset(
    partition: TopicPartition,
    taken: tuple[int, str | None] | None,
    topic_id: str | None,
    marks: tuple[int, int],
) -> tuple[int, list[Gap]]:
    """Return the next offset to read, and the gap.

    `taken` is the offset up to which the partition was taken in, and the id of its topic, or None.
    `marks` are low watermark and last stable offset of the current topic. A recreated topic is
    completely unread.
    """
    low, end = marks
    if taken is None:
        return low, []
    offset, taken_of = taken
    if taken_of != topic_id and None not in (taken_of, topic_id):
        lost = [Gap(partition, offset, None, RECREATED)]
        if low > 0:
            lost.append(Gap(partition, 0, low - 1, GONE))
        return low, lost
    if offset > end:
        return low, [Gap(partition, end, offset - 1, CUT_OFF)]
    if offset < low:
        return low, [Gap(partition, offset, low - 1, GONE)]
    return offset, []


@dataclass
class Intake:
    """The result of the intake: number of letters, gaps, and unreadable partitions."""

    taken_in: int = 0
    gaps: tuple[Gap, ...] = ()
    not_read: tuple[str, ...] = ()


def as_json(
    counts: Counter[Outcome],
    parked: Counter[ParkedGroup],
    intake: Intake,
    swept_again: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the form of `letters sweep --json`.

    `swept_again` are the partitions whose first sweep was lost and is not counted.
    """
    return {
        "retried": counts[Outcome.RETRY],
        "parked": counts[Outcome.PARK],
        "dropped": counts[Outcome.DROP],
        "waiting": counts[Outcome.WAIT] + counts[Outcome.RESTORE],
        "held": counts[Outcome.HOLD],
        "taken_in": intake.taken_in,
        "parked_errors": [
            {"origin": group.origin or None, "error": group.error, "letters": count}
            for group, count in parked.most_common(NAMED)
        ],
        "gaps": [gap.as_json() for gap in intake.gaps[:NAMED]],
        "not_read": [*intake.not_read[:NAMED]],
        "swept_again": [*swept_again],
    }


def for_a_person(result: Mapping[str, Any]) -> list[str]:
    """Return a line for each thing in a sweep's result that needs a person."""
    lines = []
    if result["held"]:
        lines.append(f"held: {result['held']}, too large for the parking lot: see the log")
    for gap in result["gaps"]:
        place = TopicPartition(gap["topic"], gap["partition"])
        lines.append(str(Gap(place, gap["from"], gap["to"], gap["reason"])))
    lines += [f"not read: {reason}" for reason in result["not_read"]]
    lines += [f"{partition}: {NOT_COUNTED}" for partition in result["swept_again"]]
    return [*parked_lines(result), *map(one_line, lines)]


def parked_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line for each origin and error with parked letters."""
    return [
        one_line(
            f"parked: {group['letters']} of {group['origin'] or 'no known origin'},"
            f" {group['error']}: {SEE_PARKED}"
        )
        for group in result["parked_errors"]
    ]


@dataclass(frozen=True)
class SweepRequest:
    """One sweep, as of a time."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))


def _unread_records(installation: Installation) -> int:
    from shardpost.dead_letters.letter_topics import current_progress

    return total_size(current_progress(installation).unread)


def _if_nothing_is_due(installation: Installation, request: str) -> JobResult | None:
    """Return the result of a sweep without work; None if there may be work.

    Raises LockedError beside another sweep, NotOwnerError if another home owns the topics.
    """
    from shardpost.dead_letters.letter_topics import current_progress
    from shardpost.dead_letters.stored_letters import known_to_wait
    from shardpost.topics import guards

    if installation.settings.foreign_dead_letters:  # only a sweep checks these for new letters
        return None
    with guards.run(installation, SWEEP_DEAD_LETTERS.name):
        progress = current_progress(installation)
        if progress.transactions:
            return None
        count = progress.partitions[progress.store]
        now = request_of(SweepRequest, request).now
        waiting = known_to_wait(installation, progress.store, count, now)
    if waiting is None:
        return None
    log.info("no dead letter is due, %d are waiting", waiting)
    counts = as_json(Counter({Outcome.WAIT: waiting}), Counter(), Intake())
    return DONE, counts | {"end_offsets": progress.end_offsets}


SWEEP_DEAD_LETTERS = JobSpec(
    "sweep_dead_letters", _unread_records, without_spark=_if_nothing_is_due
)
