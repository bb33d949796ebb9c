"""The tables beside those in use, as one run of a rebuild writes them."""

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import SparkSession

from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.view_tables import VIEW
from shardpost.holders.spark.table_writer import LAYERED, TableWriter
from shardpost.holders.table_commits import restore_table
from shardpost.settings import Settings


@dataclass(frozen=True)
class BesideRun:
    """A run that brings the tables `last`, beside those in use, to where `at` has the latter.

    Its own tables are written; all others it shares with those in use.
    """

    settings: Settings
    tables: TableWriter
    last: Snapshot | None
    at: Snapshot
    country: str
    broadcast_keys: bool

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self.tables.spark

    @property
    def number(self) -> int:
        """The number of the snapshot that has the same records."""
        return self.at.number

    @property
    def shards(self) -> int:
        """The partitions of `share-holders`."""
        return self.at.shards


def writer_beside(
    spark: SparkSession,
    settings: Settings,
    last: Snapshot,
    at: Snapshot,
    own: Collection[str],
    run: str,
) -> TableWriter:
    """Return a writer of the tables `own` as `last` has them, for where the snapshot `at` is.

    What an interrupted run left of them is undone. The others are as `at` has them.
    """
    versions = {
        table.name: restore_table(settings, table, last)
        if table.name in own
        else at.tables[table.name]
        for table in VIEW
    }
    writer = TableWriter(spark, settings, versions, last, run, number=at.number)
    for table in VIEW:
        if table.name not in own:
            moved = at.tables[table.name] != last.tables.get(table.name)
            folded = at.folded_up_to(table.name) if table in LAYERED else None
            writer.share(table, folded, moved=moved)
    return writer
