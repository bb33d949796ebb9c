"""Sweeps that have nothing to do: they start no Spark, and do not read the store again.

A sweep that left every letter as it was notes where the store ended, and when the first letter is
due. As long as the store ends there, by the same settings and the same code, the next sweep knows
what it would find. The note is a cache in the home of one machine: without it, a sweep reads.
"""

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from hashlib import blake2b

from pydantic import TypeAdapter, ValidationError

from shardpost import checkout
from shardpost.dead_letters.letter_topics import current_progress
from shardpost.dead_letters.model.retry_policy import Outcome
from shardpost.dead_letters.model.sweep_result import Intake, as_json
from shardpost.dead_letters.sweep_partition import PartitionReport
from shardpost.errors import DONE
from shardpost.installation import Installation
from shardpost.kafka import offsets
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.topic_metadata import topic_ids
from shardpost.locks.shared_files import Files
from shardpost.spark.job_spec import JobResult
from shardpost.topics import guards

log = logging.getLogger(__name__)

FILE = "quiet-sweep.json"
# A topic that lost its end and grew to the same one again would not be noticed for so long.
VALID_FOR = timedelta(hours=1)


@dataclass(frozen=True)
class StoreEnds:
    """A topic: its id, and the high watermarks of its partitions."""

    topic_id: str
    ends: list[int]

    @classmethod
    def now(cls, kafka: Kafka, topic: str, partitions: int) -> "StoreEnds":
        """Return those of a topic as it is."""
        marks = offsets.watermarks(kafka, {topic: partitions}, committed=False)[topic]
        found = topic_ids(kafka, [topic]).get(topic, "")
        return cls(found, [high for _, high in marks.values()])


@dataclass(frozen=True)
class QuietSweep:
    """What a sweep noted that left every letter as it was: `waiting`, the first until `next_due`.

    `made_by` stands for the settings and the code by which that was found.
    """

    store: StoreEnds
    swept_at: datetime
    next_due: datetime | None
    waiting: int
    made_by: str

    def holds(self, installation: Installation, now: datetime) -> bool:
        """Tell whether nothing is due yet, by the same rules."""
        until = self.swept_at + VALID_FOR
        until = min(until, self.next_due) if self.next_due else until
        return self.swept_at <= now < until and self.made_by == _made_by(installation)


_DOCUMENT = TypeAdapter(QuietSweep)


@cache
def _code() -> int:
    """Return what stands for the code of this process."""
    return checkout.code_stamp()


def _made_by(installation: Installation) -> str:
    made_by = json.dumps([installation.settings.model_dump_json(), _code()])
    return blake2b(made_by.encode(), digest_size=16).hexdigest()


def note(
    installation: Installation, before: StoreEnds, reports: Sequence[PartitionReport], now: datetime
) -> None:
    """Note what a sweep found from those ends on; of one that did anything, there is no note."""
    path = installation.files.folder() / FILE
    counts = +sum((report.counts for report in reports), Counter[Outcome]())
    if counts.keys() - {Outcome.WAIT}:
        path.unlink(missing_ok=True)
        return
    due = min((at for report in reports if (at := report.next_due)), default=None)
    made = QuietSweep(before, now, due, counts[Outcome.WAIT], _made_by(installation))
    temporary = path.with_suffix(".new")
    temporary.write_bytes(_DOCUMENT.dump_json(made))
    temporary.replace(path)


def _noted(files: Files) -> QuietSweep | None:
    try:
        return _DOCUMENT.validate_json((files.home / FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def result_if_nothing_is_due(
    installation: Installation, lock: str, now: datetime
) -> JobResult | None:
    """Return the result of a sweep that has nothing to do; None if it may have something to do.

    It starts no Spark. LockedError beside another sweep, NotOwnerError in a home of others.
    """
    if installation.settings.foreign_dead_letters:  # only a sweep checks whether they have anything
        return None
    with guards.run(installation, lock):
        progress = current_progress(installation)
        if progress.transactions:
            return None
        waiting = known_to_wait(
            installation, progress.store, progress.partitions[progress.store], now
        )
    if waiting is None:
        return None
    log.info("no dead letter is due, %d wait", waiting)
    return DONE, as_json(Counter({Outcome.WAIT: waiting}), Counter(), (), Intake())


def known_to_wait(
    installation: Installation, store: str, partitions: int, now: datetime
) -> int | None:
    """Return how many letters wait, if it is known that none is due; else None."""
    if not offsets.partitions_with_records(installation.kafka, {store: partitions}):
        return 0
    noted = _noted(installation.files)
    if noted is None or not noted.holds(installation, now):
        return None
    return (
        noted.waiting
        if noted.store == StoreEnds.now(installation.kafka, store, partitions)
        else None
    )
