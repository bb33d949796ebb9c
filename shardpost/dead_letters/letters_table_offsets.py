"""Which offsets of dead-letters and parking-lot the table `dead_letters` has read, and which not.

How far a partition was read is kept in the log of the table, as the version of an application
transaction (Delta's `txn` action). Each topic of a name is a *generation*: 0 is the one that the
table began with, and one that was deleted and recreated is the next. The same holds for one that
ends before what was read of it. Offsets of another generation say nothing about this one, which is
read from its beginning.

| application | its version |
| --- | --- |
| `<topic>/<partition>` | the next offset to read, in generation 0 |
| `<topic>/<partition>#<generation>` | the same, in a later one |
| `<topic>#generation` | the newest generation |
| `<topic>#id/<topic id>` | the generation that has this id |
"""

from collections.abc import Mapping
from dataclasses import dataclass

from deltalake import DeltaTable

from shardpost.dead_letters.model.letter_format import DEAD_LETTERS
from shardpost.delta.query import exists, open_table
from shardpost.kafka import offsets, topic_metadata
from shardpost.kafka.coordinates import OffsetRange, TopicPartition, Watermarks, ends_of
from shardpost.kafka.topic_metadata import topic_ids
from shardpost.settings import Settings

# {application: version} of Delta's application transactions
Transactions = Mapping[str, int]


@dataclass(frozen=True)
class TableProgress:
    """How far the table has read the topics as they are now.

    `generations` is that of each topic; `transactions` are what to commit with all that is unread,
    also where that is nothing.
    """

    generations: Mapping[str, int]
    unread: list[OffsetRange]
    transactions: Transactions


def read_progress(settings: Settings, table: DeltaTable | None = None) -> TableProgress:
    """Return what the table has read, and which committed offsets it has not.

    That is the table as it was opened, so that what is appended to that version is appended once.
    """
    if table is None and exists(settings, DEAD_LETTERS):
        table = open_table(settings, DEAD_LETTERS)
    ids = topic_ids(settings, _topics(settings))
    generations, unread, transactions = {}, [], {}
    for topic, partitions in _watermarks(settings, committed=True).items():
        topic_id = ids.get(topic, "")
        generation = _generation(table, topic, topic_id, partitions)
        generations[topic] = generation
        for partition, (low, end) in partitions.items():
            name = _offset_name(TopicPartition(topic, partition), generation)
            range_ = OffsetRange(topic, partition, max(low, _version(table, name) or 0), end)
            if range_.size > 0:
                unread.append(range_)
                transactions[name] = range_.until
        if table is not None:
            known = {_generation_name(topic): generation, _id_name(topic, topic_id): generation}
            transactions |= {name: to for name, to in known.items() if _version(table, name) != to}
    return TableProgress(generations, unread, transactions)


def next_offsets(settings: Settings) -> dict[TopicPartition, int]:
    """Return the next offset that the table reads of each partition; {} if there is no table."""
    if not exists(settings, DEAD_LETTERS):
        return {}
    table = open_table(settings, DEAD_LETTERS)
    ids, found = topic_ids(settings, _topics(settings)), {}
    for topic, partitions in _watermarks(settings, committed=True).items():
        generation = _generation(table, topic, ids.get(topic, ""), partitions)
        for partition in partitions:
            at = TopicPartition(topic, partition)
            found[at] = _version(table, _offset_name(at, generation)) or 0
    return found


def unread(settings: Settings) -> list[OffsetRange]:
    """Return the committed offsets of dead-letters and parking-lot that the table has not."""
    return read_progress(settings).unread


def not_visible(settings: Settings) -> list[OffsetRange]:
    """Return the offsets of dead-letters and parking-lot behind an open transaction.

    Nobody can read what is there before that transaction ends.
    """
    high = ends_of(_watermarks(settings, committed=False))
    stable = ends_of(_watermarks(settings, committed=True))  # last: a transaction may end meanwhile
    found = [
        OffsetRange(topic, partition, stable[topic][partition], end)
        for topic, partitions in high.items()
        for partition, end in partitions.items()
    ]
    return [range_ for range_ in found if range_.size > 0]


def _topics(settings: Settings) -> list[str]:
    return [settings.topic("dead-letters"), settings.topic("parking-lot")]


def _watermarks(settings: Settings, *, committed: bool) -> Watermarks:
    counts = topic_metadata.partition_counts(settings, _topics(settings))
    return offsets.watermarks(settings, counts, committed=committed)


def _generation(
    table: DeltaTable | None, topic: str, topic_id: str, partitions: Mapping[int, tuple[int, int]]
) -> int:
    """Return the generation of a topic as it is now.

    A broker that gives no ids recreates no topic, as far as can be known.
    """
    newest = _version(table, _generation_name(topic))
    found = newest or 0
    if newest is not None and topic_id and _version(table, _id_name(topic, topic_id)) != newest:
        found = newest + 1
    for partition, (_, end) in partitions.items():
        read = _version(table, _offset_name(TopicPartition(topic, partition), found))
        if read is not None and read > end:
            return found + 1
    return found


def _offset_name(partition: TopicPartition, generation: int) -> str:
    name = f"{partition.topic}/{partition.partition}"
    return f"{name}#{generation}" if generation else name


def _generation_name(topic: str) -> str:
    return f"{topic}#generation"


def _id_name(topic: str, topic_id: str) -> str:
    return f"{topic}#id/{topic_id}"


def _version(table: DeltaTable | None, name: str) -> int | None:
    return table.transaction_version(name) if table else None
