"""The topics of letters, and how far the table has read them.

How far the table `dead_letters` has read a partition is kept in the table's log, as the version of
an application transaction (Delta's `txn` action). Each topic of a name is a *generation*: 0 is the
one that the table began with; a topic that was deleted and recreated, or that ends before the
offsets read, is the next. Offsets of another generation do not apply to this one, which is read
from its beginning.

| application | its version |
| --- | --- |
| `<topic>/<partition>` | the next offset to read, in generation 0 |
| `<topic>/<partition>#<generation>` | the same, in a later one |
| `<topic>#generation` | the newest generation |
| `<topic>#id/<topic id>` | the generation that has this id |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from deltalake import DeltaTable

from shardpost.dead_letters.model.letter_format import DEAD_LETTERS
from shardpost.dead_letters.model.transition_records import Routes
from shardpost.delta.storage import exists, open_table
from shardpost.installation import Installation
from shardpost.kafka import offsets
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import OffsetRange, TopicPartition
from shardpost.kafka.topic_metadata import partition_counts, topic_ids
from shardpost.kafka.transactions import Transactions
from shardpost.topics import guards
from shardpost.topics.declared import PRODUCED_BYTES


@dataclass(frozen=True)
class TableProgress:
    """How far the table has read the current topics.

    `generations` has each topic's, `next_offsets` is where the table continues in each partition,
    `transactions` are to be committed with all unread records, even if there are none.
    """

    store: str
    partitions: Mapping[str, int]
    generations: dict[str, int] = field(default_factory=dict)
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    unread: list[OffsetRange] = field(default_factory=list)
    transactions: dict[str, int] = field(default_factory=dict)

    @property
    def end_offsets(self) -> dict[str, dict[str, int]]:
        """What the table has read, as JSON: {topic: {partition: next offset}}."""
        ends = self.next_offsets.items()
        return {to: {str(at[1]): n for at, n in ends if at[0] == to} for to in self.partitions}


def read_progress(
    kafka: Kafka, table: DeltaTable | None, counts: Mapping[str, int]
) -> TableProgress:
    """Return which offsets the opened version of a table has read, and which it has not.

    Steps appended to that version are then appended once. `counts` has the partitions of both
    topics.
    """
    topics = _topics(kafka)
    progress = TableProgress(topics[0], {topic: counts[topic] for topic in topics})
    ids = topic_ids(kafka, topics)
    watermarks = offsets.watermarks(kafka, progress.partitions, committed=True)
    for topic, marks in watermarks.items():
        topic_id = ids.get(topic, "")
        generation = progress.generations[topic] = _generation(table, topic, topic_id, marks)
        for number, (low, end) in marks.items():
            partition = TopicPartition(topic, number)
            name = _offset_name(partition, generation)
            read = progress.next_offsets[partition] = _version(table, name) or 0
            range_ = OffsetRange(topic, number, max(low, read), end)
            if range_.size > 0:
                progress.unread.append(range_)
                progress.transactions[name] = range_.until
        if table is not None:
            for name in (_generation_name(topic), _id_name(topic, topic_id)):
                if _version(table, name) != generation:
                    progress.transactions[name] = generation
    return progress


def table_now(installation: Installation) -> tuple[DeltaTable | None, TableProgress]:
    """Return the current table, or None, with its `read_progress`."""
    is_there = exists(installation.tables, DEAD_LETTERS)
    table = open_table(installation.tables, DEAD_LETTERS) if is_there else None
    return table, read_progress(installation.kafka, table, partitions(installation.kafka))


def current_progress(installation: Installation) -> TableProgress:
    """Return which committed offsets the table has read so far, and which it has not."""
    return table_now(installation)[1]


def partitions(kafka: Kafka) -> dict[str, int]:
    """Return {topic: partition count} of dead-letters and parking-lot."""
    return partition_counts(kafka, _topics(kafka))


def next_offsets(installation: Installation) -> dict[TopicPartition, int]:
    """Return the next offset to read in each partition; {} without a table."""
    is_there = exists(installation.tables, DEAD_LETTERS)
    return current_progress(installation).next_offsets if is_there else {}


def not_visible(kafka: Kafka) -> list[OffsetRange]:
    """Return the offsets of dead-letters and parking-lot that open transactions hide."""
    found = offsets.stable_ends(kafka, partitions(kafka), most_seconds=0)
    return [OffsetRange(*at, found.high[at.topic][at.partition]) for at in found.open]


def routes_of(installation: Installation) -> Routes:
    """Return the topics of letters; ShardpostError for one that does not exist."""
    store, parking_lot = _topics(installation.kafka)
    topics = sorted({store, parking_lot, *installation.settings.retry_rules.retry_topics})
    return Routes(store, parking_lot, partition_counts(installation.kafka, topics))


def writer_of(
    installation: Installation, role: str, partition: TopicPartition, *, fenced: str, failed: str
) -> Transactions:
    """Return the one writer that has this role for a partition; see Transactions for the texts."""
    return Transactions(
        installation.kafka,
        f"{partition.topic}/{role}/{partition.partition}",
        may_write=partial(guards.require_owner, installation),
        fenced=fenced,
        failed=failed,
        **{"message.max.bytes": PRODUCED_BYTES},
    )


def _topics(kafka: Kafka) -> list[str]:
    return [kafka.topic("dead-letters"), kafka.topic("parking-lot")]


def _generation(
    table: DeltaTable | None, topic: str, topic_id: str, marks: Mapping[int, tuple[int, int]]
) -> int:
    """Return the current topic's generation; without topic ids it counts as never recreated."""
    newest = _version(table, _generation_name(topic))
    current = newest or 0
    if newest is not None and topic_id and _version(table, _id_name(topic, topic_id)) != newest:
        current = newest + 1
    for number, (_, end) in marks.items():
        read = _version(table, _offset_name(TopicPartition(topic, number), current))
        if read is not None and read > end:
            return current + 1
    return current


def _offset_name(partition: TopicPartition, generation: int) -> str:
    name = f"{partition.topic}/{partition.partition}"
    return f"{name}#{generation}" if generation else name


def _generation_name(topic: str) -> str:
    return f"{topic}#generation"


def _id_name(topic: str, topic_id: str) -> str:
    return f"{topic}#id/{topic_id}"


def _version(table: DeltaTable | None, name: str) -> int | None:
    return table.transaction_version(name) if table else None
