"""Bringing the tables of a rebuild up to those in use, after each compaction beside it.

New records are decoded by the code that runs. What they change follows from the same expression of
"positions now" that every reader has, before and after. Who holds stays as it is meanwhile.
"""

import logging
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta.query import OpenedTables
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables, files_after
from shardpost.delta.table import LayeredVersion, Table, Version, layered, text_literal
from shardpost.errors import ShardpostError
from shardpost.holders.folding import Folding, restore_table
from shardpost.holders.inputs import mappings_of
from shardpost.holders.model import view_tables as t
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import compared
from shardpost.holders.plausibility import require_inputs
from shardpost.holders.spark.compaction_run import (
    FewRows,
    HoldersRun,
    InputTopic,
    TableWriter,
    inputs_of,
    totals,
)
from shardpost.holders.spark.fold import update_holders
from shardpost.holders.spark.history import decoder_with
from shardpost.holders.spark.input_update import rejected_of
from shardpost.installation import Installation
from shardpost.logs import step
from shardpost.rebuilds.rebuild_job import REBUILD_TABLES
from shardpost.rebuilds.spark.histories import decoded_again
from shardpost.spark import delta_files, driver, run_size


def standby_writer(
    spark: SparkSession, where: Tables, last: Snapshot, at: Snapshot, own: Collection[str]
) -> TableWriter:
    """Return a writer of the tables `own` as `last` has them, for where the snapshot `at` is.

    What an interrupted run left of them is undone. The others are as `at` has them.
    """
    if t.SHARE_HOLDERS.name in own and t.SHARE_HOLDERS_CHANGES.name not in own:
        raise ShardpostError("this rebuild is of release 0.2.0: `shardpost rebuild drop` drops it")
    versions = {
        table.name: restore_table(where, table, last)
        if table.name in own
        else at.tables.get(table.name, 0)
        for table in t.VIEW
    }
    writer = TableWriter(spark, where, versions, last, number=at.number)
    for table in t.VIEW:
        if table.name not in own:
            moved = at.tables.get(table.name) != last.tables.get(table.name)
            folded = at.folded_up_to(table.name) if table in t.LAYERED else None
            writer.share(table, folded, moved=moved)
    return writer


log = logging.getLogger(__name__)


def top_up(
    installation: Installation, view: Snapshot, at: Snapshot, own: Collection[str]
) -> Snapshot:
    """Return tables beside those in use as of the snapshot `at`, which has the latter.

    `view` is how they are committed; what is written is committed by whoever stores the result.
    """
    has_histories, sources = t.REJECTED_RECORDS.name in own, list[InputTopic]()
    if has_histories:
        mappings = mappings_of(installation)
        require_inputs(mappings, view)
        sources = inputs_of(installation, mappings)
    log.info("tables not in use: brought from snapshot %d to %d", view.number, at.number)
    spark = driver.start_session(REBUILD_TABLES.name)
    tables = standby_writer(spark, installation.tables, view, at, own)
    new, records = dict[Table, list[str]](), 0
    for history in (source.history for source in t.INPUTS.values()):
        located, version = at.located(history), at.tables[history.name]
        files = files_after(installation.tables, located, version, view.number)
        paths = (file.path for file in files)
        new[history] = delta_files.paths(installation.tables, located, paths)
        records += sum(file.rows for file in files)
    driver.plan_for(spark, records)
    few = records <= run_size.THRESHOLDS.few
    run = HoldersRun(tables, view, view.rule, at.shards, few)
    rejected = sum(_append_history(run, one, view, new[one.tables.history]) for one in sources)
    kept, counts = view if has_histories else at, at.counts
    if t.SHARE_HOLDERS.name in own:
        counts = update_holders(run, *_changed_positions(run, view))
        counts = replace(counts, rejected=kept.counts.rejected + rejected)
    made = replace(
        at,
        tables=dict(tables.versions),
        folders=view.folders,
        folded=dict(tables.folded),
        counts=counts,
        rule=view.rule,
        set_country=view.set_country,
        history_from=kept.history_from,
        rebuilt_in=view.rebuilt_in,
        inputs=kept.inputs,
        decoder=decoder_with(view.decoder, view.inputs) if has_histories else at.decoder,
    )
    step("top-up fold")
    due = Folding(installation.tables, made, own).large()
    return Folding(installation.tables, made, due).fold(datetime.now(UTC), due)


def _append_history(run: HoldersRun, source: InputTopic, last: Snapshot, files: list[str]) -> int:
    """Append what files have that is new to a history; return how many are rejected."""
    if not files:
        return 0
    history = source.tables.history
    step(f"top-up {history.name}")
    rows = delta_files.read_files(run.spark, history, files)
    new = decoded_again(rows.where(F.col("snapshot") > last.number), source)
    written = run.tables.append(history, new, coalesce=run.few)
    if not written.non_null("reason"):
        return 0
    rejected = rejected_of(run.tables.rows_of(written), source.topic)
    return run.tables.append(t.REJECTED_RECORDS, rejected).rows


def _changed_positions(run: HoldersRun, last: Snapshot) -> tuple[DataFrame | FewRows, int]:
    """Return the positions that have new records, as they are beside as they were: `compared`.

    And how many more are open. Of a few records, without Spark.
    """
    tables, history = run.tables.where, run.tables.located(t.POSITION_EVENTS)
    at, before = run.tables.versions[history.name], last.layered(t.POSITIONS)
    now = run.tables.at(t.POSITIONS)
    if not isinstance(now, LayeredVersion):
        now = layered(t.POSITIONS, run.tables.versions, run.number)
    there, was_there = run.tables.located(t.POSITIONS), t.POSITIONS.located(last.folders)
    is_new = f"r.snapshot > {last.number} AND r.kind <> {text_literal(RecordKind.REJECTED)}"
    if not run.few:
        new = delta_files.read(run.spark, tables, history, at).alias("r").where(is_new)
        keys = new.select("key").distinct()
        known, old = (
            delta_files.read(run.spark, tables, table, version, keys)
            for table, version in ((there, now), (was_there, before))
        )
        changed = run.spark.sql(compared(t.POSITIONS), newest=known, known=old)
        changed = changed.persist(StorageLevel.MEMORY_AND_DISK)
        [opened] = totals(changed, "opened")
        return changed, opened
    keys_sql = f"SELECT DISTINCT r.key FROM new_records r WHERE {is_new}"  # noqa: S608 - ours
    # Under names of their own: of both tables there may be two versions here.
    new_records = replace(history, name="new_records", folder=history.path)
    were_there = replace(was_there, name="positions_before", folder=was_there.path)
    versions: dict[Table, Version] = {
        new_records: at,
        there: replace(now, keys=keys_sql),
        were_there: replace(before, keys=keys_sql),
    }
    sql = compared(t.POSITIONS).format(newest=t.POSITIONS.name, known="positions_before")
    found = FewRows.compared(OpenedTables(tables, versions), t.POSITIONS, sql)
    return found, found.sum("opened")
