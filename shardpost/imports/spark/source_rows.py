"""The rows of a list: every column is read as text, so that no digit is lost.

Files are read once (list_files.py) into a file of Parquet beside the tables, where all workers of
Spark see it. It is removed when the list was compared, or else by the next import.

Its rows become the values that would be produced, and those are decoded as all records are
(holders/spark/decoding.py). So what is equal here is equal there.

Frames: one row for each row of the list, with `Target.all_columns` (all STRING); of `as_records`
rows with KEY, `value` (BINARY), the columns of the fields, `reason` (null of a good row) and `row`
(a struct of the values as they were read); `states` one for each key.

Of an increment only rows from the last watermark on are taken. That is in the headers of the
decision, in the last transaction of its records: so the two cannot differ.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from itertools import chain
from operator import and_
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from shardpost.decisions import Kind, decisions_topic
from shardpost.delta import parquet_files
from shardpost.delta.table import Table, ddl_of
from shardpost.errors import ShardpostError
from shardpost.holders.model.fields import BLANKS, FieldType, columns_of, has_id_as_key
from shardpost.holders.spark.decoding import decoded
from shardpost.imports.list_files import ListReader
from shardpost.imports.model import source as sources
from shardpost.imports.model.list_format import WATERMARK, Profile, SourceColumn, Target
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import BATCH_OVERHEAD
from shardpost.spark import delta_files, driver

# The folder of the rows of a list's files, as they were read; not committed.
LISTED = Table("import_list", ())


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
    spark: SparkSession, installation: Installation, source: sources.Source, target: Target
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return the rows of a list, and which columns of it are ignored.

    ShardpostError if it cannot be read, or lacks a column.
    """
    if isinstance(source, sources.FileSource):
        tables, name, reader = installation.tables, f"{uuid4()}.parquet", ListReader(source, target)
        listed = replace(LISTED, columns=tuple((one, "BINARY") for one in target.read))
        _, count = parquet_files.write_parts(tables, listed, reader.parts(), name)
        paths = delta_files.paths(tables, listed, [name] if count else [])
        found, ignored = reader.found()
        return _as_text(delta_files.read_files(spark, listed, paths), target, found), ignored
    with source_errors(str(source)):
        return _jdbc(spark, installation, source, target)


def _jdbc(
    spark: SparkSession, installation: Installation, source: sources.JdbcSource, target: Target
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
    found, ignored = target.find(str(source), there)
    # All but flags, of which each database has texts of its own.
    names = {one.name: "STRING" for one in found.values() if one.type != "boolean"}
    as_text = ddl_of(tuple(names.items()))
    rows = reader.option("customSchema", as_text).load()
    named = (F.col(f"`{one.name}`").alias(column) for column, one in found.items())
    return _as_text(rows.select(*named), target, found), ignored


def _as_text(rows: DataFrame, target: Target, found: Mapping[str, SourceColumn]) -> DataFrame:
    """Return the columns of a list as text: one for each value, whatever the source."""
    columns, values = [], target.profile.values
    for column in target.all_columns:
        text = F.lit(values[column] or None) if column in values else F.col(column).cast("string")
        type_ = found[column].type if column in found else ""
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


def as_records(source: DataFrame, target: Target, largest: int) -> DataFrame:
    """Return the rows of a list as rows of records.

    `largest` is how many bytes the topic accepts. `key` is null of a row whose id cannot be read.
    """
    name = F.coalesce(target.key, F.lit(""))
    is_nameless = (F.trim(name, F.lit(BLANKS)) if has_id_as_key(target.fields) else name) == ""
    key = F.when(~is_nameless & _is_utf8(target.key), F.col(target.key))
    nulls = [F.lit(None).cast(type_).alias(name) for name, type_ in _NULLS.items()]
    fields = (F.concat(F.lit(f'"{name}":'), _json(name, target)) for name in target.columns)
    value = F.concat(F.lit("{"), F.concat_ws(",", *fields), F.lit("}"))
    # Why a row is rejected before it could be a record.
    own_reason = F.when(is_nameless, f"expected a {target.key}, found none").when(
        ~reduce(and_, map(_is_utf8, target.columns)), "expected UTF-8, found other bytes"
    )
    if target.watermark:
        own_reason = own_reason.when(mark_of(F.col(WATERMARK)).isNull(), EXPECTED)
    raw = source.select(
        F.coalesce(key, F.lit("?")).cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        *nulls,
        key.alias("readable_key"),
        own_reason.alias("own_reason"),
        F.struct(*target.all_columns).alias("row"),
    )
    found = decoded(raw, target.fields, ("readable_key", "own_reason", "row"))
    size = F.octet_length("value") + F.octet_length(F.col("readable_key")) + F.lit(_MORE_BYTES)
    too_large = f"expected a record of at most {largest} bytes, found %d"
    reason = F.coalesce(
        "own_reason",
        F.regexp_replace("reason", "found null$", "found nothing"),
        F.when(size > largest, F.format_string(too_large, size)),
    )
    columns = map(F.col, ("value", *field_columns(target), "row"))
    return found.select(F.col("readable_key").alias("key"), *columns, reason.alias("reason"))


def field_columns(target: Target) -> list[str]:
    """Return the columns of the fields of its records."""
    return [name for name, _ in columns_of(target.fields)]


def states(rows: DataFrame, target: Target) -> DataFrame:
    """Return (key, value, fields, times, is_good) of each id that can be read.

    Rows of one id with equal values are one; where they differ, or one is rejected, it is not good.
    """
    fields = F.struct(*field_columns(target))
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


def rejected(rows: DataFrame, states: DataFrame, target: Target) -> DataFrame:
    """Return (reason, row) of each row that changes nothing."""
    names, key = target.all_columns, target.key
    values = {name: F.left(F.col("row").getField(name), F.lit(_MOST_QUOTED)) for name in names}
    rows = rows.withColumn("row", F.struct(*(one.alias(name) for name, one in values.items())))
    own = rows.where("reason IS NOT NULL").select("reason", "row")
    unclear = states.where("NOT is_good AND times > bad").select("key", "times", "bad")
    differ = F.format_string(f"{key} is given %d times, with different values", "times")
    is_bad = F.lit(f"another row with this {key} is rejected")
    why = F.when(F.col("bad") > 0, is_bad).otherwise(differ)
    good = rows.where("reason IS NULL").select("key", "row")
    others = good.join(unclear, "key").select(why.alias("reason"), "row")
    return own.unionByName(others)


def _is_utf8(name: str) -> Column:
    return F.is_valid_utf8(F.coalesce(name, F.lit("")))


def _json(name: str, target: Target) -> Column:
    """Return a value as JSON: a number with its digits, a flag, all else as text or null."""
    in_array = F.to_json(F.array(name))
    text = F.substring(in_array, F.lit(2), F.length(in_array) - 2)
    if target.type_of(name) is FieldType.NUMBER:
        number = _number(F.col(name), target.profile)
        return F.when(number.rlike(_NUMBER), number).otherwise(text)
    if target.type_of(name) is FieldType.FLAG:
        return F.when(F.lower(name).isin("true", "false"), F.lower(name)).otherwise(text)
    return text


def _number(text: Column, profile: Profile) -> Column:
    """Return a number with a point, and no other marks; null for one that is written otherwise."""
    decimal, mark = profile.decimal, profile.thousands or ""
    if (decimal, mark) == (".", ""):
        return text
    groups = rf"[0-9]{{1,3}}(\Q{mark}\E[0-9]{{3}})+|" if mark else ""
    is_own = text.rlike(rf"^-?({groups}[0-9]+)(\Q{decimal}\E[0-9]+)?$")
    plain = F.replace(F.replace(text, F.lit(mark), F.lit("")), F.lit(decimal), F.lit("."))
    return F.when(is_own, plain)


# A number, or a time by ISO 8601; one without a zone is of UTC.
_MARK_NUMBER = r"^-?[0-9]{1,28}(\.[0-9]{1,10})?$"
_MARK_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?$"
EXPECTED = "expected a number, or a time such as 2026-11-21T08:00:00Z, as watermark"


def last_watermark(kafka: Kafka, request: sources.ImportRequest) -> str | None:
    """Return where an increment begins; None if none was applied, or it is forgotten.

    An older one than the last, by another clock, would only have rows taken again.
    """
    if not request.watermark:
        return None
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    found = [
        (decision.when, headers[sources.WATERMARK_HEADER].decode())
        for decision, headers in decisions_topic.list_since(kafka, long_ago, {Kind.IMPORTED})
        if headers.get(sources.STREAM_HEADER) == request.stream.encode()
    ]
    return max(found)[1] if found else None


def mark_of(text: Column) -> Column:
    """Return (kind, at) of a watermark: a number, of a time its microseconds; null if neither."""
    number, time = text.try_cast("decimal(38,10)"), F.unix_micros(text.try_cast("timestamp"))
    time = F.when(text.rlike(_MARK_TIME), time.cast("decimal(38,10)"))
    number = F.when(text.rlike(_MARK_NUMBER), number)
    at = F.coalesce(number, time).alias("at")
    return F.when(at.isNotNull(), F.struct(number.isNull().alias("is_time"), at))


def increment(rows: DataFrame, since: str | None) -> DataFrame:
    """Return the rows of records from a watermark on, of each key those with its newest.

    With those whose watermark is none, or of another kind: nothing is passed over.
    """
    mark, last = mark_of(F.col("row").getField(WATERMARK)), mark_of(F.lit(since).cast("string"))
    is_old = (mark < last) & (mark.getField("is_time") == last.getField("is_time"))
    rows = rows.where(~F.coalesce(is_old, F.lit(False)))
    is_older = F.col("key").isNotNull() & (mark < F.max(mark).over(Window.partitionBy("key")))
    rows = rows.withColumn("is_old", F.coalesce(is_older, F.lit(False)))
    return rows.where("NOT is_old").drop("is_old")


def next_watermark(rows: DataFrame, rejected: DataFrame, since: str | None) -> str | None:
    """Return where the next increment begins: at the lowest rejected row, else at the newest."""
    own = F.col("row").getField(WATERMARK)
    [(lowest,)] = rejected.select(F.min_by(own, mark_of(own))).collect()
    [(newest,)] = rows.select(F.max_by(own, mark_of(own))).collect()
    return lowest or newest or since
