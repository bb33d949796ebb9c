"""What all steps of one compaction share.

Sums over frames.

What the steps that update holders, and fold layers, need of the run that they are part of.

What all steps of one compaction share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.record_order import is_in_current_partition
from shardpost.holders.model.unread import Unread
from shardpost.holders.model.view_tables import INPUTS, InputTables
from shardpost.holders.spark.table_writer import TableWriter
from shardpost.kafka.offset_ranges import OffsetRange
from shardpost.settings import Settings
from shardpost.spark import kafka_source
from shardpost.spark.kafka_source import ReadRanges
from shardpost.topic_names import TopicName


def totals(frame: DataFrame, *expressions: str) -> list[int]:
    """Return the sums of SQL expressions."""
    found = frame.agg(*map(_sum, expressions)).first()
    return [int(total) for total in found or ()]


def _sum(expression: str) -> Column:
    return F.coalesce(F.sum(F.expr(expression)), F.lit(0))


class HoldersRun(Protocol):
    """A run after the snapshot `last`, None of empty tables; it makes that of `number`.

    `country` is whose stock counts from this run on, `shards` are the partitions of
    `share-holders`; with `broadcast_keys` it is about a few keys.
    """

    @property
    def settings(self) -> Settings: ...  # noqa: D102 - above

    @property
    def spark(self) -> SparkSession: ...  # noqa: D102

    @property
    def tables(self) -> TableWriter: ...  # noqa: D102

    @property
    def last(self) -> Snapshot | None: ...  # noqa: D102

    @property
    def number(self) -> int: ...  # noqa: D102

    @property
    def country(self) -> str: ...  # noqa: D102

    @property
    def shards(self) -> int: ...  # noqa: D102

    @property
    def broadcast_keys(self) -> bool: ...  # noqa: D102


# Up to so many new records, their keys are broadcast rather than tables shuffled.
MAX_BROADCAST_KEYS = 200_000


@dataclass(frozen=True)
class InputTopic:
    """One input: its name in the contract, its topic in this installation, and its tables."""

    name: TopicName
    topic: str
    tables: InputTables


@dataclass(frozen=True)
class CompactionRun:
    """A run after the snapshot `last`, None for the first one.

    `partitions` is {topic: number of partitions}; `unread` is what the run reads, and `read_ranges`
    what reads it.
    """

    settings: Settings
    tables: TableWriter
    last: Snapshot | None
    partitions: Mapping[str, int]
    unread: Unread
    read_ranges: ReadRanges = kafka_source.read_ranges

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self.tables.spark

    @property
    def number(self) -> int:
        """The number of the snapshot that this run makes."""
        return self.tables.number

    @property
    def country(self) -> str:
        """Whose stock counts from this run on."""
        setting = self.settings.country
        return self.last.country_now(setting) if self.last else setting

    @property
    def set_country(self) -> str | None:
        """`Snapshot.set_country` of the snapshot that this run makes."""
        return self.settings.country if self.settings.country != self.country else None

    @property
    def shards(self) -> int:
        """The partitions of `share-holders`."""
        return self.partitions[self.settings.topic("share-holders")]

    @property
    def broadcast_keys(self) -> bool:
        """Whether keys of new records are so few that they are broadcast, into few files."""
        return self.unread.size <= MAX_BROADCAST_KEYS

    @property
    def inputs(self) -> list[InputTopic]:
        """The inputs of this installation."""
        return [
            InputTopic(name, self.settings.topic(name), tables) for name, tables in INPUTS.items()
        ]

    def generation(self, source: InputTopic) -> int:
        """Return how many times the topic of an input was recreated."""
        return self.unread.generations.get(source.name, 0)

    def is_in_current_partition(self, source: InputTopic, seq: int) -> bool:
        """Tell whether a record with that seq is where Kafka now puts its key."""
        partitions = self.partitions[source.topic]
        return is_in_current_partition(seq, partitions, self.generation(source))

    def records_of(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return the records in ranges of one topic, with the columns of kafka_source.py."""
        return self.read_ranges(self.spark, self.settings, ranges)

    def set_shuffle_partitions(self) -> None:
        """Choose Spark's parallelism for an increment, or for reprocessing."""
        cores = self.spark.sparkContext.defaultParallelism
        partitions = cores if self.broadcast_keys else 4 * cores
        self.spark.conf.set("spark.sql.shuffle.partitions", partitions)
