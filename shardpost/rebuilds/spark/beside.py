"""The units of work of a rebuild: each is done as a whole, in an order that never changes.

What one has made is committed with the row of the rebuild: so a run that goes on after another one
was killed skips the units that are done.

The tables beside those in use, as one run of a rebuild writes them.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession

from shardpost.delta import table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.model.view_tables import VIEW
from shardpost.holders.spark.table_writer import LAYERED, TableWriter
from shardpost.holders.table_commits import restore_table
from shardpost.settings import Settings

# A unit has about so many records: some ten seconds of work.
RECORDS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Unit:
    """What it is called in the log, how many records it has, and what does it."""

    name: str
    records: int
    work: Callable[[], None]


def file_groups(settings: Settings, table: Table, version: int) -> Iterator[tuple[list[str], int]]:
    """Yield (paths, records) of groups of a version's files, always the same ones."""
    paths: list[str] = []
    records = 0
    for path, count in sorted(table_log.rows(settings, table, version).items()):
        paths.append(path)
        records += count
        if records >= RECORDS_AT_ONCE:
            yield paths, records
            paths, records = [], 0
    if paths:
        yield paths, records


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
