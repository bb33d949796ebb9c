"""The plan of a redrive request and its execution, for commands and the page.

A plan reads the parking lot, changes nothing, and records up to where it read; its execution
ignores later letters. Executions run one at a time under a lock of the parking lot; repeated, a
plan does the rest, since moved letters are no longer parked.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from shardpost.dead_letters.letter_details import why_not_parked
from shardpost.dead_letters.letter_topics import routes_of
from shardpost.dead_letters.model.letter_history import ListFilters, Step
from shardpost.dead_letters.model.redrive_request import RedriveRequest, Shown
from shardpost.dead_letters.redrive import (
    NOT_SHOWN,
    ParkedLetter,
    Redrive,
    RedriveResult,
    carry_out_redrive,
    selected_letters,
)
from shardpost.errors import UsageError, shown
from shardpost.installation import Installation
from shardpost.kafka.offsets import watermarks, watermarks_of
from shardpost.kafka.reading import read_one
from shardpost.kafka.records import TopicPartition
from shardpost.kafka.topic_metadata import topic_ids
from shardpost.locks.locks import exclusive
from shardpost.topics.guards import require_stores
from shardpost.wording import meant, some_of

REFUSED_SHOWN = 100


def lot_size(redrive: Redrive) -> int:
    """Return the number of offsets of the parking lot to read, some possibly empty."""
    marks = watermarks_of(redrive.installation.kafka, redrive.partitions, committed=False)
    return sum(end - low for low, end in marks.values())


def prepared(
    installation: Installation,
    request: RedriveRequest,
    canary: int | None = None,
    rate: float | None = None,
    up_to: str | None = None,
) -> Redrive:
    """Return the redrive of a request, for the letters parked now or shown by a plan.

    Raises ShardpostError if a store lost records, UsageError if the plan is for another topic, or
    the origin is no topic.
    """
    require_stores(installation, "dead-letters", "parking-lot")
    routes = routes_of(installation)
    topic = routes.parking_lot
    counts = {topic: routes.partitions[topic]}
    marks = watermarks(installation.kafka, counts, committed=False)[topic]
    topic_id = topic_ids(installation.kafka, [topic]).get(topic, "")
    shown = Shown(topic_id, {at: end for at, (_, end) in marks.items()})
    if up_to is not None and (shown := Shown.parse(up_to)).topic_id != topic_id:
        why = f"expected topic id {shown.topic_id!r}, found {topic_id!r}: the topic was recreated"
        raise UsageError(f"{topic}: {why}: make a new plan")
    redrive = Redrive(installation, routes, request, shown, canary, rate)
    _require_origin(redrive)
    return redrive


def _require_origin(redrive: Redrive) -> None:
    """Refuse an origin that is neither a topic nor that of a parked letter."""
    origin = redrive.request.filters.origin
    if origin is None or origin in redrive.installation.kafka.metadata().topics:
        return
    every = replace(redrive, request=replace(redrive.request, filters=ListFilters()))
    parked = {one.origin for at in every.partitions for one in selected_letters(every, at)}
    if origin not in parked:
        known = some_of(sorted(parked)) or "no topic"
        why = f"no topic has this name{meant(origin, parked) or '.'} Letters of {known} are parked"
        raise UsageError(f"origin {shown(origin)}: {why}")


@dataclass
class RedrivePlan:
    """The selected letters by (origin, fingerprint), with counts and samples, and the refused ones.

    For a canary, `shown` ends with its last letter. `not_shown` counts letters missing in an
    earlier plan, except for a canary, which leaves more.
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
        """Return the form of `letters redrive --json`; `done` is None for a plan alone."""
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
    """Return the plan of a redrive as of now; an id that is not parked is refused."""
    parked = (selected_letters(redrive, partition) for partition in redrive.partitions)
    return _planned(redrive, chain.from_iterable(parked))


def plan_of_ids(redrive: Redrive, parked: Iterable[Step]) -> RedrivePlan:
    """Return the same for letters given by id, reading only the records of these parked ones."""

    def letters() -> Iterator[ParkedLetter]:
        for step in sorted(parked, key=lambda step: (step.partition, step.offset)):
            place = TopicPartition(step.topic, step.partition)
            record = read_one(redrive.installation.kafka, place, step.offset)
            if record is not None and record.value is not None:
                yield redrive.letter(record)

    return _planned(redrive, letters())


def _planned(redrive: Redrive, letters: Iterable[ParkedLetter]) -> RedrivePlan:
    plan = RedrivePlan(redrive.shown)
    ids = redrive.request.filters.ids
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
        is_kept = len(plan.refused) < REFUSED_SHOWN
        plan.refuse(letter_id, why_not_parked(redrive.installation, letter_id) if is_kept else "")
    return plan


def carry_out(redrive: Redrive, plan: RedrivePlan, result: RedriveResult) -> None:
    """Carry out the plan, and add letters refused meanwhile to it.

    Raises LockedError beside another redrive or discard. `result` has the progress, even if
    interrupted.
    """
    with exclusive(redrive.installation.files, "parking_lot", "`letters redrive` or `discard`"):
        carry_out_redrive(replace(redrive, shown=plan.shown), result)
    for letter_id, reason in result.refused.items():
        plan.refuse(letter_id, reason)
