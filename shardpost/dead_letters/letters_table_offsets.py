"""Which offsets of dead-letters and parking-lot the table `dead_letters` has read, and which not.

How far a partition was read is kept in the log of the table, as the version of an application
transaction (Delta's `txn` action) named for the partition.
"""

from deltalake import DeltaTable

from shardpost.dead_letters.model.tables import DEAD_LETTERS
from shardpost.delta.query import exists, path_of
from shardpost.kafka import offsets
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offset_ranges import OffsetRange, Watermarks, ends
from shardpost.settings import Settings


def transaction_name(partition: TopicPartition) -> str:
    """Return the name of the application transaction that keeps a partition's offset."""
    return f"{partition.topic}/{partition.partition}"


def unread(settings: Settings, table: DeltaTable | None = None) -> list[OffsetRange]:
    """Return the committed offsets of dead-letters and parking-lot that the table has not.

    That is the table as it was opened, so that what is appended to that version is appended once.
    """
    if table is None and exists(settings, DEAD_LETTERS):
        table = DeltaTable(path_of(settings, DEAD_LETTERS))
    found = []
    for topic, partitions in _watermarks(settings, committed=True).items():
        for partition, (low, end) in partitions.items():
            first = max(low, _read_until(table, TopicPartition(topic, partition)))
            found.append(OffsetRange(topic, partition, first, end))
    return [range_ for range_ in found if range_.size > 0]


def not_visible(settings: Settings) -> list[OffsetRange]:
    """Return the offsets of dead-letters and parking-lot behind an open transaction.

    Nobody can read what is there before that transaction ends.
    """
    high = ends(_watermarks(settings, committed=False))
    stable = ends(_watermarks(settings, committed=True))  # last: a transaction may end meanwhile
    found = [
        OffsetRange(topic, partition, stable[topic][partition], end)
        for topic, partitions in high.items()
        for partition, end in partitions.items()
    ]
    return [range_ for range_ in found if range_.size > 0]


def _watermarks(settings: Settings, *, committed: bool) -> Watermarks:
    topics = [settings.topic("dead-letters"), settings.topic("parking-lot")]
    counts = offsets.partition_counts(settings, topics)
    return offsets.watermarks(settings, counts, committed=committed)


def _read_until(table: DeltaTable | None, partition: TopicPartition) -> int:
    read = table.transaction_version(transaction_name(partition)) if table else None
    return read or 0
