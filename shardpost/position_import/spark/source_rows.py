"""The rows of a list: every column is read as text, so that no digit is lost.

Files are read once (list_files.py) into a file of Parquet beside the tables, where all workers of
Spark see it. It is removed when the list was compared, or else by the next import.

Its rows are then the records that they would be, judged by the rules of all records (those of the
compaction, holders/spark/decoding.py): each row becomes the value that would be produced, and that
is decoded. So what is equal here is equal there.

Frames: one row for each row of the list, with the columns of model/plan.py (all STRING); of
`as_records` rows with KEY, `value` (BINARY), the columns of the fields, `reason` (null of a good
row) and `row` (a struct of the values as they were read); `states` one for each key.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from itertools import chain
from operator import and_
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta import parquet_files
from shardpost.delta.table import Table, ddl_of
from shardpost.errors import ShardpostError
from shardpost.holders.model.fields import POSITION_FIELDS
from shardpost.holders.spark.decoding import decoded
from shardpost.installation import Installation
from shardpost.kafka.records import BATCH_OVERHEAD
from shardpost.position_import.list_files import ListReader
from shardpost.position_import.model.plan import (
    COLUMNS,
    NUMBERS,
    POSITION_ID,
    FoundColumns,
    SourceColumn,
    find_columns,
)
from shardpost.position_import.model.source import FileSource, JdbcSource, Source
from shardpost.spark import delta_files, driver

# The rows of the files of a list, as they were read; not committed.
LISTED = Table("import_list", tuple((name, "BINARY") for name in COLUMNS))


@contextmanager
def source_errors(source: str) -> Iterator[None]:
    """Turn an error of reading that source into a ShardpostError."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ShardpostError(f"{source}: cannot be read: {driver.innermost_cause(error)}") from None


_WITH_POINT = ("double", "float", "decimal")
_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"  # where Spark keeps char(10) of a database


def read_source(
    spark: SparkSession, installation: Installation, source: Source
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return the rows of a list, and which columns of it are ignored.

    ShardpostError if it cannot be read, or lacks a column.
    """
    if isinstance(source, FileSource):
        tables, name, reader = installation.tables, f"{uuid4()}.parquet", ListReader(source)
        _, rows = parquet_files.write_parts(tables, LISTED, reader.parts(), name)
        paths = delta_files.paths(tables, LISTED, [name] if rows else [])
        found = reader.found()
        return _as_text(delta_files.read_files(spark, LISTED, paths), found), found.ignored
    with source_errors(str(source)):
        return _jdbc(spark, installation, source)


def _jdbc(
    spark: SparkSession, installation: Installation, source: JdbcSource
) -> tuple[DataFrame, tuple[str, ...]]:
    # A subquery, which no `;` and no comment at its end may close.
    query = source.query.rstrip("; \t\r\n") + "\n" if source.query else None
    options = {
        "url": source.url,
        "driver": source.driver.class_name,
        "fetchsize": "10000",
        "dbtable": source.table,
        "query": query,
        "user": installation.settings.import_jdbc_user,
        "password": installation.settings.import_jdbc_password,
    }
    given = {name: value for name, value in options.items() if value is not None}
    reader = spark.read.format("jdbc").options(**given)
    there = [
        SourceColumn(one.name, one.metadata.get(_CHAR_TYPE, one.dataType.simpleString()))
        for one in reader.load().schema
    ]
    found = find_columns(str(source), there)
    as_text = ddl_of(tuple((one.name, "STRING") for one in found.columns.values()))
    rows = reader.option("customSchema", as_text).load()
    named = (F.col(f"`{one.name}`").alias(column) for column, one in found.columns.items())
    return _as_text(rows.select(*named), found), found.ignored


def _as_text(rows: DataFrame, found: FoundColumns) -> DataFrame:
    """Return the columns of a list as text: one for each value, whatever the source."""
    columns = []
    for column in COLUMNS:
        text = F.col(column).cast("string")
        type_ = found.columns[column].type if found.columns else ""
        if type_.startswith(_WITH_POINT):
            text = _plain(text)
        elif type_.startswith("char("):  # databases pad it, and compare it without
            text = F.rtrim(text)
        columns.append(text.alias(column))
    return rows.select(*columns)


_EXPONENT = r"^(-?)(\d)(?:\.(\d*?)0*)?[eE]([+-]?\d+)$"
_LAST_ZEROS = r"\.0+$|(\.\d*[1-9])0+$"
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # as Arrow has them


def _plain(text: Column) -> Column:
    """Return a number without an exponent, and without zeros at its end behind the point.

    1.0E7 is 10000000, 1.5E-4 is 0.00015, and 100.0 is 100: sources write one value in many ways.
    """
    sign, first, behind, power = (F.regexp_extract(text, _EXPONENT, n) for n in range(1, 5))
    digits, shift = F.concat(first, behind), power.cast("int")
    places = F.length(digits) - 1 - shift
    whole = F.rpad(digits, shift + 1, "0")
    parts = F.concat(F.left(digits, shift + 1), F.lit("."), F.right(digits, places))
    below = F.concat(F.lit("0."), F.repeat(F.lit("0"), -shift - 1), digits)
    number = F.when(shift < 0, below).when(places > 0, parts).otherwise(whole)
    plain = F.when(F.rlike(text, F.lit(_EXPONENT)), F.concat(sign, number)).otherwise(text)
    plain = F.regexp_replace(plain, _LAST_ZEROS, "$1")
    return F.coalesce(F.create_map(*map(F.lit, chain(*_NOT_FINITE.items())))[text], plain)


FIELD_COLUMNS = tuple(field.column for field in POSITION_FIELDS)
# What a record takes at most besides key and value: of headers it has its import id.
_MORE_BYTES = BATCH_OVERHEAD + 1024
# JSON's numbers (RFC 8259, 6). What is none becomes a text, which decoding rejects.
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_MOST_QUOTED = 100
_NULLS = {
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key: string, value: binary>>",
}


def as_records(source: DataFrame, largest: int) -> DataFrame:
    """Return the rows of a list as rows of records.

    `largest` is how many bytes the topic accepts. `key` is null of a row whose id cannot be read.
    """
    key = F.when((F.col(POSITION_ID) != "") & _is_utf8(POSITION_ID), F.col(POSITION_ID))
    nulls = [F.lit(None).cast(type_).alias(name) for name, type_ in _NULLS.items()]
    fields = (F.concat(F.lit(f'"{name}":'), _json(name)) for name in COLUMNS)
    value = F.concat(F.lit("{"), F.concat_ws(",", *fields), F.lit("}"))
    # Why a row is rejected before it could be a record.
    is_nameless = F.coalesce(F.col(POSITION_ID), F.lit("")) == ""
    own_reason = F.when(is_nameless, f"expected a {POSITION_ID}, found none").when(
        ~reduce(and_, map(_is_utf8, COLUMNS)), "expected UTF-8, found other bytes"
    )
    raw = source.select(
        F.coalesce(key, F.lit("?")).cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        *nulls,
        key.alias("readable_key"),
        own_reason.alias("own_reason"),
        F.struct(*COLUMNS).alias("row"),
    )
    found = decoded(raw, POSITION_FIELDS, ("readable_key", "own_reason", "row"))
    size = F.octet_length("value") + F.octet_length(F.col("readable_key")) + F.lit(_MORE_BYTES)
    too_large = f"expected a record of at most {largest} bytes, found %d"
    reason = F.coalesce(
        "own_reason",
        F.regexp_replace("reason", "found null$", "found nothing"),
        F.when(size > largest, F.format_string(too_large, size)),
    )
    return found.select(
        F.col("readable_key").alias("key"), "value", *FIELD_COLUMNS, reason.alias("reason"), "row"
    )


def states(rows: DataFrame) -> DataFrame:
    """Return (key, value, fields, times, is_good) of each id that can be read.

    Rows of one id with equal values are one; where they differ, or one is rejected, it is not good.
    """
    fields = F.struct(*FIELD_COLUMNS)
    by_key = (
        rows.where("key IS NOT NULL")
        .groupBy("key")
        .agg(
            F.min(fields).alias("first"),
            F.max(fields).alias("last"),
            F.min("value").alias("value"),
            F.count(F.lit(1)).alias("times"),
            F.count("reason").alias("bad"),
        )
    )
    is_good = (F.col("bad") == 0) & F.col("first").eqNullSafe(F.col("last"))
    return by_key.select("key", "value", "first.*", "times", "bad", is_good.alias("is_good"))


def rejected(rows: DataFrame, states: DataFrame) -> DataFrame:
    """Return (reason, row) of each row that changes nothing."""
    values = {name: F.left(F.col("row").getField(name), F.lit(_MOST_QUOTED)) for name in COLUMNS}
    rows = rows.withColumn("row", F.struct(*(one.alias(name) for name, one in values.items())))
    own = rows.where("reason IS NOT NULL").select("reason", "row")
    unclear = states.where("NOT is_good AND times > bad").select("key", "times", "bad")
    differ = F.format_string(f"{POSITION_ID} is given %d times, with different values", "times")
    is_bad = F.lit(f"another row with this {POSITION_ID} is rejected")
    why = F.when(F.col("bad") > 0, is_bad).otherwise(differ)
    good = rows.where("reason IS NULL").select("key", "row")
    others = good.join(unclear, "key").select(why.alias("reason"), "row")
    return own.unionByName(others)


def _is_utf8(name: str) -> Column:
    return F.is_valid_utf8(F.coalesce(name, F.lit("")))


def _json(name: str) -> Column:
    """Return a value as JSON: a number as it was written, all else as text or null."""
    in_array = F.to_json(F.array(name))
    text = F.substring(in_array, F.lit(2), F.length(in_array) - 2)
    if name not in NUMBERS:
        return text
    return F.when(F.col(name).rlike(_NUMBER), F.col(name)).otherwise(text)
