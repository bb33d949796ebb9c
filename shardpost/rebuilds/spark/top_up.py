"""Bringing the tables of a rebuild up to those in use, after each compaction beside it.

New records are decoded by the code that runs. What they change follows from the same expression of
"positions now" that every reader has, before and after. The country stays as it is meanwhile.
"""

import logging
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta import table_log
from shardpost.delta.object_store import Tables
from shardpost.delta.query import OpenedTables
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.delta.table import LayeredVersion, Table, Version, layered, text_literal
from shardpost.holders.model import view_tables as t
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import compared
from shardpost.holders.model.view_tables import VIEW
from shardpost.holders.spark.compaction_run import FewRows, totals
from shardpost.holders.spark.fold import update_holders
from shardpost.holders.spark.history import decoder_with
from shardpost.holders.spark.latest import compared_schema, sum_of
from shardpost.holders.spark.table_writer import LAYERED, HoldersRun, TableWriter, fold_layers
from shardpost.holders.spark.topic_update import rejected_of
from shardpost.holders.table_commits import restore_table
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.logs import step
from shardpost.rebuilds.rebuild_job import REBUILD_TABLES
from shardpost.rebuilds.spark.histories import decoded_again
from shardpost.spark import delta_files, driver
from shardpost.spark.run_size import RunSize


@dataclass(frozen=True)
class StandbyRun(HoldersRun):
    """A run that brings the tables `last`, beside those in use, to where `at` has the latter.

    Its own tables are written; all others it shares with those in use.
    """

    at: Snapshot
    kafka: Kafka


def standby_writer(
    spark: SparkSession,
    where: Tables,
    last: Snapshot,
    at: Snapshot,
    own: Collection[str],
    run: str,
) -> TableWriter:
    """Return a writer of the tables `own` as `last` has them, for where the snapshot `at` is.

    What an interrupted run left of them is undone. The others are as `at` has them.
    """
    versions = {
        table.name: restore_table(where, table, last)
        if table.name in own
        else at.tables[table.name]
        for table in VIEW
    }
    writer = TableWriter(spark, where, versions, last, run, number=at.number)
    for table in VIEW:
        if table.name not in own:
            moved = at.tables[table.name] != last.tables.get(table.name)
            folded = at.folded_up_to(table.name) if table in LAYERED else None
            writer.share(table, folded, moved=moved)
    return writer


log = logging.getLogger(__name__)


def top_up(
    installation: Installation, view: Snapshot, at: Snapshot, own: Collection[str]
) -> Snapshot:
    """Return tables beside those in use as of the snapshot `at`, which has the latter.

    `view` is how they are committed; what is written is committed by whoever stores the result.
    """
    log.info("tables not in use: brought from snapshot %d to %d", view.number, at.number)
    spark = driver.start_session(REBUILD_TABLES.name)
    tables = standby_writer(spark, installation.tables, view, at, own, str(uuid.uuid4()))
    new = {
        source.history: _new_records(installation.tables, at, source.history, view.number)
        for source in t.INPUTS.values()
    }
    records = sum(count for _, count in new.values())
    few = RunSize(records).is_few
    driver.plan_for(spark, records)
    run = StandbyRun(tables, view, view.country, at.shards, few, at, installation.kafka)
    rejected = _append_histories(run, {h: files for h, (files, _) in new.items()}, own)
    counts = at.counts if t.SHARE_HOLDERS.name not in own else _update(run, rejected)
    step("top-up fold")
    fold_layers(run, own)
    return replace(
        at,
        tables=dict(tables.versions),
        folders=view.folders,
        folded=dict(tables.folded),
        counts=counts,
        country=view.country,
        set_country=view.set_country,
        history_from=at.history_from if rejected is None else view.history_from,
        rebuilt_in=view.rebuilt_in,
        decoder=at.decoder if rejected is None else decoder_with(view.decoder),
    )


def _new_records(tables: Tables, at: Snapshot, history: Table, since: int) -> tuple[list[str], int]:
    """Return the files of a history in use that may have records after a snapshot; their rows."""
    located, version = at.located(history), at.tables[history.name]
    files = table_log.files_after(tables, located, version, since)
    return delta_files.paths(tables, located, files), sum(files.values())


def _append_histories(
    run: StandbyRun, files: dict[Table, list[str]], own: Collection[str]
) -> int | None:
    """Append what is new to histories of its own; return how many records are rejected.

    None if they are those in use.
    """
    if t.REJECTED_RECORDS.name not in own:
        return None
    assert run.last is not None  # noqa: S101 - it is topped up from there
    rejected = 0
    for name, source in t.INPUTS.items():
        if not files[source.history]:
            continue
        step(f"top-up {source.history.name}")
        rows = delta_files.read_files(run.spark, source.history, files[source.history])
        new = decoded_again(rows.where(F.col("snapshot") > run.last.number), source)
        written = run.tables.append(source.history, new, coalesce=run.few)
        if written.non_null("reason"):
            rejected_rows = rejected_of(run.tables.rows_of(written), run.kafka.topic(name))
            rejected += run.tables.append(t.REJECTED_RECORDS, rejected_rows).rows
    return rejected


def _update(run: StandbyRun, rejected: int | None) -> Counts:
    """Update who holds; return the counts of the view."""
    assert run.last is not None  # noqa: S101 - it is topped up from there
    counts = update_holders(run, *_changed_positions(run, run.last))
    in_all = run.at.counts.rejected if rejected is None else counts.rejected + rejected
    return replace(counts, rejected=in_all)


def _changed_positions(run: StandbyRun, last: Snapshot) -> tuple[DataFrame | FewRows, int]:
    """Return the positions that have new records, as they are beside as they were: `compared`.

    And how many more are open. Of a few records, without Spark.
    """
    tables, history = run.tables.where, run.tables.located(t.POSITION_EVENTS)
    at, now, before = run.tables.versions[history.name], _version(run), last.layered(t.POSITIONS)
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
    versions: dict[Table, Version] = {
        replace(history, name="new_records", folder=history.path): at,
        there: replace(now, keys=keys_sql),
        replace(was_there, name="positions_before", folder=was_there.path): replace(
            before, keys=keys_sql
        ),
    }
    sql = compared(t.POSITIONS).format(newest=t.POSITIONS.name, known="positions_before")
    found = FewRows.kept(OpenedTables(tables, versions), sql, compared_schema(t.POSITIONS))
    return found, sum_of(found.rows, "opened")


def _version(run: StandbyRun) -> LayeredVersion:
    version = run.tables.at(t.POSITIONS)
    if isinstance(version, LayeredVersion):
        return version
    return layered(t.POSITIONS, run.tables.versions, run.number)
