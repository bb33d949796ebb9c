"""Reading a list with Spark's own readers: every column as text, so that no digit is lost.

In JSON, numbers become texts before they are parsed: where Spark reads a number as text itself, it
makes a floating-point number of it first.

Files are found to be whole before Spark reads exactly these (list_files.py). What Spark cannot read
then is an error, and so is another number of rows.

Frames: one row for each row of the list, with the columns of model/plan.py (all STRING).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
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
from shardpost.position_import.list_files import ListFiles, files_of, require_whole
from shardpost.position_import.model.plan import COLUMNS, POSITION_ID, FoundColumns, find_columns
from shardpost.position_import.model.source import FileSource, Format, JdbcSource, Source
from shardpost.settings import Settings
from shardpost.wording import counted

MOST_CHARACTERS = 300
_NO_FILE = "File file:"
NOT_SEEN = (
    "it was removed meanwhile, or a worker of Spark does not see it: put the list where all workers"
    " have it at the same path, or import it with SHARDPOST_SPARK_MASTER=local[*]"
)
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
    found = lines[-1][:MOST_CHARACTERS]
    return f"{found}: {NOT_SEEN}" if found.startswith(_NO_FILE) else found


_ROWS = "rows"
_OPTIONS = {"mode": "FAILFAST", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


def json_rows(texts: DataFrame, names: Sequence[str], is_array: bool) -> DataFrame:
    """Return (names…), all STRING, of the objects in `text`, or in the array that it is."""
    fields = ", ".join(f"{_quoted(name)} STRING" for name in names)
    inner = F.regexp_replace("text", r"^\[|\]$", "") if is_array else F.col("text")
    document = F.concat(F.lit(f'{{"{_ROWS}":['), decoding.with_numbers_quoted(inner), F.lit("]}"))
    parsed = F.from_json(document, f"{_ROWS} ARRAY<STRUCT<{fields}>>", _OPTIONS)
    return texts.select(F.explode(parsed.getField(_ROWS)).alias("row")).select("row.*")


def _quoted(name: str) -> str:
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


FETCH_ROWS = "10000"
_CSV = {
    "header": "true",
    "multiLine": "true",  # a quoted text may have line breaks
    "escape": '"',  # RFC 4180
    "enforceSchema": "false",  # each file of a folder has the same header
    "encoding": "UTF-8",
    "mode": "FAILFAST",
}
_JSON = {"primitivesAsString": "true", "mode": "FAILFAST"}
_NESTED = (StructType, ArrayType, MapType)
_FLOATING = (DoubleType, FloatType)


@dataclass(frozen=True)
class SourceRows:
    """The rows of a list, the columns of it that are ignored, and its files if it has some."""

    frame: DataFrame
    ignored: tuple[str, ...] = ()
    files: ListFiles | None = None

    def require_all(self, read: int, source: Source) -> None:
        """Raise ShardpostError unless Spark has read as many rows as the files were found to have.

        They differ if a file was changed meanwhile. No file may have been added, either.
        """
        if self.files is None or not isinstance(source, FileSource):
            return
        there = tuple(map(str, files_of(Path(source.location))))
        if (read, there) != (self.files.rows, self.files.paths):
            raise ShardpostError(
                f"{source}: expected {counted(self.files.rows, 'row')} in"
                f" {counted(len(self.files.paths), 'file')}, as at first, found {read} in"
                f" {len(there)}: it was changed meanwhile: run it again"
            )


def read_source(spark: SparkSession, settings: Settings, source: Source) -> SourceRows:
    """Return the rows of a list; ShardpostError if it cannot be read, or lacks a column."""
    if isinstance(source, JdbcSource):
        with source_errors(str(source)):
            return _jdbc(spark, settings, source)
    files = require_whole(source)
    readers = {Format.CSV: _csv, Format.JSON: _json, Format.PARQUET: _parquet}
    with source_errors(str(source)):
        found = readers[source.format](spark, source, files)
    return replace(found, files=files)


def _csv(spark: SparkSession, source: FileSource, files: ListFiles) -> SourceRows:
    if not files.has_text:
        return _no_rows(spark)
    there = spark.read.options(**_CSV).csv(_paths(files)).columns
    found = find_columns(str(source), there)
    ddl = ", ".join(f"{_quoted(name)} STRING" for name in there)
    return _selected(spark.read.options(**_CSV).schema(ddl).csv(_paths(files)), found)


def _json(spark: SparkSession, source: FileSource, files: ListFiles) -> SourceRows:
    if not files.rows:
        return _no_rows(spark)
    options = _JSON | {"multiLine": str(files.is_array).lower()}
    schema = spark.read.options(**options).json(_paths(files)).schema
    found = find_columns(str(source), schema.names)
    _require_plain(source, schema, found)
    whole = spark.read.text(_paths(files), wholetext=files.is_array)
    texts = whole.select(_without_mark("value").alias("text")).where("text != ''")
    return _selected(json_rows(texts, list(found.names.values()), files.is_array), found)


def _parquet(spark: SparkSession, source: FileSource, files: ListFiles) -> SourceRows:
    rows = spark.read.parquet(*_paths(files))
    found = find_columns(str(source), rows.columns)
    _require_plain(source, rows.schema, found)
    _require_whole_ids(source, rows.schema[found.names[POSITION_ID]].dataType)
    return _selected(rows, found, rows.schema)


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
    if isinstance(id_type := schema[found.names[POSITION_ID]].dataType, _FLOATING):
        _require_whole_ids(source, id_type)
    as_text = ", ".join(f"{_quoted(name)} STRING" for name in found.names.values())
    return _selected(reader.option("customSchema", as_text).load(), found, schema)


def _selected(rows: DataFrame, found: FoundColumns, schema: StructType | None = None) -> SourceRows:
    """Return the columns of a list as text; `schema` has the types that they had."""
    columns = []
    for column, name in found.names.items():
        text = F.col(_quoted(name)).cast("string")
        is_floating = schema is not None and isinstance(schema[name].dataType, _FLOATING)
        columns.append((_plain(text) if is_floating else text).alias(column))
    return SourceRows(rows.select(*columns), found.ignored)


_EXPONENT = r"^(-?)(\d)(?:\.(\d*?)0*)?[eE]([+-]?\d+)$"


def _plain(text: Column) -> Column:
    """Return a floating-point number without an exponent: 1.0E7 is 10000000, 1.5E-4 is 0.00015."""
    sign, first, behind, power = (F.regexp_extract(text, _EXPONENT, n) for n in range(1, 5))
    digits, shift = F.concat(first, behind), power.cast("int")
    places = F.length(digits) - 1 - shift
    whole = F.rpad(digits, shift + 1, "0")
    parts = F.concat(F.left(digits, shift + 1), F.lit("."), F.right(digits, places))
    below = F.concat(F.lit("0."), F.repeat(F.lit("0"), -shift - 1), digits)
    number = F.when(shift < 0, below).when(places > 0, parts).otherwise(whole)
    return F.when(F.rlike(text, F.lit(_EXPONENT)), F.concat(sign, number)).otherwise(text)


def _no_rows(spark: SparkSession) -> SourceRows:
    ddl = ", ".join(f"{name} STRING" for name in COLUMNS)
    return SourceRows(spark.createDataFrame([], ddl))


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
    if is_decimal or isinstance(type_, _FLOATING):
        raise ShardpostError(
            f"{source}: expected text or whole numbers for {POSITION_ID}, found"
            f" {type_.simpleString()}: write the list with ids as text"
        )


def _paths(files: ListFiles) -> list[str]:
    return [f"file://{path}" for path in files.paths]
