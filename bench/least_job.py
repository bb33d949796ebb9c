"""`spark-submit least_job.py TOPIC FOLDER`: who holds, by the least that Spark can do for it.

It parses every value, keeps the latest of each key and groups the ids by client, all in Parquet
files. It judges no value, knows no retries and no tables from before, commits no snapshot and
publishes nothing: what Shardpost takes longer is the price of these.
"""

import sys

from pyspark.sql import functions as F

from bench.raw_copy import records_of, written
from bench.stream import COUNTING
from shardpost.spark import driver

FORM = "Client STRING, Ticker STRING, Amount DOUBLE, Exchange STRING"


def main(topic: str, folder: str) -> None:
    """Write history, latest records and holders."""
    spark = driver.start_session("least_job")
    spark.conf.set("spark.sql.shuffle.partitions", 4 * spark.sparkContext.defaultParallelism)
    parsed = F.from_json(F.col("value").cast("string"), FORM)
    rows = records_of(spark, topic).select(
        F.col("key").cast("string"), "partition", "offset", "timestamp", parsed.alias("form")
    )
    history = written(rows.select("key", "partition", "offset", "timestamp", "form.*"), folder)
    newest = history.groupBy("key", "partition").agg(F.max("offset").alias("offset"))
    places = F.broadcast(newest.select("partition", "offset"))
    latest = written(history.join(places, ["partition", "offset"], "left_semi"), f"{folder}-latest")
    counting = latest.where(F.col("Exchange").isin(*COUNTING))
    held = counting.groupBy("Client").agg(F.sort_array(F.collect_list("key")).alias("positions"))
    written(held, f"{folder}-holders")


if __name__ == "__main__":
    main(*sys.argv[1:])
