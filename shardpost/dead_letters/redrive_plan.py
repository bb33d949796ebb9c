"""What a redrive request would do now, and carrying it out, as commands and the page do.

A plan reads the parking lot and changes nothing; it says up to where it has looked, and what came
later is left alone when it is carried out. That is under a lock of the parking lot, one at a time;
the same plan, carried out again, does the rest, since what has moved is not parked any more.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from shardpost.dead_letters.letter_topics import routes_of
from shardpost.dead_letters.model.letter_history import Step
from shardpost.dead_letters.model.redrive_request import RedriveRequest, Shown
from shardpost.dead_letters.redrive import (
    NOT_SHOWN,
    ParkedLetter,
    Redrive,
    RedriveResult,
    carry_out_redrive,
    selected_letters,
)
from shardpost.errors import UsageError
from shardpost.installation import Installation
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import watermarks
from shardpost.kafka.reading import read_one
from shardpost.kafka.topic_metadata import topic_ids
from shardpost.locks.locks import exclusive
from shardpost.topics.guards import require_stores

REFUSED_SHOWN = 100


def lot_size(redrive: Redrive) -> int:
    """Return how many offsets of the parking lot have to be read, some of which may be empty."""
    topic = redrive.routes.parking_lot
    counts = {topic: redrive.routes.partitions[topic]}
    marks = watermarks(redrive.installation.kafka, counts, committed=False)[topic]
    wanted = {partition.partition for partition in redrive.partitions}
    return sum(end - low for number, (low, end) in marks.items() if number in wanted)


def prepared(
    installation: Installation,
    request: RedriveRequest,
    canary: int | None = None,
    rate: float | None = None,
    up_to: str | None = None,
) -> Redrive:
    """Return the redrive of a request: of what is parked now, or what a plan has shown.

    ShardpostError if a store has lost something; UsageError if the plan is of another topic.
    """
    require_stores(installation, "dead-letters", "parking-lot")
    routes = routes_of(installation)
    topic = routes.parking_lot
    marks = watermarks(installation.kafka, {topic: routes.partitions[topic]}, committed=False)[
        topic
    ]
    topic_id = topic_ids(installation.kafka, [topic]).get(topic, "")
    shown = Shown(topic_id, {at: end for at, (_, end) in marks.items()})
    if up_to is not None and (shown := Shown.parse(up_to)).topic_id != topic_id:
        why = f"expected topic id {shown.topic_id!r}, found {topic_id!r}: it was created since"
        raise UsageError(f"{topic}: {why}: make a new plan")
    return Redrive(installation, routes, request, shown, canary, rate)


@dataclass
class RedrivePlan:
    """The selected letters by (origin, fingerprint): how many, and a sample; and the refused ones.

    Of a canary these are its letters, and what is `shown` ends with the last of them. `not_shown`
    counts letters that an earlier plan did not show; not of a canary, which leaves more.
    """

    shown: Shown
    not_shown: int = 0
    groups: Counter[tuple[str, str]] = field(default_factory=Counter)
    samples: dict[tuple[str, str], str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    refused_count: int = 0

    @property
    def count(self) -> int:
        """How many letters would be redriven or discarded."""
        return self.groups.total()

    def refuse(self, letter_id: str, reason: str) -> None:
        """Count a refused letter; the first of them are kept with their reasons."""
        self.refused_count += 1
        if len(self.refused) < REFUSED_SHOWN:
            self.refused[letter_id] = reason

    def as_json(self, kind: str, done: int | None = None) -> dict[str, Any]:
        """Return the form of `letters redrive --json`; `done` is None of a plan alone."""
        groups = [
            {"origin": origin, "error": error, "letters": count, "such_as": sample}
            for (origin, error), count in self.groups.most_common()
            for sample in [self.samples[origin, error]]
        ]
        return {
            "decision": kind,
            "up_to": str(self.shown),
            "letters": self.count,
            "not_shown": self.not_shown,
            "refused": self.refused_count,
            "done": done,
            "groups": groups,
            "refusals": self.refusals,
        }

    @property
    def refusals(self) -> list[dict[str, str]]:
        """The first letters that are refused, each with the reason."""
        return [{"letter_id": name, "reason": why} for name, why in self.refused.items()]


def plan_redrive(redrive: Redrive) -> RedrivePlan:
    """Return what the redrive would do now; an id that is not parked is refused."""
    parked = (selected_letters(redrive, partition) for partition in redrive.partitions)
    return _planned(redrive, chain.from_iterable(parked))


def plan_of_ids(redrive: Redrive, parked: Iterable[Step]) -> RedrivePlan:
    """Return the same of letters that are named by their ids, and of which these are parked.

    It reads their records only, where a plan reads the partitions to their ends.
    """

    def letters() -> Iterator[ParkedLetter]:
        for step in sorted(parked, key=lambda step: (step.partition, step.offset)):
            place = TopicPartition(step.topic, step.partition)
            record = read_one(redrive.installation.kafka, place, step.offset)
            if record is not None and record.value is not None:
                yield redrive.letter(record)

    return _planned(redrive, letters())


def _planned(redrive: Redrive, letters: Iterable[ParkedLetter]) -> RedrivePlan:
    plan = RedrivePlan(redrive.shown)
    ids = redrive.request.selection.ids
    missing, left = set(ids or ()), redrive.canary
    for letter in letters:
        missing.discard(letter.id)
        if letter.refusal == NOT_SHOWN and ids is None:
            plan.not_shown += redrive.canary is None
        elif letter.refusal is not None:
            plan.refuse(letter.id, letter.refusal)
        elif left != 0:
            group = letter.origin, letter.error
            plan.groups[group] += 1
            plan.samples.setdefault(group, letter.id)
            left = left and left - 1
            if left == 0:
                plan.shown = redrive.shown.before(letter.partition, letter.offset)
    for letter_id in sorted(missing):
        show = f"`shardpost letters show {letter_id}` prints its life, if it has one"
        plan.refuse(letter_id, f"expected a parked letter, found none; {show}")
    return plan


def carry_out(redrive: Redrive, plan: RedrivePlan, result: RedriveResult) -> None:
    """Do what was planned, and add to the plan what was refused meanwhile.

    LockedError beside another redrive or discard. `result` says how far it has come, also where
    this is interrupted.
    """
    with exclusive(redrive.installation.files, "parking_lot", "`letters redrive` or `discard`"):
        carry_out_redrive(replace(redrive, shown=plan.shown), result)
    for letter_id, reason in result.refused.items():
        plan.refuse(letter_id, reason)
