"""Reading a list with Spark's own readers: every column as text, so that no digit is lost.

In JSON, numbers become texts before they are parsed: where Spark reads a number as text itself, it
makes a floating-point number of it first.

Frames: one row for each row of the list, with the columns of model/plan.py and BROKEN (all STRING):
the text of a row that could not be parsed, else null. ALIGNED (BOOLEAN) says whether what was
parsed of a broken row stands in its columns.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
)

from shardpost.errors import ShardpostError
from shardpost.holders.spark import decoding
from shardpost.position_import.model.plan import COLUMNS, POSITION_ID, FoundColumns, find_columns
from shardpost.position_import.model.source import FileSource, Format, JdbcSource, Source
from shardpost.settings import Settings

MOST_CHARACTERS = 300
_DEEPEST = 20


@contextmanager
def source_errors(source: str) -> Iterator[None]:
    """Turn an error of reading that source into a ShardpostError."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ShardpostError(f"{source}: cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return the first line of the cause that lies deepest."""
    texts = [str(error)]
    cause: Any = getattr(error, "_origin", None)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
    for _ in range(_DEEPEST):
        if cause is None:
            break
        texts.append(str(cause.getMessage() or cause.getClass().getSimpleName()))
        cause = cause.getCause()
    lines = [line for text in texts if (line := text.strip().split("\n", 1)[0].strip())]
    return lines[-1][:MOST_CHARACTERS]


BROKEN = "broken"
_ROWS = "rows"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": BROKEN,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def json_rows(texts: DataFrame, names: Sequence[str], is_array: bool) -> DataFrame:
    """Return (names…, BROKEN), all STRING, of the objects in `text`, or in the array that it is.

    Of a text that is broken anywhere, one row that has it as BROKEN and nothing else.
    """
    fields = ", ".join(f"{_quoted(name)} STRING" for name in names)
    schema = f"{_ROWS} ARRAY<STRUCT<{fields}>>, {BROKEN} STRING"
    text = F.col("text")
    inner = F.regexp_replace(text, r"^\[|\]$", "") if is_array else text
    document = F.concat(F.lit(f'{{"{_ROWS}":['), decoding.with_numbers_quoted(inner), F.lit("]}"))
    parsed = texts.select("text", F.from_json(document, schema, _OPTIONS).alias("parsed"))
    rows = F.col("parsed").getField(_ROWS)
    is_good = F.col("parsed").getField(BROKEN).isNull() & rows.isNotNull()
    is_good &= decoding.unpaired_surrogate(text) == ""
    nothing = [F.lit(None).cast("string").alias(name) for name in names]
    broken = F.array(F.struct(*nothing, text.alias(BROKEN)))
    good = F.transform(rows, lambda row: _with_nothing_broken(row, names))
    return parsed.select(F.explode(F.when(is_good, good).otherwise(broken)).alias("row")).select(
        "row.*"
    )


def _with_nothing_broken(row: Column, names: Sequence[str]) -> Column:
    values = [row.getField(name).alias(name) for name in names]
    return F.struct(*values, F.lit(None).cast("string").alias(BROKEN))


def _quoted(name: str) -> str:
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


ALIGNED = "aligned"
FETCH_ROWS = "10000"
_CSV = {
    "header": "true",
    "multiLine": "true",  # a quoted text may have line breaks
    "escape": '"',  # RFC 4180
    "enforceSchema": "false",  # each file of a folder has the same header
    "encoding": "UTF-8",
    "columnNameOfCorruptRecord": BROKEN,
}
_JSON = {"columnNameOfCorruptRecord": BROKEN, "primitivesAsString": "true"}
_NESTED = (StructType, ArrayType, MapType)


@dataclass(frozen=True)
class SourceRows:
    """The rows of a list, and the columns of it that are ignored."""

    frame: DataFrame
    ignored: tuple[str, ...] = ()


def read_source(spark: SparkSession, settings: Settings, source: Source) -> SourceRows:
    """Return the rows of a list; ShardpostError if it cannot be read, or lacks a column."""
    with source_errors(str(source)):
        if isinstance(source, JdbcSource):
            return _jdbc(spark, settings, source)
        readers = {Format.CSV: _csv, Format.JSON: _json, Format.PARQUET: _parquet}
        return readers[source.format](spark, source)


def _csv(spark: SparkSession, source: FileSource) -> SourceRows:
    there = spark.read.options(**_CSV).csv(_path(source)).columns
    if not there:
        return _no_rows(spark)
    found = find_columns(str(source), there)
    ddl = ", ".join(f"{_quoted(name)} STRING" for name in (*there, BROKEN))
    rows = spark.read.options(**_CSV).schema(ddl).csv(_path(source))
    is_first = there[0] == found.names[POSITION_ID]
    aligned = ~F.contains(BROKEN, F.lit("\n")) & (
        F.lit(is_first) | F.col(_quoted(there[-1])).isNull()
    )
    return _selected(rows, found, F.col(BROKEN), aligned)


def _json(spark: SparkSession, source: FileSource) -> SourceRows:
    lines = spark.read.text(_path(source)).select(_without_mark("value").alias("line"))
    first = lines.where("line != ''").select(F.left("line", F.lit(1))).first()
    if first is None:
        return _no_rows(spark)
    is_array = first[0] == "["
    options = _JSON | {"multiLine": str(is_array).lower()}
    schema = spark.read.options(**options).json(_path(source)).schema
    there = [name for name in schema.names if name != BROKEN]
    if not schema.names:
        return _no_rows(spark)
    if not there:
        raise ShardpostError(
            f"{source}: expected JSON objects, one in each line or all in one array, found other"
            " text"
        )
    found = find_columns(str(source), there)
    _require_plain(source, schema, found)
    whole = spark.read.text(_path(source), wholetext=is_array)
    texts = whole.select(_without_mark("value").alias("text")).where("text != ''")
    return _selected(json_rows(texts, list(found.names.values()), is_array), found, F.col(BROKEN))


def _parquet(spark: SparkSession, source: FileSource) -> SourceRows:
    rows = spark.read.parquet(_path(source))
    found = find_columns(str(source), rows.columns)
    _require_plain(source, rows.schema, found)
    _require_whole_ids(source, rows.schema[found.names[POSITION_ID]].dataType)
    return _selected(rows, found)


def _jdbc(spark: SparkSession, settings: Settings, source: JdbcSource) -> SourceRows:
    what = {"dbtable": source.table} if source.table else {"query": str(source.query)}
    options = {
        "url": source.url,
        "driver": source.driver.class_name,
        "fetchsize": FETCH_ROWS,
        **what,
    }
    if settings.import_jdbc_user is not None:
        options["user"] = settings.import_jdbc_user
    if settings.import_jdbc_password is not None:
        options["password"] = settings.import_jdbc_password
    reader = spark.read.format("jdbc").options(**options)
    schema = reader.load().schema
    found = find_columns(str(source), schema.names)
    _require_plain(source, schema, found)
    if isinstance(id_type := schema[found.names[POSITION_ID]].dataType, DoubleType | FloatType):
        _require_whole_ids(source, id_type)
    as_text = ", ".join(f"{_quoted(name)} STRING" for name in found.names.values())
    return _selected(reader.option("customSchema", as_text).load(), found)


def _selected(
    rows: DataFrame,
    found: FoundColumns,
    broken: Column | None = None,
    aligned: Column | None = None,
) -> SourceRows:
    columns = [F.col(_quoted(found.names[name])).cast("string").alias(name) for name in COLUMNS]
    text = F.lit(None).cast("string") if broken is None else broken
    is_aligned = F.lit(False) if aligned is None else F.coalesce(aligned, F.lit(True))
    frame = rows.select(*columns, text.alias(BROKEN), is_aligned.alias(ALIGNED))
    return SourceRows(frame, found.ignored)


def _no_rows(spark: SparkSession) -> SourceRows:
    ddl = ", ".join(f"{name} STRING" for name in (*COLUMNS, BROKEN))
    return SourceRows(spark.createDataFrame([], f"{ddl}, {ALIGNED} BOOLEAN"))


def _without_mark(column: str) -> Column:
    """Return text without a byte order mark and the blanks before it."""
    return F.trim(F.ltrim(F.col(column), F.lit("\ufeff")), F.lit(" \t\r\n"))


def _require_plain(source: Source, schema: StructType, found: FoundColumns) -> None:
    for column, name in found.names.items():
        if isinstance(type_ := schema[name].dataType, _NESTED):
            raise ShardpostError(
                f"{source}: expected text or numbers for {column}, found {type_.simpleString()}"
            )


def _require_whole_ids(source: Source, type_: DataType) -> None:
    """Refuse ids with decimal places: 1 would become 1.0, which is another position."""
    is_decimal = isinstance(type_, DecimalType) and type_.scale > 0
    if is_decimal or isinstance(type_, DoubleType | FloatType):
        raise ShardpostError(
            f"{source}: expected text or whole numbers for {POSITION_ID}, found"
            f" {type_.simpleString()}: write the list with ids as text"
        )


def _path(source: FileSource) -> str:
    return source.location if "://" in source.location else f"file://{source.location}"
