"""What the steps that update holders, and fold layers, need of the run that they are part of."""

from typing import Protocol

from pyspark.sql import SparkSession

from shardpost.delta.snapshot import Snapshot
from shardpost.holders.spark.table_writer import TableWriter
from shardpost.settings import Settings


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
