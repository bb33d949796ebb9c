"""The snapshots that Kafka names: those that were published, and whose letters were sent.

What is noted there is compared with the run that made the snapshot: so its row has to stay.
"""

from contextlib import closing

from deltalake import DeltaTable

from shardpost.delta.query import path_of
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.holders import published_partitions, rejected_letters
from shardpost.holders.model.published import Published
from shardpost.holders.model.snapshot_run import SnapshotRun
from shardpost.kafka import clients, offsets
from shardpost.kafka.coordinates import TopicPartition
from shardpost.settings import Settings


def noted_snapshots(settings: Settings) -> set[int]:
    """Return their numbers; ShardpostError if Kafka does not answer."""
    runs = (*_published(settings), *_letters(settings))
    return {run.number for run in runs if run is not None and run.number}


def _published(settings: Settings) -> list[SnapshotRun | None]:
    topic = settings.topic("share-holders")
    count = offsets.partition_counts(settings, [topic])[topic]
    partitions = [TopicPartition(topic, number) for number in range(count)]
    with closing(clients.consumer(settings, published_partitions.GROUP)) as reader:
        committed = offsets.committed_metadata(settings, reader, partitions)
    found = [Published.of(committed[one]) for one in partitions]
    return [run for one in found for run in (one.at, one.partly)]


def _letters(settings: Settings) -> list[SnapshotRun]:
    tables = str(DeltaTable(path_of(settings, SNAPSHOTS)).metadata().id)
    group = rejected_letters.group_of(tables)
    place = TopicPartition(settings.topic("dead-letters"), 0)
    with closing(clients.consumer(settings, group)) as reader:
        found = offsets.committed_with_metadata(settings, reader, place)
    return [] if found is None else [rejected_letters.sent_of(found)]
