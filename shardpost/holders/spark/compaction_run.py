"""What all steps of one compaction share."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.tables import INPUTS, InputTables
from shardpost.holders.spark.table_writer import TableWriter
from shardpost.settings import Settings
from shardpost.topic_names import TopicName

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

    `partitions` is {topic: number of partitions}; `offsets` is how many offsets the run reads.
    """

    settings: Settings
    tables: TableWriter
    last: Snapshot | None
    partitions: Mapping[str, int]
    offsets: int

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self.tables.spark

    @property
    def number(self) -> int:
        """The number of the snapshot that this run makes."""
        return self.last.number + 1 if self.last else 1

    @property
    def shards(self) -> int:
        """The partitions of `share-holders`."""
        return self.partitions[self.settings.topic("share-holders")]

    @property
    def broadcast_keys(self) -> bool:
        """Whether keys of new records are so few that they are broadcast, into few files."""
        return self.offsets <= MAX_BROADCAST_KEYS

    @property
    def inputs(self) -> list[InputTopic]:
        """The inputs of this installation."""
        return [
            InputTopic(name, self.settings.topic(name), tables) for name, tables in INPUTS.items()
        ]

    def set_shuffle_partitions(self) -> None:
        """Choose Spark's parallelism for an increment, or for reprocessing."""
        cores = self.spark.sparkContext.defaultParallelism
        partitions = cores if self.broadcast_keys else 4 * cores
        self.spark.conf.set("spark.sql.shuffle.partitions", partitions)
