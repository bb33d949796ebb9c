"""The rows of a list as the records that they would be, judged by the rules of all records.

The rules are those of the compaction (holders/spark/decoding.py): each row becomes the value that
would be produced, and that is decoded. So what is equal here is equal there.

Frames: rows with KEY, `value` (BINARY), the columns of the fields, `reason` (null of a good row)
and `row` (a struct of the values as they were read); `states` one for each key.
"""

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardpost.holders.model.fields import POSITION_FIELDS
from shardpost.holders.spark.decoding import decoded
from shardpost.kafka.records import BATCH_OVERHEAD
from shardpost.position_import.model.plan import COLUMNS, NUMBERS, POSITION_ID

FIELD_COLUMNS = tuple(field.column for field in POSITION_FIELDS)
# What a record takes at most besides key and value: of headers it has its import id.
_MORE_BYTES = BATCH_OVERHEAD + 1024
# JSON's numbers (RFC 8259, 6). What is none becomes a text, which decoding rejects.
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_REPLACEMENT = "\ufffd"
_MOST_QUOTED = 100
_COORDINATES = ("partition INT", "offset BIGINT", "timestamp TIMESTAMP")


def as_records(source: DataFrame, largest: int, *, is_utf8: bool = True) -> DataFrame:
    """Return the rows of a list (source_rows.py) as rows of records.

    `largest` is how many bytes the topic accepts. `key` is null of a row whose id cannot be read.
    If its files are not `is_utf8`, U+FFFD is what Spark has made of other bytes.
    """
    key = F.when((F.col(POSITION_ID) != "") & _is_read(POSITION_ID, is_utf8), F.col(POSITION_ID))
    nulls = [F.lit(None).cast(type_).alias(name) for name, type_ in map(str.split, _COORDINATES)]
    headers = F.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers")
    raw = source.select(
        F.coalesce(key, F.lit("?")).cast("binary").alias("key"),
        _value().cast("binary").alias("value"),
        *nulls,
        headers,
        key.alias("readable_key"),
        _own_reason(is_utf8).alias("own_reason"),
        F.struct(*COLUMNS).alias("row"),
    )
    found = decoded(raw, POSITION_FIELDS, ("readable_key", "own_reason", "row"))
    size = F.octet_length("value") + F.octet_length(F.col("readable_key")) + F.lit(_MORE_BYTES)
    reason = F.coalesce(
        "own_reason",
        F.regexp_replace("reason", "found null$", "found nothing"),
        F.when(
            size > largest,
            F.concat(F.lit(f"expected a record of at most {largest} bytes, found "), size),
        ),
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
    rows = rows.withColumn("row", F.struct(*map(_shortened, COLUMNS)))
    own = rows.where("reason IS NOT NULL").select("reason", "row")
    unclear = states.where("NOT is_good AND times > bad").select("key", "times", "bad")
    why = F.when(
        F.col("bad") > 0, F.lit(f"another row with this {POSITION_ID} is rejected")
    ).otherwise(
        F.concat(
            F.lit(f"{POSITION_ID} is given "), F.col("times"), F.lit(" times, with other values")
        )
    )
    good = rows.where("reason IS NULL").select("key", "row")
    others = good.join(unclear, "key").select(why.alias("reason"), "row")
    return own.unionByName(others)


def _shortened(name: str) -> Column:
    return F.left(F.col("row").getField(name), F.lit(_MOST_QUOTED)).alias(name)


def _is_read(name: str, is_utf8: bool) -> Column:
    """Tell whether a text of the list is what its bytes say."""
    text = F.coalesce(name, F.lit(""))
    return F.is_valid_utf8(text) & (F.lit(is_utf8) | ~F.contains(text, F.lit(_REPLACEMENT)))


def _own_reason(is_utf8: bool) -> Column:
    """Return why a row is rejected before it could be a record; null if it is not."""
    is_read = reduce(and_, (_is_read(name, is_utf8) for name in COLUMNS))
    is_nameless = F.coalesce(F.col(POSITION_ID), F.lit("")) == ""
    return F.when(is_nameless, f"expected a {POSITION_ID}, found none").when(
        ~is_read, "expected UTF-8, found other bytes"
    )


def _value() -> Column:
    parts: list[Column] = []
    for name in COLUMNS:
        parts += [F.lit("{" if not parts else ","), F.lit(f'"{name}":'), _json(name)]
    return F.concat(*parts, F.lit("}"))


def _json(name: str) -> Column:
    """Return a value as JSON: a number as it was written, all else as text or null."""
    in_array = F.to_json(F.array(name))
    text = F.substring(in_array, F.lit(2), F.length(in_array) - 2)
    if name not in NUMBERS:
        return text
    return F.when(F.col(name).rlike(_NUMBER), F.col(name)).otherwise(text)
