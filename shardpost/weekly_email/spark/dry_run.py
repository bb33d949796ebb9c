"""The dry run on Spark: list, by shard, what a run would do to each client, and change nothing."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shardpost.delta.table import ddl_of
from shardpost.spark.partitioning import partition_column
from shardpost.weekly_email import dry_run_file, kept_dry_runs
from shardpost.weekly_email.dry_run_file import DryRunLists, summary, text_lines
from shardpost.weekly_email.dry_run_lists import LINES, LINES_SCHEMA, DryRunList, lines_of
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.model.ledger_index import LedgerIndex, sending_to_unknown
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.prepared_week import PreparedWeek
from shardpost.weekly_email.send_shard import SendOptions
from shardpost.weekly_email.spark.audience_freeze import WeekFrames
from shardpost.weekly_email.spark.send import by_shard, require_shard, shard_of_this_task

log = logging.getLogger(__name__)

# Clients of each list that go into a log.
MOST_LOGGED = 1000


def dry_run(
    week: PreparedWeek, options: SendOptions, recipients: Path | None, kept_as: str | None = None
) -> dict[str, Any]:
    """List what would become of each client.

    The lists go into `recipients`: a folder, in which they are a file of dry_run_file.py; or a
    file, such as the log, as text; None: into the result. However many clients there are, only the
    last of these needs memory for them. `kept_as` is the run as whose they are kept, if they are.
    """
    before = week.state.frozen_before(with_audience=True)
    about = {
        "week": str(week.iso_week),
        "snapshot": week.snapshot_number,
        "compared_with": before.week if before else None,
    }
    made = {"run": kept_as, "made_at": options.clock().isoformat(), "shards": week.shards}
    with TemporaryDirectory() as temporary:
        folder = recipients if recipients and recipients.is_dir() else Path(temporary)
        path = folder / dry_run_file.NAME
        dry_run_file.write(path, _lines(week, options, before), about | made)
        lists = DryRunLists.at(path)
        unknown = week.snapshot.counts.unknown.named
        result = about | {"counts": lists.counts, "unknown_exchanges": unknown}
        log.info("%s: %s", week.iso_week, summary(result))
        if kept_as is not None:
            kept_dry_runs.keep(options.installation.tables, week, kept_as, path)
        if recipients is None:
            return result | {str(kind): [*lists.lines(kind)] for kind in DryRunList}
        if recipients != folder:
            with recipients.open("w") as file:
                file.writelines(text_lines(result, lists, MOST_LOGGED))
        return result


def _lines(
    week: PreparedWeek, options: SendOptions, before: FrozenWeek | None
) -> Iterator[dict[str, Any]]:
    """Yield what would become of each client now, by shard and client; changes nothing.

    `before` is the week to compare with, None if there is none.
    """
    audience, shards = WeekFrames(options.installation.tables, week), week.shards

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shard = shard_of_this_task(shards)
        ledger = _ledger(options, options.context.week, shard)
        sending_to_unknown(ledger)
        plan = options.plan(ledger)
        ledger_before = _ledger(options, IsoWeek.parse(before.week), shard) if before else None
        for batch in require_shard(batches, shard):
            lines = lines_of(batch, plan, ledger_before)
            yield pa.RecordBatch.from_pylist([*lines], LINES_SCHEMA)

    rows = by_shard(audience.spark, _compared(audience, week, before), shards)
    for row in rows.mapInArrow(task, ddl_of(LINES)).toLocalIterator():
        yield row.asDict()


def _ledger(options: SendOptions, week: IsoWeek, shard: int) -> LedgerIndex:
    return LedgerIndex.fold(ShardLedger(options.installation.kafka, week, shard).entries())


def _compared(audience: WeekFrames, week: PreparedWeek, before: FrozenWeek | None) -> DataFrame:
    """Return the members, and those of the week before; `is_member` and `was_member` say which."""
    now = audience.members().withColumn("is_member", F.lit(True))
    if before is None:
        return now.withColumn("was_member", F.lit(False))
    client = F.col("client")
    shard = partition_column(audience.spark, client, week.partitions)
    then = audience.frozen(before).select(
        client, shard.alias("shard_then"), F.lit(True).alias("was_member")
    )
    others = [name for name in now.columns if name not in ("shard", "is_member")]
    return now.join(then, "client", "full").select(
        *others,
        F.coalesce("shard", "shard_then").alias("shard"),
        *(F.coalesce(name, F.lit(False)).alias(name) for name in ("is_member", "was_member")),
    )
