"""The topics of letters in this installation, which of them hold anything, and the sweep of none.

The topics of letters, as they are in this installation.

The partitions of the topic `dead-letters` that hold anything.

A sweep that finds no letters at all: it starts no Spark.
"""

import logging
from collections import Counter

from shardpost import locks
from shardpost.dead_letters.letters_table_offsets import read_progress
from shardpost.dead_letters.model.sweep_result import Intake, as_json
from shardpost.dead_letters.model.transition_records import Routes
from shardpost.errors import DONE
from shardpost.kafka import offsets, topic_metadata
from shardpost.kafka.coordinates import TopicPartition
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult
from shardpost.topics.stores import require_stores


def routes_of(settings: Settings) -> Routes:
    """Return the topics of letters; ShardpostError for one that does not exist."""
    store, parking_lot = settings.topic("dead-letters"), settings.topic("parking-lot")
    topics = sorted({store, parking_lot, *settings.retry_rules.retry_topics})
    return Routes(store, parking_lot, topic_metadata.partition_counts(settings, topics))


def partitions_with_records(settings: Settings) -> list[TopicPartition]:
    """Return those with any record, committed or not."""
    store = settings.topic("dead-letters")
    counts = topic_metadata.partition_counts(settings, [store])
    watermarks = offsets.watermarks(settings, counts, committed=False)[store]
    return [
        TopicPartition(store, partition)
        for partition, (low, high) in watermarks.items()
        if low < high
    ]


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
