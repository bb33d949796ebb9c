"""The rows of the files of a list: each file is read once, strictly, and to its end.

Whatever a list lacks is closed. So nothing of it is left to how a reader forgives: a file that was
cut, or whose rows were swallowed by a quote, is refused, with its line. What is not UTF-8 stays as
it is.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
from pyarrow import parquet, types

from shardpost.errors import ShardpostError, single_line
from shardpost.imports.csv_rows import MOST_QUOTED, CsvTable, Values, cut, quoted, wrong
from shardpost.imports.import_job import GZIP, files_of
from shardpost.imports.model.list_format import FoundColumns, SourceColumn, Target, plain
from shardpost.imports.model.source import FileSource, Format
from shardpost.wording import distinct

ROWS_AT_ONCE = 10_000
# Decodes bytes that are not UTF-8 so that they are encoded as what they were.
_AS_IT_IS = "surrogateescape"


class ListReader:
    """Reads the files of a list. After the last of `parts`, all of it is known.

    `form` is what all files have alike, None of an empty one; `columns` are those of the first, or,
    of JSON, in which an object may lack what another one has, `names` those of all.
    """

    def __init__(self, source: FileSource, target: Target) -> None:
        self.source, self.target, self._before = source, target, _stamps(source)
        self.paths = [path for path, *_ in self._before]
        self.form: str | None = None
        self.columns: list[SourceColumn] = []
        self.names: dict[str, object] = {}
        self.rows = 0

    def parts(self) -> Iterator[pa.Table]:
        """Yield the rows, with the columns of the target as bytes.

        ShardpostError if a file may have been cut, has rows that are none, or changes meanwhile.
        """
        read = _parquet if self.source.format is Format.PARQUET else _texts
        for path in self.paths:
            self._is_empty = True
            try:
                for part in read(self, path):
                    self.rows += part.num_rows
                    yield part
            except (OSError, EOFError, UnicodeError, zlib.error) as error:
                is_packed = path.suffix == GZIP
                kind = f"is not a complete {GZIP} file" if is_packed else "cannot be opened"
                if isinstance(error, UnicodeError):
                    kind = f"is no text in {self.target.profile.encoding}"
                raise ShardpostError(
                    f"{path}: cannot be read: {path.name} {kind} ({error}): write it again"
                ) from None
            if self._is_empty and len(self.paths) > 1:
                raise ShardpostError(f"{path}: expected rows, found an empty file: remove it")
        if _stamps(self.source) != self._before:
            raise ShardpostError(f"{self.source}: changed while it was read: run it again")

    def begin(self, path: Path, form: str, columns: Iterable[SourceColumn]) -> None:
        """Note what the first file has; ShardpostError if another one has something else."""
        self._is_empty = False
        if self.form is None:
            self.form, self.columns = form, [*columns]
        if form != self.form:
            raise ShardpostError(
                f"{path}: expected {quoted(self.form)} as in {self.paths[0]}, found"
                f" {quoted(form)}: write all files of a list alike"
            )

    def found(self) -> FoundColumns:
        """Return the columns that were read; ShardpostError if some are missing or there twice."""
        columns = self.columns or [*map(SourceColumn, self.names)]
        is_empty = self.form is None or not (self.rows or columns)
        return ({}, ()) if is_empty else self.target.find(str(self.source), columns)


def _stamps(source: FileSource) -> list[tuple[Path, int, int]]:
    there = ((path, path.stat()) for path in files_of(Path(source.location)))
    return [(path, found.st_size, found.st_mtime_ns) for path, found in there]


def _texts(reader: ListReader, path: Path) -> Iterator[pa.Table]:
    """Yield the rows of a file of text, unpacked; its lines end with a line feed only."""
    is_packed = path.suffix == GZIP
    if is_packed and not path.stat().st_size:
        raise EOFError("it is empty")
    with gzip.open(path) if is_packed else path.open("rb") as file:
        encoding = reader.target.profile.encoding
        text = TextIOWrapper(cast("BinaryIO", file), encoding, _AS_IT_IS, newline="\n")
        rows = (_csv if reader.source.format is Format.CSV else _json)(reader, path, text)
        while batch := [*islice(rows, ROWS_AT_ONCE)]:
            columns = (
                [None if value is None else value.encode(errors=_AS_IT_IS) for value in values]
                for values in zip(*batch, strict=True)
            )
            arrays = [pa.array(values, pa.binary()) for values in columns]
            yield pa.table(arrays, [*reader.target.read])


def _csv(reader: ListReader, path: Path, file: TextIOWrapper) -> Iterator[Values]:
    table = CsvTable(path, file, reader.target)
    if table.names:
        reader.begin(path, table.form, map(SourceColumn, table.names))
        reader.found()
        yield from table.values()


_OBJECTS, _ARRAY = "objects in lines", "an array"
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _json(reader: ListReader, path: Path, file: TextIOWrapper) -> Iterator[Values]:
    """Check an array of objects, or an object in each line."""
    form = None
    for number, line in enumerate(file, 1):
        if not (text := line.strip()):
            continue
        if form is None and text.startswith("["):
            form, text = _ARRAY, (line + file.read()).strip()
            rows = _parsed(path, number, text)
        elif line.endswith("\n"):
            form, rows = _OBJECTS, [_parsed(path, number, text)]
        else:
            raise cut(path, number, line)
        reader.begin(path, form, ())
        for at, row in enumerate(rows, 1):
            if not isinstance(row, dict):
                raise _no_json(path, number, text)
            where = f"{path}: line {number}" + f", object {at}" * (len(rows) > 1)
            yield _values_of(reader, where, row)


def _values_of(reader: ListReader, where: str, row: dict[str, Any]) -> Values:
    reader.names.update(row)
    read, values = reader.target.read, dict[str, str | None]()
    for name, value in row.items():
        own, text = plain(name), value if isinstance(value, str | None) else json.dumps(value)
        for column in () if type(value) in {str, type(None)} else read:
            if read[column] == own:
                found = quoted(text)
                type_ = _TYPES.get(type(value), found)
                reader.target.require_type(where, column, type_, found)
        values[own] = text
    return [*map(values.get, read.values())]


class _Fraction(str):
    """A number of JSON with a point or an exponent, as it was written."""

    __slots__ = ()


_TYPES = {bool: "boolean", _Fraction: "double"}


def _parsed(path: Path, number: int, text: str) -> Any:
    """Parse JSON by RFC 8259; refuse duplicate names and unpaired surrogates."""
    try:
        found = _JSON.decode(text)
        if _HALF.search(text):
            # Bytes that are not UTF-8 are the business of who decodes them.
            escapes = _JSON.decode(text.encode(errors="replace").decode())
            json.dumps(escapes, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - MOST_QUOTED // 2) :]
        fault = f"{error.msg.removesuffix(' at')}: {near}"
        raise _no_json(path, number + error.lineno - 1, fault) from None
    except UnicodeEncodeError:
        raise _no_json(path, number, f"a lone surrogate: {text}") from None
    except (ValueError, RecursionError) as error:
        raise _no_json(path, number, f"{error}: {text}") from None
    return found


def _none(constant: str) -> None:
    raise ValueError(f"{constant}, which is not JSON")


_JSON = json.JSONDecoder(
    object_pairs_hook=distinct, parse_constant=_none, parse_int=str, parse_float=_Fraction
)


_SPARK_TYPES = {"large_string": "string", "string_view": "string", "bool": "boolean", "null": "int"}


def _spark_type(type_: Any) -> str:
    """Return Spark's name of a type of texts or numbers in Arrow; of another, Arrow's."""
    if types.is_dictionary(type_):
        type_ = type_.value_type
    if types.is_integer(type_):
        return "decimal(20,0)" if str(type_) == "uint64" else "bigint"
    found = _SPARK_TYPES.get(str(type_), str(type_))
    return re.sub(r"decimal\d+\((\d+), (\d+)\)", r"decimal(\1,\2)", found)


def _parquet(reader: ListReader, path: Path) -> Iterator[pa.Table]:
    try:
        with parquet.ParquetFile(path) as file:
            fields = [*file.schema_arrow]
            columns = [SourceColumn(one.name, _spark_type(one.type)) for one in fields]
            form = ", ".join(f"{one.name} {one.type}" for one in fields)
            reader.begin(path, form, columns)
            names = [one.name for one in reader.found()[0].values()]
            for batch in file.iter_batches(columns=[*dict.fromkeys(names)]):
                texts = (batch[name].cast(pa.string()) for name in names)
                yield pa.table([text.cast(pa.binary()) for text in texts], [*reader.target.read])
    except pa.ArrowException as error:
        reason = single_line(str(error), 2 * MOST_QUOTED)
        raise ShardpostError(
            f"{path}: cannot be read: {path.name} is not a complete Parquet file ({reason}):"
            " write it again"
        ) from None


def _no_json(path: Path, line: int, found: str) -> ShardpostError:
    return wrong(path, line, "JSON objects, one in each line or all in one array", found)
