"""Appending to the table `dead_letters`: the steps of exact offsets, which are kept with them.

So it does not matter where a sweep was stopped: what was not appended, the next one appends.
"""

import logging
import uuid

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.dead_letters import letters_table
from shardpost.dead_letters.job import SWEEP_DEAD_LETTERS
from shardpost.dead_letters.letters_table_offsets import TableProgress, read_progress
from shardpost.dead_letters.model.tables import DEAD_LETTERS
from shardpost.dead_letters.spark.letters_table_rows import rows_of
from shardpost.delta import parquet_files, table_log
from shardpost.delta.table_log import VersionExistsError
from shardpost.kafka.offset_ranges import OffsetRange
from shardpost.kafka.offsets import partition_counts
from shardpost.settings import Settings
from shardpost.spark import session
from shardpost.spark.delta_files import Written, write
from shardpost.spark.kafka_source import read_ranges

# Up to so many offsets, Spark would take longer to plan than Python to read them.
FEW = 20_000
# The maintenance writes one version a week.
MOST_CONFLICTS = 2

log = logging.getLogger(__name__)


def catch_up(settings: Settings) -> int:
    """Append the steps of all records that are not in the table; return how many offsets.

    Again where the maintenance of the tables has written meanwhile.
    """
    for _ in range(MOST_CONFLICTS):
        try:
            return _catch_up(settings)
        except VersionExistsError as error:
            log.info("%s; trying again", error)
    return _catch_up(settings)


def _catch_up(settings: Settings) -> int:
    table = letters_table.open_table(settings)
    progress = read_progress(settings, table)
    count = sum(range_.size for range_ in progress.unread)
    if count > FEW:
        _append_many(settings, table.version(), progress)
    elif progress.transactions:
        letters_table.append(settings, table, progress)
    return count


def _append_many(settings: Settings, version: int, progress: TableProgress) -> None:
    spark = session.start(SWEEP_DEAD_LETTERS.name)
    # All of a row in one method would be too much for the JVM's compiler, and take half as long
    # again.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    folder = f"{version + 1:08d}-{uuid.uuid4()}"  # what an interrupted run left has another name
    files, old = parquet_files.merge_small(settings, DEAD_LETTERS, version, f"{folder}-merged")
    for topic, generation in sorted(progress.generations.items()):
        ranges = [range_ for range_ in progress.unread if range_.topic == topic]
        if ranges:
            rows = _rows(spark, settings, ranges).withColumn("generation", F.lit(generation))
            files += _written(settings, rows, f"{folder}-{topic}").files
    read = progress.transactions
    table_log.commit(settings, DEAD_LETTERS, version, files, old, read)


def _rows(spark: SparkSession, settings: Settings, ranges: list[OffsetRange]) -> DataFrame:
    topic = ranges[0].topic
    records = read_ranges(spark, settings, ranges, "timestampType")
    store = settings.topic("dead-letters")
    count = partition_counts(settings, [store])[store] if topic == store else None
    return rows_of(records, topic, store_partitions=count, rules=settings.retry_rules)


def _written(settings: Settings, rows: DataFrame, folder: str) -> Written:
    cores = rows.sparkSession.sparkContext.defaultParallelism
    return write(settings, DEAD_LETTERS, rows.coalesce(cores), folder)
