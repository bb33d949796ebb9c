"""The table `dead_letters` follows its topics: each append is of exact offsets, kept with it.

So it does not matter where a sweep was broken off: what was not appended, the next one appends.
"""

import logging
import uuid

from pyspark.sql import SparkSession

from shardpost.adapters import delta_log, letters_table
from shardpost.domain.offsets import Range
from shardpost.domain.tables import DEAD_LETTERS
from shardpost.settings import Settings
from spark_jobs import letter_rows, session
from spark_jobs.delta_files import Written, write
from spark_jobs.kafka_source import read_ranges

log = logging.getLogger(__name__)

# Up to so many, Spark would take longer to plan than Python to read them.
FEW = 20_000


def catch_up(settings: Settings) -> int:
    """Append the steps of all records that are not in the table; return how many offsets."""
    table = letters_table.opened(settings)
    new = letters_table.unread(settings, table)
    offsets = sum(one.until - one.first for one in new)
    if offsets > FEW:
        _append_many(settings, table.version(), new)
    elif new:
        letters_table.append(settings, table, new)
    return offsets


def _append_many(settings: Settings, version: int, new: list[Range]) -> None:
    spark = session.start("sweep_dead_letters")
    # All of a row in one method would be too much for the JVM's compiler, and take half as long
    # again.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    files = []
    for topic in sorted({one.topic for one in new}):
        ranges = [one for one in new if one.topic == topic]
        files += _written(spark, settings, ranges, version).files
    positions = {letters_table.position_name(one): one.until for one in new}
    delta_log.commit(settings, DEAD_LETTERS, version, files, positions=positions)


def _written(spark: SparkSession, settings: Settings, ranges: list[Range], version: int) -> Written:
    topic = ranges[0].topic
    records = read_ranges(spark, settings, ranges)
    is_store = topic == settings.topic_dead_letters
    rows = letter_rows.steps(records, topic, is_store=is_store, rules=settings.retry_rules)
    cores = spark.sparkContext.defaultParallelism
    folder = f"{version + 1:08d}-{uuid.uuid4()}"  # what a broken off run left has another name
    return write(settings, DEAD_LETTERS, rows.coalesce(cores), folder)
