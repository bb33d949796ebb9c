"""A sweep that finds no letters at all: it starts no Spark."""

import logging
from collections import Counter

from shardpost import locks
from shardpost.dead_letters.letters_table_offsets import read_progress
from shardpost.dead_letters.model.sweep_result import Intake, as_json
from shardpost.dead_letters.store_partitions import partitions_with_records
from shardpost.errors import DONE
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult
from shardpost.topics.stores import require_stores

log = logging.getLogger(__name__)


def result_if_empty(settings: Settings, lock: str) -> JobResult | None:
    """Return the result of a sweep that has nothing to do; None if it may have something to do.

    LockedError beside another sweep.
    """
    if settings.foreign_dead_letters:  # only a sweep looks whether they have anything
        return None
    with locks.exclusive(settings, lock, lock):
        require_stores(settings, "dead-letters", "parking-lot")
        if partitions_with_records(settings) or read_progress(settings).transactions:
            return None
    log.info("no dead letters")
    return DONE, as_json(Counter(), Counter(), (), Intake())
