"""The Spark job `sweep_dead_letters`, as commands and DAGs submit it."""

import logging
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from shardpost.dead_letters.model.retry_policy import Outcome
from shardpost.dead_letters.model.sweep_result import Intake, as_json
from shardpost.errors import DONE
from shardpost.installation import Installation
from shardpost.spark.job_spec import JobResult, JobSpec, request_of

log = logging.getLogger(__name__)


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
