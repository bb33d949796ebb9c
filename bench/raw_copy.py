"""`spark-submit raw_copy.py TOPIC FOLDER`: copy a topic into Parquet files, and nothing else.

It is the least that a compaction has to do in Spark: nothing is decoded, folded or published.
"""

import sys

from shardpost.adapters import kafka
from shardpost.domain.offsets import ranges_to_read
from shardpost.settings import load
from spark_jobs import session
from spark_jobs.kafka_source import read_ranges


def main(topic: str, folder: str) -> None:
    """Copy all committed records."""
    settings = load()
    spark = session.start("raw_copy")
    marks = kafka.watermarks(settings, kafka.partition_counts(settings, [topic]), committed=True)
    records = read_ranges(spark, settings, ranges_to_read({}, marks))
    writer = records.write.option("parquet.enable.dictionary", "false")
    writer.mode("overwrite").parquet(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
