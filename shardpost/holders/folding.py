"""Committed tables: what a crashed run left is undone, files are written anew, layers are folded.

A run writes all tables before it commits the snapshot that names their versions. A table whose
newest version is another one was written by a run that did not come to its commit: it is restored
to the last snapshot's version, unless that is a fold of what is committed.

A rewritten snapshot has the content of the last one, but for some files. By the protocol of a
compaction, whose lock the caller holds: what an interrupted run left is undone first, then files
and tables are written, and at last the row in `snapshots` makes all of it visible. A run that is
killed has changed nothing that anybody reads.

Folding writes the tables with a layer as a committed snapshot has them, for every reader.

Snapshots name older files of these tables, with a layer (model/view_tables.py). Readers that know
no layer read the newest version, and after the first run nothing writes there but folds: behind the
lock of the compaction, of a committed snapshot, whose number, time and offsets each commit has.

Each fold is a copy of the table. No snapshot names it, and later folds delete it an hour after it
was replaced. Where a layer has become large, the copy is one that snapshots name from then on.
"""

import json
import logging
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any

from deltalake.transaction import AddAction

from shardpost import __version__
from shardpost.delta import parquet_files, snapshots, storage, stored_files, table_log
from shardpost.delta.query import rows
from shardpost.delta.rewritten_files import commit_files
from shardpost.delta.snapshot import MOST_AHEAD, NEVER, Snapshot
from shardpost.delta.snapshot_retention import GRACE
from shardpost.delta.storage import RowFile, Tables, files_after, open_table, row_files
from shardpost.delta.table import LayeredVersion, Table
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import LAYERED, VIEW, FoldingRule
from shardpost.logs import step

log = logging.getLogger(__name__)


def restore_table(tables: Tables, table: Table, last: Snapshot | None) -> int:
    """Create a table, or restore it to the version of the last snapshot; return its version now."""
    table = last.located(table) if last else table
    committed = last.tables.get(table.name, 0) if last else 0  # a table is created as version 0
    opened = storage.open_table(tables, table) if storage.exists(tables, table) else None
    if opened is None and committed:
        raise ShardpostError(
            f"no table {table.path} in {tables.root}: snapshot"
            f" {last.number if last else 0} needs its version {committed}; restore it from a"
            " backup, or compact into empty tables (another SHARDPOST_TABLES) and an empty"
            " topic share-holders (another SHARDPOST_TOPIC_SHARE_HOLDERS)"
        )
    if opened is None:
        storage.create(tables, table, tables.snapshot_days)
        return 0
    is_fold = last and table.layer and 0 < table_log.folded_in(opened) <= last.number
    if opened.version() == committed or is_fold:
        return committed
    log.info(
        "%s: restoring version %d: a run that was interrupted or refused left version %d",
        *(table.path, committed, opened.version()),
    )
    return table_log.restore(tables, table, committed)


def restored_tables(tables: Tables, last: Snapshot | None) -> dict[str, int]:
    """Restore all tables to a snapshot, as `restore_table`; return their versions now.

    Every run that commits a snapshot begins with it, behind the lock of the compaction: rows that
    an earlier run left have the number that is given to the next snapshot.
    """
    return {table.name: restore_table(tables, table, last) for table in VIEW}


# {table: {path of a file that is written anew: how its rows change}}
Rewrites = Mapping[Table, Mapping[str, parquet_files.Change]]


def commit_rewritten(
    tables: Tables, last: Snapshot, rewrites: Rewrites, at: datetime, **changes: Any
) -> Snapshot:
    """Write files of the newest snapshot's tables anew; commit, and return, the one after it.

    `changes` are fields of the snapshot. ConflictError, or VersionExistsError, if another run was
    first: then nothing is committed.
    """
    run = str(uuid.uuid4())
    step("restore tables")
    versions = restored_tables(tables, last)
    for table, files in rewrites.items():
        there, version = last.located(table), versions[table.name]
        versions[table.name] = commit_files(tables, there, version, files, run)
    made = replace(
        last,
        number=last.number + 1,
        committed_at=max(at, last.committed_at),
        tables=versions,
        code_version=__version__,
        run=run,
        **changes,
    )
    step("commit snapshot")
    snapshots.commit(tables, made)
    return made


FOLDING = FoldingRule()
# Of so many bytes in all, the tables are folded in about a second of one core.
SMALL_BYTES = 16 << 20
# The folder of a copy ends with it, after the second in which it was begun.
COPY = "-copy"
COMMITTED_AT = "shardpost.committed_at"


@dataclass(frozen=True)
class Folding:
    """The tables with a layer of a committed snapshot, or `own` of them; each is counted once."""

    tables: Tables
    view: Snapshot
    own: Collection[str] = tuple(table.name for table in LAYERED)

    @cached_property
    def layered(self) -> dict[Table, LayeredVersion]:
        """Each table, and its version in the snapshot."""
        names, view = self.view.tables.keys() & {*self.own}, self.view
        return {view.located(one): view.layered(one) for one in LAYERED if one.name in names}

    @cached_property
    def files(self) -> dict[Table, list[RowFile]]:
        """The files of each table, which have none of its layer."""
        versions = self.layered.items()
        return {one: row_files(open_table(self.tables, one, at.version)) for one, at in versions}

    @cached_property
    def records(self) -> dict[Table, int]:
        """How many records each layer has; if they are few, by statistics, which may say more."""
        return {table: _records(self.tables, table, at) for table, at in self.layered.items()}

    @property
    def needs_spark(self) -> bool:
        """Whether a layer is too large for this process."""
        return any(count > parquet_files.MOST_RECORDS for count in self.records.values())

    def large(self) -> set[str]:
        """Return the tables whose layer has become large."""
        due = set[str]()
        for table, at in self.layered.items():
            stored = sum(file.rows for file in self.files[table])
            records, runs = self.records[table], self.view.number - at.folded
            if FOLDING.is_due(records=records, rows=stored, runs=runs):
                due.add(table.name)
        return due

    def fold_if_due(self, now: datetime, most_age: float, *, at_once: bool = True) -> None:
        """Fold the tables of the newest snapshot if that is due.

        It is where the last fold is older than so many seconds, or a layer large; with `at_once`
        also where the tables are small. Of a very large layer it needs a session of Spark.
        """
        named = self.large()
        if named or self._is_old(now, most_age, at_once=at_once):
            folded = self.fold(now, named)
            if named:
                snapshots.update_looked_at(self.tables, folded)

    def fold(self, now: datetime, named: Collection[str] = ()) -> Snapshot:
        """Write the tables as the snapshot has them in the place of their files.

        Return the snapshot, which is to name the new versions of `named`.
        """
        view, versions, folded = self.view, dict(self.view.tables), dict(self.view.folded)
        for table in self.layered:
            version = self._fold(table, now, is_named=table.name in named)
            if table.name in named:
                versions[table.name] = version
                folded.pop(table.name, None)
        return replace(view, tables=versions, folded=folded)

    def _is_old(self, now: datetime, most_age: float, *, at_once: bool) -> bool:
        """Tell whether the last fold is older than it may be, by the last table in it."""
        said = open_table(self.tables, [*self.layered][-1]).metadata().configuration
        if said.get(table_log.FOLDED_IN) == str(self.view.number):
            return False
        age = now - datetime.fromisoformat(said.get(COMMITTED_AT, NEVER.isoformat()))
        if not -MOST_AHEAD <= age < timedelta(seconds=most_age):
            return True
        size = sum(file.size for files in self.files.values() for file in files)
        return at_once and size <= SMALL_BYTES

    def _fold(self, table: Table, now: datetime, *, is_named: bool) -> int:
        """Fold one table, unless it is folded; return its version."""
        tables, view, at = self.tables, self.view, self.layered[table]
        restore_table(tables, table, view)  # to what is committed, or folded
        newest = open_table(tables, table)
        known = int(newest.metadata().configuration.get(table_log.FOLDED_IN, 0))
        if known == view.number and not is_named:
            return newest.version()
        step(f"{table.name} fold")
        made, old = list[AddAction](), list[str]()
        # Its rows are those of `known`, or what the snapshot names, which of form 3 has a layer.
        since = max(known, at.folded) if newest.version() == at.version else known
        both = (table, at.version, at.folded), (table.layer_source, at.source, since)
        if is_named or any(files_after(tables, *one) for one in both):
            mark = uuid.uuid4() if is_named else f"{int(now.timestamp())}{COPY}"
            made = self._write(table, f"{newest.version() + 1:08d}-{mark}")
            old = [file.path for file in row_files(newest)]
        said = {
            table_log.FOLDED_IN: str(view.number),
            COMMITTED_AT: view.committed_at.isoformat(),
            "shardpost.looked_at": view.looked_at.isoformat(),
            "shardpost.end_offsets": json.dumps(view.as_json()["end_offsets"]),
        }
        version = table_log.commit_fold(newest, tables, table, made, old, said)
        _remove_replaced(tables, table, version, now)
        return version

    def _write(self, table: Table, folder: str) -> list[AddAction]:
        at, records = self.layered[table], self.records[table]
        if records <= parquet_files.MOST_RECORDS:
            return parquet_files.write_folded(self.tables, table, at, folder)
        from shardpost.spark import delta_files, driver  # where a session is needed, one is there

        spark = driver.start_session("fold")
        driver.divide_shuffles(spark, records)
        rows_ = delta_files.read(spark, self.tables, table, at)
        return delta_files.write(self.tables, table, rows_, folder).files


def _records(tables: Tables, table: Table, at: LayeredVersion) -> int:
    source = table.layer_source
    most = sum(file.rows for file in files_after(tables, source, at.source, at.folded))
    if most < FOLDING.least_records:
        return most
    sql = f"SELECT COUNT(*) AS n FROM {source.name} WHERE snapshot > {at.folded}"  # noqa: S608 - ours
    return int(rows(tables, sql, {source: at.source})[0]["n"])


def _remove_replaced(tables: Tables, table: Table, version: int, now: datetime) -> None:
    """Delete copies that were replaced an hour ago, for who was reading them then."""
    names = [name for name in stored_files.folder_names(tables, table) if name.endswith(COPY)]
    live = {file.path.partition("/")[0] for file in row_files(open_table(tables, table, version))}
    for name, following in pairwise(names):
        begun_at = int(following.split("-")[1])
        if begun_at < (now - GRACE).timestamp() and name not in live:
            stored_files.delete_folder(tables, table, name)
