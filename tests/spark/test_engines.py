"""One rule in two languages: Spark gives what Python and DataFusion give."""

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from shardpost.delta import snapshots, storage
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import OpenedTables, at_snapshot, rows
from shardpost.delta.table import LayeredVersion, Table, Version, text_literal
from shardpost.holders.model import who_holds
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import (
    MAX_GENERATION,
    Numbering,
    Order,
    by_time,
    compared,
    newest_of_keys,
    order_of,
)
from shardpost.holders.model.view_tables import (
    EXCHANGES,
    POSITION_EVENTS,
    POSITIONS,
    SHARE_HOLDERS,
)
from shardpost.holders.model.who_holds import position_sort_key
from shardpost.holders.spark import fold, history
from shardpost.holders.spark.compaction_run import FewRows
from shardpost.kafka.records import partition_of
from shardpost.maintenance.stored_tables import TABLES
from shardpost.settings import Settings
from shardpost.spark.delta_files import read
from shardpost.spark.kafka_source import partition_column
from shardpost.spark.run_size import THRESHOLDS
from shardpost.values.holding_rule import TYPES, Rule, parsed
from tests.support.histories import START, Batch, close, country_of, holders_of, put, write
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.random_conditions import ANY_POSITIONS, CONDITIONS
from tests.support.random_histories import LAYERED_BATCHES
from tests.support.run_sizes import set_thresholds
from tests.support.simulated_topic import Stored, numbered

IDS = ["10", "9", "009", "09", "a", "B", "0", "00", "1a", "²", "٣", "10" * 12, "1\n", "-1", "1"]
KEYS = ["", "1", "ab", "abc", "größe", "客户", "x" * 1000, *(f"client{n}" for n in range(300))]
AWKWARD = "O'Ne\\il's ${spark.master}"
LAYERED = (POSITIONS, EXCHANGES, SHARE_HOLDERS)
# Columns of which both engines give the same Python values.
COMPARED = {"key", "client", "positions", "seq", "snapshot", "retry_offset", "is_open", "country"}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_names_and_types_are_those_of_sparks_own_reading(table: Table, spark: SparkSession) -> None:
    del spark  # StructType.fromDDL asks the JVM
    theirs = cast("StructType", StructType.fromDDL(table.ddl))
    assert arrow_schema(table) == to_arrow_schema(theirs)


@pytest.mark.parametrize("text", [AWKWARD, "'", "\\", "${env:HOME}", "${x", "\n", "größe"])
def test_a_text_is_the_same_in_the_sql_of_both(
    text: str, spark: SparkSession, tmp_path: Path
) -> None:
    sql = f"SELECT {text_literal(text)} AS text"
    [row] = spark.sql(sql).collect()
    assert [row.asDict()] == rows(installed(Settings(home=tmp_path)).tables, sql, {})
    assert row.text == text


def test_ids_stand_in_the_contracts_order(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(IDS,)], "ids ARRAY<STRING>")
    [row] = frame.select(fold.sorted_ids(frame["ids"]).alias("ids")).collect()
    assert row["ids"] == sorted(IDS, key=position_sort_key)


@pytest.mark.parametrize(
    "numbering",
    [
        Numbering.of(0, {}, dict.fromkeys(range(7), 999)),
        Numbering.of(0, {number: 9 - number for number in range(7)}, dict.fromkeys(range(7), 999)),
        Numbering.of(MAX_GENERATION, {0: 5, 1: 7, 2: 0}, dict.fromkeys(range(7), 999)),
    ],
    ids=["first run", "later run", "with partitions added"],
)
def test_partitions_and_seqs_are_equal_in_spark_and_python(
    spark: SparkSession, numbering: Numbering
) -> None:
    rows = [(key, number % 7, number + 9) for number, key in enumerate(KEYS)]
    frame = spark.createDataFrame(rows, "key STRING, partition INT, offset BIGINT")
    coordinates = F.col("key"), F.col("partition"), F.col("offset")
    home = partition_column(spark, F.col("key"), 7).alias("home")
    seq = history.seq_of(spark, coordinates, numbering).alias("seq")
    for row in frame.select(*coordinates, home, seq).collect():
        assert row["home"] == partition_of(row["key"], 7)
        assert row["seq"] == numbering.seq(row["key"], row["partition"], row["offset"])


@pytest.mark.parametrize("read", [{}, {0: 0, 1: 0, 2: 0}], ids=["first run", "later run"])
def test_keys_in_several_partitions_are_in_one_order_in_spark_and_sqlite(
    spark: SparkSession, read: dict[int, int]
) -> None:
    draw = random.Random(7)  # noqa: S311 - test data
    records = [
        Stored(str(draw.randrange(20)), n % 3, n // 3, draw.randrange(50), n) for n in range(150)
    ]
    numbering = Numbering.of(0, read, dict.fromkeys(range(3), 50))
    seqs = [numbering.seq(one.key, one.partition, one.offset) for one in records]
    rows = [
        (one.key, one.partition, one.offset, START + timedelta(hours=one.at), seq)
        for one, seq in zip(records, seqs, strict=True)
    ]
    ddl = "key STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, seq BIGINT"
    frame = spark.createDataFrame(rows, ddl)
    found = spark.sql(by_time(numbering, "true"), records=frame).collect()
    ordered = {(row["partition"], row["offset"]): row["seq"] for row in found}
    expected = numbered(numbering, records)
    assert ordered == {place: expected[place] for place in ordered}
    assert len(ordered) > 100


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
    for table in who_holds.RELATIONS:
        version = storage.newest_version(installed(at).tables, table)
        assert version is not None
        read(spark, installed(at).tables, table, version).createOrReplaceTempView(table.name)


def test_both_engines_give_the_same_rows_at_any_time(spark: SparkSession, tmp_path: Path) -> None:
    at = Settings(home=tmp_path)
    history = write(at, [some_history(7)])
    give(spark, at)
    for time in (None, *(START + timedelta(hours=hour) for hour in (2, 5, 10))):
        sql = who_holds.counted_positions(Rule("US"), time)
        by_spark = sorted(tuple(row) for row in spark.sql(sql).collect())
        found = rows(installed(at).tables, sql, dict.fromkeys(who_holds.RELATIONS))
        assert by_spark == sorted(tuple(row.values()) for row in found)
        assert by_spark

        held = spark.sql(who_holds.holders(Rule("US"), time)).collect()
        expected = holders_of(history, time)
        assert {
            row.client: sorted(row.positions, key=position_sort_key) for row in held
        } == expected


def test_both_engines_find_the_same_records_newest_and_newer(
    spark: SparkSession, tmp_path: Path
) -> None:
    at = Settings(home=tmp_path)
    write(at, [some_history(7), some_history(8)])
    events, tables = POSITION_EVENTS, installed(at).tables
    frame = read(spark, tables, events, None)
    early, every = (
        newest_of_keys("r.snapshot < 2 OR r.key < '15'"),
        newest_of_keys(),
    )
    numbering = Numbering.of(0, {}, {0: 90, 1: 90})
    sql = compared(POSITIONS, numbering)
    newest, known = (spark.sql(text, records=frame) for text in (every, early))
    by_spark = spark.sql(sql, newest=newest, known=known).collect()
    own, theirs = (f"({text.format(records=events.name)})" for text in (every, early))
    versions: dict[Table, Version] = {events: None}
    sql = sql.format(newest=own, known=theirs)
    found = FewRows.compared(OpenedTables(tables, versions), POSITIONS, sql)
    assert {row["key"]: row.asDict() for row in by_spark} == {
        row["key"]: row for row in found.rows.to_pylist()
    }
    for codes in ({"NASDAQ"}, {"LON", AWKWARD}, set[str]()):
        at_each = ({"NASDAQ"}, codes)
        by = (who_holds.RuleAt(Rule("US"), dict.fromkeys(at, "US")) for at in at_each)
        held = who_holds.changed_holders(*by)
        theirs_ = spark.sql(held, changed=spark.createDataFrame(found.rows)).collect()
        assert sorted(found.query(held).to_pylist(), key=str) == sorted(
            (row.asDict() for row in theirs_), key=str
        )
    assert {row["is_newer"] for row in by_spark} == {True, False}
    orders: dict[str, Order] = {}
    for row in frame.where(F.col("kind") != RecordKind.REJECTED.value).collect():
        order = order_of(row["seq"], row["snapshot"], row["retry_offset"], row["kind"])
        orders[row["key"]] = max(order, orders.get(row["key"], order))
    assert {row["key"]: row["seq"] for row in by_spark} == {k: o[0] for k, o in orders.items()}


def test_where_few_positions_have_changed_since_the_history_is_not_shuffled(
    spark: SparkSession, tmp_path: Path
) -> None:
    at, time = Settings(home=tmp_path), START + timedelta(hours=5)
    write(at, [some_history(7)])
    give(spark, at)
    plain, few = (
        who_holds.counted_positions(Rule("US"), time, few_changed=few) for few in (False, True)
    )
    assert sorted(spark.sql(few).collect()) == sorted(spark.sql(plain).collect())
    assert rows(installed(at).tables, few, dict.fromkeys(who_holds.RELATIONS))
    with configured(spark, AUTO_BROADCAST, "-1"), configured(spark, PLAN_LENGTH, "100000"):
        assert semi_joins(spark.sql(plain)) == ["SortMergeJoin"]
        assert semi_joins(spark.sql(few)) == ["BroadcastHashJoin"]


AUTO_BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
PLAN_LENGTH = "spark.sql.maxPlanStringLength"


@contextmanager
def configured(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def semi_joins(frame: DataFrame) -> list[str]:
    plan = frame._jdf.queryExecution().sparkPlan().toString()
    return [line.strip(" +-:").split()[0] for line in plan.splitlines() if "LeftSemi" in line]


def test_a_country_of_any_characters_is_compared_by_spark_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    at = Settings(home=tmp_path)
    write(at, [Batch([put("1", "a", "X"), put("2", "a", "Y")], [country_of("X", AWKWARD)])])
    give(spark, at)
    sql = who_holds.counted_positions(Rule(AWKWARD), START + timedelta(hours=1))
    assert [row.position for row in spark.sql(sql).collect()] == ["1"]


@pytest.mark.parametrize("broadcast_rows", [0, THRESHOLDS.broadcast_keys])
@settings(
    max_examples=up_to(3, 2),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.generate],
)
@given(LAYERED_BATCHES)
def test_spark_reads_the_rows_that_datafusion_reads(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    broadcast_rows: int,
    batches: Sequence[Batch],
) -> None:
    set_thresholds(monkeypatch, broadcast_keys=broadcast_rows)
    with tempfile.TemporaryDirectory() as home:
        at = Settings(home=Path(home))
        write(at, batches)
        for snapshot in snapshots.list_all(installed(at).tables):
            for table, version in at_snapshot(snapshot, *LAYERED).items():
                ours = rows(installed(at).tables, f"SELECT * FROM {table.name}", {table: version})  # noqa: S608
                names = [name for name in table.names if name in COMPARED]
                expected = sorted(repr([row[name] for name in names]) for row in ours)
                assert (
                    rows_in_words(read(spark, installed(at).tables, table, version), names)
                    == expected
                )
                if isinstance(version, LayeredVersion):
                    whole = read(
                        spark, installed(at).tables, table, version, keys_of(spark, table, ours)
                    )
                    assert rows_in_words(whole, names) == expected


def rows_in_words(frame: DataFrame, names: list[str]) -> list[str]:
    return sorted(repr([row[name] for name in names]) for row in frame.collect())


def keys_of(spark: SparkSession, table: Table, found: list[dict[str, object]]) -> DataFrame:
    name = table.names[0]
    keys = spark.createDataFrame([(row[name],) for row in found], f"{name} STRING")
    return keys.unionByName(keys.select(F.concat(F.lit("no "), name).alias(name)))


@settings(max_examples=up_to(4, 2), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.lists(CONDITIONS, min_size=20, max_size=20),
    st.lists(ANY_POSITIONS, min_size=20, max_size=20),
)
def test_spark_finds_of_any_condition_what_it_means(
    spark: SparkSession, texts: list[str], positions: list[dict[str, Any]]
) -> None:
    conditions = [parsed(text) for text in texts]
    frame = spark.createDataFrame(
        [(n, *(one[name] for name in TYPES)) for n, one in enumerate(positions)],
        f"n INT, {', '.join(f'{name} STRING' for name in TYPES)}",
    ).withColumnRenamed("position", "key")
    names = who_holds.columns_of("p", "p.country")
    meets = (f"({one.sql.format_map(names)}) IS TRUE" for one in conditions)
    frame.createOrReplaceTempView("near")
    found = spark.sql(f"SELECT {', '.join(meets)} FROM near p ORDER BY p.n").collect()  # noqa: S608
    values = [one | {"amount": float(one["amount"])} for one in positions]
    assert [[*row] for row in found] == [
        [one.is_met(position) is True for one in conditions] for position in values
    ]
