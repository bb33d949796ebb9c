"""The as-of SQL on Spark gives what it gives on DataFusion: one text, one answer."""

import random
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from shardpost.delta import table_log
from shardpost.delta.query import rows
from shardpost.holders.model import as_of
from shardpost.holders.model.as_of import position_sort_key
from shardpost.settings import Settings
from shardpost.spark.delta_files import read
from tests.support.histories import START, Batch, close, country_of, holders_of, put, write

AWKWARD = "O'Ne\\il's"


def some_history(seed: int) -> Batch:
    draw = random.Random(seed)  # noqa: S311 - test data
    exchanges = ["NASDAQ", AWKWARD, "NEW"]
    positions = [
        close(str(n % 30), draw.randrange(9))
        if draw.random() < 0.2
        else put(
            str(n % 30), f"client{draw.randrange(5)}", draw.choice(exchanges), draw.randrange(9)
        )
        for n in range(90)
    ]
    countries = [
        country_of(draw.choice(exchanges), draw.choice(["US", "US", "GB", None]), draw.randrange(9))
        for _ in range(8)
    ]
    return Batch(positions, countries)


def give(spark: SparkSession, at: Settings) -> None:
    for table in as_of.RELATIONS:
        version = table_log.newest_version(at, table)
        assert version is not None
        read(spark, at, table, version).createOrReplaceTempView(table.name)


def test_both_engines_give_the_same_rows_at_any_time(spark: SparkSession, tmp_path: Path) -> None:
    at = Settings(home=tmp_path)
    history = write(at, [some_history(7)])
    give(spark, at)
    for time in (None, *(START + timedelta(hours=hour) for hour in (2, 5, 10))):
        sql = as_of.counted_positions("US", time)
        by_spark = sorted(tuple(row) for row in spark.sql(sql).collect())
        found = rows(at, sql, dict.fromkeys(as_of.RELATIONS))
        assert by_spark == sorted(tuple(row.values()) for row in found)
        assert by_spark

        held = spark.sql(as_of.holders("US", time)).collect()
        expected = holders_of(history, time)
        assert {
            row.client: sorted(row.positions, key=position_sort_key) for row in held
        } == expected


def test_a_country_of_any_characters_is_compared_by_spark_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    at = Settings(home=tmp_path)
    write(at, [Batch([put("1", "a", "X"), put("2", "a", "Y")], [country_of("X", AWKWARD)])])
    give(spark, at)
    sql = as_of.counted_positions(AWKWARD, START + timedelta(hours=1))
    assert [row.position for row in spark.sql(sql).collect()] == ["1"]
