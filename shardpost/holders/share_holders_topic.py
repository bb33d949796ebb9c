"""The topic `share-holders`: what its partitions hold, and what should be there.

Records are missing or differ if tables were restored from a copy, if Kafka deleted some (by
`cleanup.policy=delete`, or by hand) or lost the end of a partition, or if another program wrote to
the topic. Then all holders of the partition are published again.

Kafka stores which snapshot was published, and whose letters were sent. These are compared with the
run that made the snapshot, so its row must be kept.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from shardpost.delta import storage
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.holders import rejected_letters
from shardpost.holders.holder_records import headers_of
from shardpost.holders.model.published import Published
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.installation import Installation
from shardpost.kafka import offsets, topic_metadata
from shardpost.kafka.clients import GroupConsumer
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing, PartitionMark, TopicPartition, batch_bytes

PUBLISH_GROUP = "shardpost-publish"


@dataclass(frozen=True)
class PublishedPartition:
    """A partition, what was published to it, and why that is not what it holds; None if it is."""

    partition: TopicPartition
    published: Published
    now: PartitionMark
    wrong: str | None

    def since(self, largest: int) -> int:
        """Return the number of the snapshot whose later changes are to be published; 0: all."""
        return 0 if self.wrong else self.published.since(largest)

    def has_all_to_come(self, largest: int) -> bool:
        """Tell whether all is to be published to it, and it has records already.

        They may be of clients that the tables do not have.
        """
        return not self.since(largest) and self.now.low < self.now.high


def published_partitions(
    kafka: Kafka,
    reader: GroupConsumer,
    partitions: Sequence[TopicPartition],
    runs: Mapping[int, str],
) -> list[PublishedPartition]:
    """Return partitions as the consumer's group has them; {number: run} are the tables' snapshots.

    Where older writers are not fenced, what is published meanwhile is taken for that of others.
    """
    published = _published(kafka, reader, partitions)
    now = offsets.watermarks_of(kafka, partitions, committed=False)
    found = []
    for partition, noted in published.items():
        marks = PartitionMark(*now[partition])
        wrong = noted.what_is_wrong(runs, marks)
        wrong = wrong or _written_by_others(kafka, partition, noted, marks)
        found.append(PublishedPartition(partition, noted, marks, wrong))
    return found


def _all_published(kafka: Kafka) -> dict[TopicPartition, Published]:
    """Return what is noted of each partition of the topic, in their order."""
    partitions = topic_metadata.partitions_of(kafka, kafka.topic("share-holders"))
    with closing(kafka.consumer(PUBLISH_GROUP)) as reader:
        return _published(kafka, reader, partitions)


def _published(
    kafka: Kafka, reader: GroupConsumer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Published]:
    """Return what the consumer's group has noted of each partition."""
    committed = offsets.committed_offsets(kafka, reader, partitions)
    return {
        partition: Published.of(committed[partition].metadata if partition in committed else None)
        for partition in partitions
    }


def _written_by_others(
    kafka: Kafka, partition: TopicPartition, published: Published, now: PartitionMark
) -> str | None:
    """Return that a committed record follows what was published; None if none does.

    Aborted transactions are no records; most often there is nothing at all, and nothing is read.
    """
    if not published.at.number or now.high <= published.end:
        return None
    first = next(read_to_end(kafka, partition, start=published.end, committed=True), None)
    if first is None:
        return None
    return f"another program has written to it (the record at offset {first.offset()})"


def keys_with_values(kafka: Kafka, partition: TopicPartition) -> set[bytes]:
    """Return the keys of a partition, in memory, whose last committed record is no tombstone."""
    keys: set[bytes] = set()
    for message in read_to_end(kafka, partition, committed=True):
        key = message.key()
        if key is not None:
            (keys.discard if message.value() is None else keys.add)(key)
    return keys


@dataclass(frozen=True)
class LargeList:
    """A list that is too large for a record of `largest` bytes: only its length is published."""

    client: str
    positions: int
    largest: int


def too_large_lists(installation: Installation, snapshot: Snapshot) -> list[LargeList]:
    """Return the lists of a snapshot that are too large for the topic, the longest first.

    Only partitions are looked at in which some were, by what is noted in Kafka. Ids are taken as if
    JSON escaped nothing in them.
    """
    topic = installation.kafka.topic("share-holders")
    empty = Outgoing(topic, b"", b'{"Client":"","Positions":[""]}', headers_of(snapshot.number, 1))
    found: list[LargeList] = []
    for place, noted in _all_published(installation.kafka).items():
        if (largest := noted.largest) is None:
            continue
        sql = (
            "SELECT client, array_length(positions) AS count FROM share_holders"  # noqa: S608 - numbers
            f" WHERE shard = {place.partition} AND array_length(positions) > 0"
            " AND octet_length(array_to_string(positions, '\",\"')) + 2 * octet_length(client)"
            " + octet_length(CAST(array_length(positions) AS STRING)) - 1"
            f" > {largest - batch_bytes(empty)}"
        )
        listed = rows(installation.tables, sql, at_snapshot(snapshot, SHARE_HOLDERS))
        found += [LargeList(row["client"], row["count"], largest) for row in listed]
    return sorted(found, key=lambda one: (-one.positions, one.client))


def noted_snapshots(installation: Installation) -> set[int]:
    """Return the numbers of the snapshots stored in Kafka; ShardpostError if it does not answer."""
    published = _all_published(installation.kafka).values()
    runs = [run for noted in published for run in (noted.at, noted.partly)]
    table = storage.opened(installation.tables, SNAPSHOTS)
    group = rejected_letters.group_of(str(table.metadata().id))
    place = TopicPartition(installation.kafka.topic("dead-letters"), 0)
    with closing(installation.kafka.consumer(group)) as reader:
        offset = offsets.committed_offsets(installation.kafka, reader, [place]).get(place)
    if offset and (known := rejected_letters.committed_sent(offset)):
        runs.append(known[1])
    return {run.number for run in runs if run is not None and run.number}
