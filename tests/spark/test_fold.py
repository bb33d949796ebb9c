"""The transforms of holders/spark/fold.py that no history of the compaction reaches by itself."""

from pyspark.sql import SparkSession

from shardpost.holders.model.as_of import position_sort_key
from shardpost.holders.spark import fold

IDS = ["10", "9", "009", "09", "a", "B", "0", "00", "1a", "²", "٣", "10" * 12, "1\n", "-1", "1"]


def test_ids_stand_in_the_contracts_order(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(IDS,)], "ids ARRAY<STRING>")
    [row] = frame.select(fold.sorted_ids(frame["ids"]).alias("ids")).collect()
    assert row["ids"] == sorted(IDS, key=position_sort_key)
