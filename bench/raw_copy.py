"""`spark-submit raw_copy.py TOPIC FOLDER`: copy a topic into Parquet files, and nothing else.

It is the least that a compaction has to do in Spark: nothing is decoded, folded or published.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

from shardpost.holders.model.topic_state import ranges_to_read
from shardpost.kafka import offsets, topic_metadata
from shardpost.settings import load
from shardpost.spark import driver
from shardpost.spark.kafka_source import read_ranges
from tests.support.installed import installed


def main(topic: str, folder: str) -> None:
    """Copy all committed records."""
    written(records_of(driver.start_session("raw_copy"), topic), folder)


def records_of(spark: SparkSession, topic: str) -> DataFrame:
    """Return all committed records of a topic."""
    settings = load()
    marks = offsets.watermarks(
        installed(settings).kafka,
        topic_metadata.partition_counts(installed(settings).kafka, [topic]),
        committed=True,
    )
    return read_ranges(spark, installed(settings).kafka, ranges_to_read({}, marks))


def written(rows: DataFrame, folder: str) -> DataFrame:
    """Write rows into Parquet files as a compaction does; return them as read from there."""
    writer = rows.write.option("parquet.enable.dictionary", "false")
    writer.mode("overwrite").parquet(folder)
    return rows.sparkSession.read.schema(rows.schema).parquet(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
