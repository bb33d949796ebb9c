"""Appending to the table `dead_letters`: the steps of exact offsets, which are kept with them.

So it does not matter where a sweep was stopped: what was not appended, the next one appends.
"""

import uuid

from pyspark.sql import SparkSession

from shardpost.dead_letters import letters_table
from shardpost.dead_letters.job import SWEEP_DEAD_LETTERS
from shardpost.dead_letters.letters_table_offsets import transaction_name, unread
from shardpost.dead_letters.model.tables import DEAD_LETTERS
from shardpost.dead_letters.spark.letters_table_rows import rows_of
from shardpost.delta import table_log
from shardpost.kafka.offset_ranges import OffsetRange
from shardpost.settings import Settings
from shardpost.spark import session
from shardpost.spark.delta_files import Written, write
from shardpost.spark.kafka_source import read_ranges

# Up to so many offsets, Spark would take longer to plan than Python to read them.
FEW = 20_000


def catch_up(settings: Settings) -> int:
    """Append the steps of all records that are not in the table; return how many offsets."""
    table = letters_table.open_table(settings)
    new = unread(settings, table)
    count = sum(range_.size for range_ in new)
    if count > FEW:
        _append_many(settings, table.version(), new)
    elif new:
        letters_table.append(settings, table, new)
    return count


def _append_many(settings: Settings, version: int, new: list[OffsetRange]) -> None:
    spark = session.start(SWEEP_DEAD_LETTERS.name)
    # All of a row in one method would be too much for the JVM's compiler, and take half as long
    # again.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    files = []
    for topic in sorted({range_.topic for range_ in new}):
        ranges = [range_ for range_ in new if range_.topic == topic]
        files += _written(spark, settings, ranges, version).files
    read = {transaction_name(range_.topic_partition): range_.until for range_ in new}
    table_log.commit(settings, DEAD_LETTERS, version, files, app_transactions=read)


def _written(
    spark: SparkSession, settings: Settings, ranges: list[OffsetRange], version: int
) -> Written:
    topic = ranges[0].topic
    records = read_ranges(spark, settings, ranges, "timestampType")
    is_store = topic == settings.topic("dead-letters")
    rows = rows_of(records, topic, is_store=is_store, rules=settings.retry_rules)
    cores = spark.sparkContext.defaultParallelism
    folder = f"{version + 1:08d}-{uuid.uuid4()}"  # what an interrupted run left has another name
    return write(settings, DEAD_LETTERS, rows.coalesce(cores), folder)
