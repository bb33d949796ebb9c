"""The dry run on Spark: each task lists what a run of now would do to the clients of its shard."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta.arrow_schema import arrow_schema_of
from shardpost.settings import Settings
from shardpost.spark.kafka_partitioning import partition_of
from shardpost.weekly_email import ledger_topic
from shardpost.weekly_email.dry_run_lines import ListedLine, ShardLines
from shardpost.weekly_email.forecast import DryRunList
from shardpost.weekly_email.model.frozen_week import FrozenWeek
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.model.unknown_deliveries import sending_to_unknown
from shardpost.weekly_email.send_plan import BATCH
from shardpost.weekly_email.send_shard import SendOptions
from shardpost.weekly_email.spark import email_session
from shardpost.weekly_email.spark.audience import frozen_audience, members
from shardpost.weekly_email.spark.shard_partitions import (
    by_shard,
    require_shard,
    shard_of_this_task,
)

LINE = "list STRING, text STRING"


def list_clients(
    settings: Settings, week: PreparedWeek, options: SendOptions, before: FrozenWeek | None
) -> Iterator[ListedLine]:
    """Yield what would become of each client now, by shard and client; changes nothing.

    `before` is the week to compare with, None if there is none.
    """
    spark = email_session.start(settings, len(week.shards))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)
    shards = week.shards

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shard = shard_of_this_task(shards)
        lines = _shard_lines(settings, options, before, shard)
        for batch in require_shard(batches, shard):
            found = [{"list": str(one.list), "text": one.text} for one in lines.of_batch(batch)]
            yield pa.RecordBatch.from_pylist(found, arrow_schema_of(LINE))

    rows = by_shard(spark, _compared(spark, settings, week, before), shards)
    for row in rows.mapInArrow(task, LINE).toLocalIterator():
        yield ListedLine(DryRunList(row["list"]), row["text"])


def _shard_lines(
    settings: Settings, options: SendOptions, before: FrozenWeek | None, shard: int
) -> ShardLines:
    ledger = LedgerIndex.fold(ledger_topic.read(settings, options.context.week, shard))
    sending_to_unknown(ledger)
    if before is None:
        return ShardLines(options.plan(ledger), None)
    entries = ledger_topic.read(settings, IsoWeek.parse(before.week), shard)
    return ShardLines(options.plan(ledger), LedgerIndex.fold(entries))


def _compared(
    spark: SparkSession, settings: Settings, week: PreparedWeek, before: FrozenWeek | None
) -> DataFrame:
    """Return the members, and those of the week before; `is_member` and `was_member` say which."""
    now = members(spark, settings, week).withColumn("is_member", F.lit(True))
    if before is None:
        return now.withColumn("was_member", F.lit(False))
    client, shard = F.col("client"), partition_of(spark, F.col("client"), week.partitions)
    then = frozen_audience(spark, settings, before).select(
        client, shard.alias("shard_then"), F.lit(True).alias("was_member")
    )
    others = [name for name in now.columns if name not in ("shard", "is_member")]
    return now.join(then, "client", "full").select(
        *others,
        F.coalesce("shard", "shard_then").alias("shard"),
        *(F.coalesce(name, F.lit(False)).alias(name) for name in ("is_member", "was_member")),
    )
