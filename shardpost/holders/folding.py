"""Folding: the tables with a layer, written as a committed snapshot has them, for every reader.

Snapshots name older files of these tables, with a layer (model/view_tables.py). Readers that know
no layer read the newest version, and after the first run nothing writes there but folds: behind the
lock of the compaction, of a snapshot that is committed, whose number, time and offsets are in the
commit and in the properties of each table. A run that is killed has left each of them right.

Each fold is a copy of the table. No snapshot names it, and later folds delete it an hour after it
was replaced. Where a layer has become large, the copy is one that snapshots name from then on.
"""

import json
import uuid
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from deltalake.transaction import AddAction

from shardpost.delta import parquet_files, snapshots, stored_files, table_log
from shardpost.delta.query import rows
from shardpost.delta.snapshot import MOST_AHEAD, NEVER, Snapshot
from shardpost.delta.snapshot_retention import GRACE
from shardpost.delta.storage import Tables, files_after, open_table, row_files
from shardpost.delta.table import LayeredVersion, Table
from shardpost.delta.table_log import FOLDED_IN
from shardpost.holders.model.view_tables import LAYERED, FoldingRule
from shardpost.holders.table_commits import restore_table
from shardpost.installation import Installation
from shardpost.logs import step

FOLDING = FoldingRule()
# Of so many bytes in all, the tables are folded in about a second of one core.
SMALL_BYTES = 16 << 20
# The folder of a copy ends with it, after the second in which it was begun.
COPY = "-copy"
COMMITTED_AT = "shardpost.committed_at"


def fold_if_due(
    installation: Installation, view: Snapshot, now: datetime, *, at_once: bool = True
) -> None:
    """Fold the tables of the newest snapshot, behind the lock of the compaction, if that is due.

    It is where the last fold is old (SHARDPOST_FOLD_AGE), or a layer large; with `at_once` also
    where the tables are small. Of a very large layer it needs a session of Spark.
    """
    tables = installation.tables
    named = large_layers(tables, view)
    if named or _is_old(installation, view, now, at_once=at_once):
        folded = fold(tables, view, now, named)
        if named:
            snapshots.update_looked_at(tables, folded)


def large_layers(tables: Tables, view: Snapshot, own: Collection[str] | None = None) -> set[str]:
    """Return the tables whose layer has become large; with `own`, of those named there."""
    due = set[str]()
    for table, at in _layered(view, own).items():
        stored = sum(file.rows for file in row_files(open_table(tables, table, at.version)))
        records, runs = _records(tables, table, at), view.number - at.folded
        if FOLDING.is_due(records=records, rows=stored, runs=runs):
            due.add(table.name)
    return due


def needs_spark(tables: Tables, view: Snapshot) -> bool:
    """Tell whether a layer is too large for this process."""
    layers = _layered(view).items()
    return any(_records(tables, *one) > parquet_files.MOST_RECORDS for one in layers)


def fold(
    tables: Tables,
    view: Snapshot,
    now: datetime,
    named: Collection[str] = (),
    own: Collection[str] | None = None,
) -> Snapshot:
    """Write tables as a snapshot has them in the place of their files; `own`: those named there.

    Return the snapshot, which is to name the new versions of `named`.
    """
    versions, layers = dict(view.tables), dict(view.folded)
    said = {
        FOLDED_IN: str(view.number),
        COMMITTED_AT: view.committed_at.isoformat(),
        "shardpost.looked_at": view.looked_at.isoformat(),
        "shardpost.end_offsets": json.dumps(view.as_json()["end_offsets"]),
    }
    for table, at in _layered(view, own).items():
        restore_table(tables, table, view)  # to what is committed, or folded
        newest, is_named = open_table(tables, table), table.name in named
        known = int(newest.metadata().configuration.get(FOLDED_IN, 0))
        if known == view.number and not is_named:
            continue
        step(f"{table.name} fold")
        made, old = list[AddAction](), list[str]()
        # Its rows are those of `known`, or what the snapshot names, which of form 3 has a layer.
        since = max(known, at.folded) if newest.version() == at.version else known
        both = (table, at.version, at.folded), (table.layer_source, at.source, since)
        if is_named or any(files_after(tables, *one) for one in both):
            mark = uuid.uuid4() if is_named else f"{int(now.timestamp())}{COPY}"
            made = _write(tables, table, at, f"{newest.version() + 1:08d}-{mark}")
            old = [file.path for file in row_files(newest)]
        version = table_log.commit_fold(newest, tables, table, made, old, said)
        if is_named:
            versions[table.name] = version
            layers.pop(table.name, None)
        _remove_replaced(tables, table, version, now)
    return replace(view, tables=versions, folded=layers)


def _layered(view: Snapshot, own: Collection[str] | None = None) -> dict[Table, LayeredVersion]:
    """Return the tables with a layer in the folders of a snapshot, at its versions."""
    names = view.tables.keys() if own is None else view.tables.keys() & {*own}
    return {view.located(one): view.layered(one) for one in LAYERED if one.name in names}


def _is_old(installation: Installation, view: Snapshot, now: datetime, *, at_once: bool) -> bool:
    """Tell whether the last fold is older than it may be, by the table that is the last in it."""
    tables, own = installation.tables, _layered(view)
    said = open_table(tables, [*own][-1]).metadata().configuration if own else {}
    if not own or said.get(FOLDED_IN) == str(view.number):
        return False
    age = now - datetime.fromisoformat(said.get(COMMITTED_AT, NEVER.isoformat()))
    if not -MOST_AHEAD <= age < timedelta(seconds=installation.settings.fold_age):
        return True
    files = (row_files(open_table(tables, table, at.version)) for table, at in own.items())
    return at_once and sum(file.size for each in files for file in each) <= SMALL_BYTES


def _records(tables: Tables, table: Table, at: LayeredVersion) -> int:
    """Return how many records a layer has; if they are few, by statistics, which may say more."""
    source = table.layer_source
    most = sum(files_after(tables, source, at.source, at.folded).values())
    if most < FOLDING.least_records:
        return most
    sql = f"SELECT COUNT(*) AS n FROM {source.name} WHERE snapshot > {at.folded}"  # noqa: S608 - ours
    return int(rows(tables, sql, {source: at.source})[0]["n"])


def _write(tables: Tables, table: Table, at: LayeredVersion, folder: str) -> list[AddAction]:
    if (records := _records(tables, table, at)) <= parquet_files.MOST_RECORDS:
        return parquet_files.write_folded(tables, table, at, folder)
    from shardpost.spark import delta_files, driver  # where a session is needed, one is there

    spark = driver.start_session("fold")
    driver.divide_shuffles(spark, records)
    rows_ = delta_files.read(spark, tables, table, at)
    return delta_files.write(tables, table, rows_, folder).files


def _remove_replaced(tables: Tables, table: Table, version: int, now: datetime) -> None:
    """Delete copies that were replaced an hour ago, for who was reading them then."""
    names = [name for name in stored_files.folder_names(tables, table) if name.endswith(COPY)]
    live = {file.path.partition("/")[0] for file in row_files(open_table(tables, table, version))}
    for name, following in pairwise(names):
        begun_at = int(following.split("-")[1])
        if begun_at < (now - GRACE).timestamp() and name not in live:
            stored_files.delete_folder(tables, table, name)
