"""What the partitions of `share-holders` hold, and the snapshots that Kafka names.

The runs that made the snapshots of the tables.

What the partitions of `share-holders` hold: what was published to them, and whether it is there.

Records are missing, or are others, where the tables were restored from a copy; where Kafka deleted
some, by `cleanup.policy=delete` or by hand; where it lost the end of a partition; and where another
program wrote to it. Then all holders of the partition are published again.

The snapshots that Kafka names: those that were published, and whose letters were sent.

What is noted there is compared with the run that made the snapshot: so its row has to stay.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from shardpost.delta.query import path_of
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.holders import rejected_letters
from shardpost.holders.model.published import Published, SnapshotRun, Watermarks
from shardpost.kafka import clients, offsets
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.reading import read_to_end
from shardpost.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer

GROUP = "shardpost-publish"


@dataclass(frozen=True)
class PublishedPartition:
    """A partition, what was published to it, and why that is not what it holds; None if it is."""

    partition: TopicPartition
    published: Published
    now: Watermarks
    wrong: str | None

    @property
    def is_empty(self) -> bool:
        """Whether there is no record in it."""
        return self.now.low >= self.now.high

    def since(self, largest: int) -> int:
        """Return the number of the snapshot whose later changes are to be published; 0: all."""
        return 0 if self.wrong else self.published.since(largest)

    def has_all_to_come(self, largest: int) -> bool:
        """Tell whether all is to be published to it, and it has records already.

        They may be of clients that the tables do not have.
        """
        return not self.since(largest) and not self.is_empty


def published_partitions(
    settings: Settings, topic: str, runs: Mapping[int, str]
) -> list[PublishedPartition]:
    """Return the partitions of the topic; {number: run} are the snapshots of the tables."""
    count = offsets.partition_counts(settings, [topic])[topic]
    partitions = [TopicPartition(topic, number) for number in range(count)]
    with closing(clients.consumer(settings, GROUP)) as reader:
        committed = offsets.committed_metadata(settings, reader, partitions)
    # After that: what is published meanwhile is taken for that of others, and looked at again.
    now = offsets.watermarks(settings, {topic: count}, committed=False)[topic]
    return [
        _inspected(settings, one, Published.of(committed[one]), now[one.partition], runs)
        for one in partitions
    ]


def published_partition(
    settings: Settings, reader: "Consumer", partition: TopicPartition, runs: Mapping[int, str]
) -> PublishedPartition:
    """Return one partition, as the consumer's group has it; older writers have to be fenced."""
    committed = offsets.committed_metadata(settings, reader, [partition])[partition]
    now = offsets.watermarks_of(settings, partition, committed=False)
    return _inspected(settings, partition, Published.of(committed), now, runs)


def _inspected(
    settings: Settings,
    partition: TopicPartition,
    published: Published,
    now: tuple[int, int],
    runs: Mapping[int, str],
) -> PublishedPartition:
    marks = Watermarks(*now)
    wrong = published.what_is_wrong(runs, marks)
    wrong = wrong or _written_by_others(settings, partition, published, marks)
    return PublishedPartition(partition, published, marks, wrong)


def _written_by_others(
    settings: Settings, partition: TopicPartition, published: Published, now: Watermarks
) -> str | None:
    """Return that there is a committed record after what was published; None if there is not.

    Aborted transactions are no records; most often there is nothing at all, and nothing is read.
    """
    if not published.at.number or published.end is None or now.high <= published.end:
        return None
    first = next(read_to_end(settings, partition, start=published.end, committed=True), None)
    if first is None:
        return None
    return f"another program has written to it (the record at offset {first.offset()})"


def keys_with_values(settings: Settings, partition: TopicPartition) -> set[bytes]:
    """Return the keys of a partition whose last committed record is no tombstone.

    The whole partition is read; in memory are only the keys.
    """
    found: set[bytes] = set()
    for message in read_to_end(settings, partition, committed=True):
        key = message.key()
        if key is not None:
            (found.discard if message.value() is None else found.add)(key)
    return found


def noted_snapshots(settings: Settings) -> set[int]:
    """Return their numbers; ShardpostError if Kafka does not answer."""
    runs = (*_published(settings), *_letters(settings))
    return {run.number for run in runs if run is not None and run.number}


def _published(settings: Settings) -> list[SnapshotRun | None]:
    topic = settings.topic("share-holders")
    count = offsets.partition_counts(settings, [topic])[topic]
    partitions = [TopicPartition(topic, number) for number in range(count)]
    with closing(clients.consumer(settings, GROUP)) as reader:
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
