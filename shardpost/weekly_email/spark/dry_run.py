"""The dry run on Spark: list, by shard, what a run would do to each client, and change nothing."""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shardpost.delta.arrow_schema import schema_of
from shardpost.delta.table import columns, ddl_of
from shardpost.spark.partitioning import partition_column
from shardpost.weekly_email import kept_dry_runs
from shardpost.weekly_email.dry_run_lists import (
    DryRunList,
    ListedLine,
    ShardLines,
    summary,
    text_lines,
)
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.model.email_request import PreparedWeek
from shardpost.weekly_email.model.ledger_index import LedgerIndex, sending_to_unknown
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.send_shard import SendOptions
from shardpost.weekly_email.spark.audience_freeze import WeekFrames
from shardpost.weekly_email.spark.send import by_shard, require_shard, shard_of_this_task

LINE = columns("list STRING, text STRING")


def list_clients(
    week: PreparedWeek, options: SendOptions, before: FrozenWeek | None
) -> Iterator[ListedLine]:
    """Yield what would become of each client now, by shard and client; changes nothing.

    `before` is the week to compare with, None if there is none.
    """
    audience, shards = WeekFrames(options.settings, week), week.shards

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shard = shard_of_this_task(shards)
        lines = _shard_lines(options, before, shard)
        for batch in require_shard(batches, shard):
            rows = [{"list": str(line.list), "text": line.text} for line in lines.of_batch(batch)]
            yield pa.RecordBatch.from_pylist(rows, schema_of(LINE))

    rows = by_shard(audience.spark, _compared(audience, week, before), shards)
    for row in rows.mapInArrow(task, ddl_of(LINE)).toLocalIterator():
        yield ListedLine(DryRunList(row["list"]), row["text"])


def _shard_lines(options: SendOptions, before: FrozenWeek | None, shard: int) -> ShardLines:
    def ledger_of(week: IsoWeek) -> LedgerIndex:
        return LedgerIndex.fold(ShardLedger(options.settings, week, shard).entries())

    ledger = ledger_of(options.context.week)
    sending_to_unknown(ledger)
    ledger_before = ledger_of(IsoWeek.parse(before.week)) if before else None
    return ShardLines(options.plan(ledger), ledger_before)


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


log = logging.getLogger(__name__)

# Clients of each list that go into a log.
MOST_LOGGED = 1000


def dry_run(
    week: PreparedWeek,
    options: SendOptions,
    recipients: Path | None,
    kept_as: str | None = None,
) -> dict[str, Any]:
    """List what would become of each client.

    The lists go into `recipients`: a folder, a file of JSON lines for each; or a file, such as the
    log, as text; None: into the result. However many clients there are, only the last of these
    needs memory for them. `kept_as` is the run as whose they are kept as well, if they are.
    """
    with TemporaryDirectory() as temporary:
        is_folder = recipients is not None and recipients.is_dir()
        folder = recipients if recipients and is_folder else Path(temporary)
        result = _write(week, options, folder)
        log.info("%s: %s", week.iso_week, summary(result))
        if kept_as is not None:
            made_at = {"made_at": options.clock().isoformat()}
            kept_dry_runs.keep(options.settings, week, kept_as, folder, result | made_at)
        if recipients is None:
            return result | {str(kind): _read(folder / kind) for kind in DryRunList}
        if not is_folder:
            with recipients.open("w") as file:
                file.writelines(text_lines(result, folder, MOST_LOGGED))
        return result


def _write(week: PreparedWeek, options: SendOptions, folder: Path) -> dict[str, Any]:
    """Write the lists, a file each; return the result without them."""
    before = FrozenWeeks(options.settings).newest_before(week.iso_week)
    counts = Counter(dict.fromkeys(map(str, DryRunList), 0))
    with ExitStack() as opened:
        files: dict[str, TextIO] = {
            kind: opened.enter_context((folder / kind).open("w")) for kind in DryRunList
        }
        for line in list_clients(week, options, before):
            files[line.list].write(line.text + "\n")
            counts[line.list] += 1
    return {
        "week": str(week.iso_week),
        "snapshot": week.snapshot_number,
        "compared_with": before.week if before else None,
        "counts": dict(counts),
        "unknown_exchanges": week.snapshot.counts.unknown.named,
    }


def _read(path: Path) -> list[Any]:
    with path.open() as lines:
        return list(map(json.loads, lines))
