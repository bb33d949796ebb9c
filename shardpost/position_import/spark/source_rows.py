"""Reading a list with Spark's own readers: every column as text, so that no digit is lost.

In JSON, numbers become texts before they are parsed: where Spark reads a number as text itself, it
makes a floating-point number of it first.

Files are found to be whole before Spark reads exactly these (list_files.py). What Spark cannot read
then is an error, and so is another number of rows.

Frames: one row for each row of the list, with the columns of model/plan.py (all STRING).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.errors import ShardpostError
from shardpost.holders.spark import decoding
from shardpost.installation import Installation
from shardpost.position_import.list_files import ARRAYS, ListFiles, files_of, require_whole
from shardpost.position_import.model.plan import COLUMNS, FoundColumns, SourceColumn, find_columns
from shardpost.position_import.model.source import FileSource, Format, JdbcSource, Source
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
    "encoding": "UTF-8",
    "nullValue": "\0",  # not in the files, so that "" is a text, and no value is null
    "mode": "FAILFAST",
}
_FLOATING = ("double", "float")
_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"  # where Spark keeps char(10) of a database


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


def read_source(spark: SparkSession, installation: Installation, source: Source) -> SourceRows:
    """Return the rows of a list; ShardpostError if it cannot be read, or lacks a column."""
    if isinstance(source, JdbcSource):
        with source_errors(str(source)):
            return _jdbc(spark, installation, source)
    files = require_whole(source)
    if files.form is None or not (files.rows or files.columns):
        nothing = ", ".join(f"{name} STRING" for name in COLUMNS)
        return SourceRows(spark.createDataFrame([], nothing), files=files)
    found = find_columns(str(source), files.columns)
    readers = {Format.CSV: _csv, Format.JSON: _json, Format.PARQUET: _parquet}
    with source_errors(str(source)):
        rows = readers[source.format](spark, files, [*found.columns.values()])
        return SourceRows(_selected(rows, found), found.ignored, files)


def _csv(spark: SparkSession, files: ListFiles, own: Sequence[SourceColumn]) -> DataFrame:
    """Return the rows, by the places of the columns: others may have no name, or one twice."""
    there = (one if one in own else SourceColumn(f"_{at}") for at, one in enumerate(files.columns))
    reader = spark.read.options(**_CSV, lineSep=files.row_end).schema(_schema(there))
    return reader.csv(_paths(files))


def _json(spark: SparkSession, files: ListFiles, own: Sequence[SourceColumn]) -> DataFrame:
    is_array = files.form == ARRAYS
    whole = spark.read.text(_paths(files), wholetext=is_array)
    texts = whole.select(_without_mark("value").alias("text")).where("text != ''")
    return json_rows(texts, [one.name for one in own], is_array)


def _parquet(spark: SparkSession, files: ListFiles, own: Sequence[SourceColumn]) -> DataFrame:
    """Return the rows, without a look at ignored columns: Spark does not know all types."""
    return spark.read.schema(_schema(own)).parquet(*_paths(files))


def _schema(columns: Iterable[SourceColumn]) -> str:
    return ", ".join(f"{_quoted(name)} {type_}" for name, type_ in columns)


def _jdbc(spark: SparkSession, installation: Installation, source: JdbcSource) -> SourceRows:
    what = {"dbtable": source.table}
    if source.query:  # a subquery, which no `;` and no comment at its end may close
        what = {"query": source.query.rstrip("; \t\r\n") + "\n"}
    options = {
        "url": source.url,
        "driver": source.driver.class_name,
        "fetchsize": FETCH_ROWS,
        **what,
    }
    login = {
        "user": installation.settings.import_jdbc_user,
        "password": installation.settings.import_jdbc_password,
    }
    options |= {name: value for name, value in login.items() if value is not None}
    reader = spark.read.format("jdbc").options(**options)
    there = [
        SourceColumn(one.name, one.metadata.get(_CHAR_TYPE, one.dataType.simpleString()))
        for one in reader.load().schema
    ]
    found = find_columns(str(source), there)
    as_text = _schema(SourceColumn(one.name) for one in found.columns.values())
    rows = _selected(reader.option("customSchema", as_text).load(), found)
    return SourceRows(rows, found.ignored)


def _selected(rows: DataFrame, found: FoundColumns) -> DataFrame:
    """Return the columns of a list as text."""
    columns = []
    for column, (name, type_) in found.columns.items():
        text = F.col(_quoted(name)).cast("string")
        if type_ in _FLOATING:
            text = _plain(text)
        elif type_.startswith("char("):  # databases pad it, and compare it without
            text = F.rtrim(text)
        columns.append(text.alias(column))
    return rows.select(*columns)


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


def _without_mark(column: str) -> Column:
    """Return text without a byte order mark and the blanks before it."""
    return F.trim(F.ltrim(F.col(column), F.lit("\ufeff")), F.lit(" \t\r\n"))


def _paths(files: ListFiles) -> list[str]:
    return [f"file://{path}" for path in files.paths]
