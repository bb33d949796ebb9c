"""The table `dead_letters` follows its topics: each append is of exact offsets, kept with it.

So it does not matter where a sweep was broken off: what was not appended, the next one appends.
"""

import logging
import uuid

from pyspark.sql import SparkSession

from shardpost.dead_letters import letters_table
from shardpost.dead_letters.job import SWEEP_DEAD_LETTERS
from shardpost.dead_letters.model.tables import DEAD_LETTERS
from shardpost.dead_letters.spark import letter_rows
from shardpost.delta import table_log
from shardpost.kafka.offset_ranges import OffsetRange
from shardpost.settings import Settings
from shardpost.spark import session
from shardpost.spark.delta_files import Written, write
from shardpost.spark.kafka_source import read_ranges

log = logging.getLogger(__name__)

# Up to so many, Spark would take longer to plan than Python to read them.
FEW = 20_000


def catch_up(settings: Settings) -> int:
    """Append the steps of all records that are not in the table; return how many offsets."""
    table = letters_table.opened(settings)
    new = letters_table.unread(settings, table)
    offsets = sum(one.size for one in new)
    if offsets > FEW:
        _append_many(settings, table.version(), new)
    elif new:
        letters_table.append(settings, table, new)
    return offsets


def _append_many(settings: Settings, version: int, new: list[OffsetRange]) -> None:
    spark = session.start(SWEEP_DEAD_LETTERS.name)
    # All of a row in one method would be too much for the JVM's compiler, and take half as long
    # again.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    files = []
    for topic in sorted({one.topic for one in new}):
        ranges = [one for one in new if one.topic == topic]
        files += _written(spark, settings, ranges, version).files
    positions = {letters_table.position_name(one): one.until for one in new}
    table_log.commit(settings, DEAD_LETTERS, version, files, app_transactions=positions)


def _written(
    spark: SparkSession, settings: Settings, ranges: list[OffsetRange], version: int
) -> Written:
    topic = ranges[0].topic
    records = read_ranges(spark, settings, ranges)
    is_store = topic == settings.topic("dead-letters")
    rows = letter_rows.steps(records, topic, is_store=is_store, rules=settings.retry_rules)
    cores = spark.sparkContext.defaultParallelism
    folder = f"{version + 1:08d}-{uuid.uuid4()}"  # what a broken off run left has another name
    return write(settings, DEAD_LETTERS, rows.coalesce(cores), folder)
