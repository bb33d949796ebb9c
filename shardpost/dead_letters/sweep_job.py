"""The Spark job `sweep_dead_letters`, as commands and DAGs submit it, and its result.

A result has counts of letters, gaps of the intake, and what needs a person.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from shardpost.dead_letters.model.letter_format import ORIGIN_TOPIC, header_text
from shardpost.dead_letters.model.retry_policy import Outcome, reported
from shardpost.dead_letters.model.transition_records import PARKED_ERROR
from shardpost.errors import DONE, one_line
from shardpost.installation import Installation
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.records import Outgoing
from shardpost.spark.job import JobResult, JobSpec, request_of

log = logging.getLogger(__name__)

GONE = "deleted unread by Kafka: sweep more often, or keep that topic for longer"
RECREATED = (
    "deleted unread, if there were any: the topic was deleted and recreated, and the new one is"
    " read from its start"
)
CUT_OFF = (
    "read and now missing: the topic was truncated or recreated, so it is read again from its start"
)
TOO_LARGE = "too large for a letter: it is only in that topic"
# Groups of parked letters, gaps and partitions that a result names, each; the counts are of all.
NAMED = 100
NOT_COUNTED = (
    "its sweep was lost with a Spark executor and done again: what the first one retried or parked"
    " is not counted here: `shardpost letters list` has it"
)
SEE_PARKED = "`shardpost letters list --state parked` lists them"


@dataclass(frozen=True)
class Gap:
    """Offsets of a foreign partition that were not taken in, and why; None: its end is unknown."""

    partition: TopicPartition
    first: int
    last: int | None
    reason: str

    def __str__(self) -> str:
        until = "on" if self.last is None else f"to {self.last}"
        return f"{self.partition}: offsets {self.first} {until}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Return the form of the gaps of `letters sweep --json`; both offsets are of the gap."""
        topic, partition = self.partition
        place = {"topic": topic, "partition": partition, "from": self.first, "to": self.last}
        return {**place, "reason": self.reason}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> "Gap":
        """Return the gap of such a form."""
        partition = TopicPartition(form["topic"], form["partition"])
        return cls(partition, form["from"], form["to"], form["reason"])


def next_offset(
    partition: TopicPartition,
    taken: tuple[int, str | None] | None,
    topic_id: str | None,
    marks: tuple[int, int],
) -> tuple[int, list[Gap]]:
    """Return the offset to read next, and what is missing.

    `taken` is the offset up to which the partition was taken in, and the id of its topic, None if
    that is not known. `marks` are low watermark and last stable offset of the current topic. Where
    a topic was recreated, all that the new one has is unread.
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


class ParkedGroup(NamedTuple):
    """Parked letters of one origin, with one fingerprint of their error."""

    origin: str
    error: str


@dataclass
class Intake:
    """What was taken in from foreign topics: how many, what is missing, what could not be read."""

    taken_in: int = 0
    gaps: tuple[Gap, ...] = ()
    not_read: tuple[str, ...] = ()


def parked_group(parked: Outgoing) -> ParkedGroup:
    """Return the group of a record of the parking lot; one that is malformed may have no origin."""
    headers = dict(parked.headers)
    names = (ORIGIN_TOPIC, PARKED_ERROR)
    return ParkedGroup(*(header_text(headers.get(name)) for name in names))


def as_json(
    counts: Counter[Outcome],
    parked: Counter[ParkedGroup],
    held_errors: Iterable[str],
    intake: Intake,
    swept_again: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the form of `letters sweep --json`.

    `swept_again` are the partitions whose first sweep was lost, and is not counted.
    """
    return {
        **reported(counts),
        "taken_in": intake.taken_in,
        "held_errors": sorted(held_errors),
        "parked_errors": [
            {"origin": group.origin or None, "error": group.error, "letters": count}
            for group, count in parked.most_common(NAMED)
        ],
        "gaps": [gap.as_json() for gap in intake.gaps[:NAMED]],
        "not_read": [*intake.not_read[:NAMED]],
        "swept_again": [*swept_again],
    }


def for_a_person(result: Mapping[str, Any], *, with_floods: bool = True) -> list[str]:
    """Return a line for each thing in a sweep's result that needs a person; none if all is well.

    `with_floods`: also that letters are held since too many have one error, which each sweep finds
    again, and of which the watch tells people when it begins and ends.
    """
    lines = []
    if result["held"] and (with_floods or not result["held_errors"]):
        errors = ", ".join(result["held_errors"])
        why = f"too many due letters of one error: {errors}" if errors else "the log says why"
        lines.append(f"held: {result['held']}, {why}")
    lines += [str(Gap.from_json(gap)) for gap in result["gaps"]]
    lines += [f"not read: {reason}" for reason in result["not_read"]]
    lines += [f"{partition}: {NOT_COUNTED}" for partition in result["swept_again"]]
    return [*parked_lines(result), *map(one_line, lines)]


def parked_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line for each origin and error of which letters were parked."""
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
    from shardpost.kafka.coordinates import total_size

    return total_size(current_progress(installation).unread)


def _if_nothing_is_due(installation: Installation, request: str) -> JobResult | None:
    """Return the result of a sweep that has nothing to do; None if it may have something to do.

    LockedError beside another sweep, NotOwnerError in a home of others.
    """
    from shardpost.dead_letters.letter_topics import current_progress
    from shardpost.dead_letters.stored_letters import known_to_wait
    from shardpost.topics import guards

    if installation.settings.foreign_dead_letters:  # only a sweep checks whether they have anything
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
    log.info("no dead letter is due, %d wait", waiting)
    return DONE, as_json(Counter({Outcome.WAIT: waiting}), Counter(), (), Intake())


SWEEP_DEAD_LETTERS = JobSpec(
    "sweep_dead_letters", _unread_records, without_spark=_if_nothing_is_due
)
