"""The rows of the files of a list: each file is read once, strictly, and to its end.

Whatever a list lacks is closed. So nothing of it is left to how a reader forgives: a file that was
cut, or whose rows were swallowed by a quote, is refused, with its line. What is not UTF-8 stays as
it is. pyarrow's reader of CSV takes a file that is cut within a row, a quote within a value, whole
rows in quotes and mixed row ends without a word, and knows no lines: so CSV is split here.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from shardpost.errors import ShardpostError, single_line
from shardpost.position_import.import_job import GZIP, files_of
from shardpost.position_import.model.plan import (
    COLUMNS,
    NUMBERS,
    FoundColumns,
    SourceColumn,
    column_of,
    find_columns,
    require_type,
)
from shardpost.position_import.model.source import FileSource, Format

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_QUOTED = 60
# A row with more lines is one whose quote was not closed; the rest of the file is not held then.
_MOST_LINES = 10_000
ROWS_AT_ONCE = 10_000
# Decodes bytes that are not UTF-8 so that they are encoded as what they were.
_AS_IT_IS = "surrogateescape"
Values = Sequence[str | None]  # of a row, in the order of COLUMNS


class ListReader:
    """Reads the files of a list. After the last of `parts`, all of it is known.

    `form` is what all files have alike, None of an empty one; `columns` are those of the first, or,
    of JSON, in which an object may lack what another one has, `names` those of all.
    """

    def __init__(self, source: FileSource) -> None:
        self.source, self._before = source, _stamps(source)
        self.paths = [path for path, *_ in self._before]
        self.form: str | None = None
        self.columns: list[SourceColumn] = []
        self.names: dict[str, object] = {}
        self.rows = 0

    def parts(self) -> "Iterator[pa.Table]":
        """Yield the rows, with COLUMNS as bytes.

        ShardpostError if a file may have been cut, has rows that are none, or changes meanwhile.
        """
        read = _parquet if self.source.format is Format.PARQUET else _texts
        for path in self.paths:
            self._is_empty = True
            with _errors_of(path):
                for part in read(self, path):
                    self.rows += part.num_rows
                    yield part
            if self._is_empty and len(self.paths) > 1:
                raise ShardpostError(f"{path}: expected rows, found an empty file: remove it")
        if _stamps(self.source) != self._before:
            raise ShardpostError(f"{self.source}: it was changed meanwhile: run it again")

    def begin(self, path: Path, form: str, columns: Iterable[SourceColumn]) -> None:
        """Note what the first file has; ShardpostError if another one has something else."""
        self._is_empty = False
        if self.form is None:
            self.form, self.columns = form, [*columns]
        if form != self.form:
            raise ShardpostError(
                f"{path}: expected what {self.paths[0]} has, {_quoted(self.form)}, found"
                f" {_quoted(form)}: write all files of a list alike"
            )

    def found(self) -> FoundColumns:
        """Return the columns that were read; ShardpostError if some are missing or there twice."""
        columns = self.columns or [*map(SourceColumn, self.names)]
        is_empty = self.form is None or not (self.rows or columns)
        return FoundColumns({}, ()) if is_empty else find_columns(str(self.source), columns)


def _stamps(source: FileSource) -> list[tuple[Path, int, int]]:
    there = ((path, path.stat()) for path in files_of(Path(source.location)))
    return [(path, found.st_size, found.st_mtime_ns) for path, found in there]


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        kind = f"is no whole file of {GZIP}" if path.suffix == GZIP else "cannot be opened"
        raise ShardpostError(
            f"{path}: cannot be read: {path.name} {kind} ({error}): write it again"
        ) from None


def _texts(reader: ListReader, path: Path) -> "Iterator[pa.Table]":
    """Yield the rows of a file of text, unpacked; its lines end with a line feed only."""
    import pyarrow as pa

    is_packed = path.suffix == GZIP
    if is_packed and not path.stat().st_size:
        raise EOFError("it is empty")
    with gzip.open(path) if is_packed else path.open("rb") as file:
        text = TextIOWrapper(cast("BinaryIO", file), "utf-8-sig", _AS_IT_IS, newline="\n")
        rows = (_csv if reader.source.format is Format.CSV else _json)(reader, path, text)
        while batch := [*islice(rows, ROWS_AT_ONCE)]:
            columns = (
                [None if value is None else value.encode(errors=_AS_IT_IS) for value in values]
                for values in zip(*batch, strict=True)
            )
            yield pa.table([pa.array(values, pa.binary()) for values in columns], [*COLUMNS])


# A quoted field by RFC 4180; in it a quote is doubled.
_IN_QUOTES = re.compile(r'"(?:[^"]|"")*+"')


class _Row(NamedTuple):
    """A row of CSV as it stands in the file: the number of its first line, and its lines."""

    line: int
    lines: list[str]

    @property
    def text(self) -> str:
        return "".join(self.lines)

    @property
    def end(self) -> str:
        return "\r\n" if self.lines[-1].endswith("\r\n") else "\n"


def _csv(reader: ListReader, path: Path, file: TextIOWrapper) -> Iterator[Values]:
    """Check rows by RFC 4180; each has as many values as the header, and ends like it."""
    rows = _csv_rows(path, file)
    if (header := next(rows, None)) is None:
        return
    _require_header(path, header)
    marked = _marked(path, header)
    width, names = len(marked), [name or "" for name in _unquoted(header, marked)]
    form = f"rows that end with {header.end!r}, {header.text.strip().lower()}"
    reader.begin(path, form, map(SourceColumn, names))
    reader.found()
    by_column = {column_of(name): at for at, name in enumerate(names)}
    places = [by_column[column] for column in COLUMNS]
    for row in rows:
        marked = _marked(path, row)
        _require_like(path, row, len(marked), header, width)
        for column, at in zip(COLUMNS, places, strict=True):
            if "." in marked[at] and column not in NUMBERS and _ROUNDED.fullmatch(marked[at]):
                require_type(f"{path}: line {row.line}", column, "double", marked[at])
        values = _unquoted(row, marked)
        yield [values[at] for at in places]


# What tools write for a number that may have been an id, without quotes: 1.0, and Excel 1.23E+11.
_ROUNDED = re.compile(r"-?\d+\.0+|-?\d\.\d+[eE]\+\d+")
_OTHER_MARKS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def _require_header(path: Path, header: _Row) -> None:
    """Refuse columns that are separated otherwise, as by spreadsheets, and a line above them."""
    for mark, what in _OTHER_MARKS.items():
        if _columns(header, mark) >= {*COLUMNS}:
            raise ShardpostError(
                f"{path}: line {header.line}: expected commas between the columns, found {what}:"
                " write it again with commas, and with points in decimals"
            )
    if not _columns(header, ",") & {*COLUMNS}:
        expected = f"a header with {', '.join(COLUMNS)}, and no title or `sep=` above it"
        raise _wrong(path, header.line, expected, header.text)


def _columns(header: _Row, mark: str) -> set[str | None]:
    return {column_of(name.strip(' "\r\n')) for name in header.text.split(mark)}


def _csv_rows(path: Path, file: TextIOWrapper) -> Iterator[_Row]:
    """Yield all rows that are not empty: one goes on while a quote is open."""
    lines: list[str] = []
    is_open = False
    number = 0
    for number, line in enumerate(file, 1):
        lines.append(line)
        is_open ^= line.count('"') % 2 == 1
        if is_open and len(lines) <= _MOST_LINES:
            continue
        if is_open:
            break
        if not line.endswith("\n"):
            raise _cut(path, number, line)
        if lines[0].strip("\r\n"):
            yield _Row(number - len(lines) + 1, lines)
        lines = []
    if lines:
        begins = number - len(lines) + 1
        raise _wrong(
            path, begins, "a quote that is closed", f"none up to line {number}: {lines[0]}"
        )


def _marked(path: Path, row: _Row) -> list[str]:
    """Return the values of a row, of one in quotes only a quote."""
    text = row.text.removesuffix(row.end)
    if "\0" in text:
        raise _wrong(path, row.line, "text without NUL characters", "one")
    if '"' not in text and "\r" not in text:
        return text.split(",")
    values = _IN_QUOTES.sub('"', text).split(",")
    if any("\r" in value or ('"' in value and value != '"') for value in values):
        expected = "quotes and line breaks only where RFC 4180 has them, around a whole value"
        raise _wrong(path, row.line, expected, text)
    return values


def _unquoted(row: _Row, marked: Sequence[str]) -> list[str | None]:
    """Return the values of a row: `""` is an empty text, nothing is None."""
    if '"' not in marked:
        return [value or None for value in marked]
    quoted = (found[1:-1].replace('""', '"') for found in _IN_QUOTES.findall(row.text))
    return [next(quoted) if value == '"' else value or None for value in marked]


def _require_like(path: Path, row: _Row, values: int, header: _Row, width: int) -> None:
    if values != width:
        raise _wrong(path, row.line, f"{width} values, as in the header", f"{values}: {row.text}")
    if row.end != header.end:
        raise _wrong(
            path, row.line, f"a line that ends with {header.end!r}, as the header", repr(row.end)
        )
    if len(row.lines) > 1 and all(line.count(",") >= width - 1 for line in row.lines):
        last = row.line + len(row.lines) - 1
        raise _wrong(
            path, row.line, "one row", f"whole rows in quotes, up to line {last}: {row.text}"
        )


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
            raise _cut(path, number, line)
        reader.begin(path, form, ())
        for at, row in enumerate(rows, 1):
            if not isinstance(row, dict):
                raise _no_json(path, number, text)
            where = f"{path}: line {number}" + f", object {at}" * (len(rows) > 1)
            yield _values_of(reader, where, row)


def _values_of(reader: ListReader, where: str, row: dict[str, Any]) -> Values:
    """Return the values of an object; refuse one of a wrong type."""
    reader.names.update(row)
    values: dict[str | None, str | None] = {}
    for name, value in row.items():
        text = value if isinstance(value, str | None) else json.dumps(value)
        if type(value) not in _TEXT and (column := column_of(name)):
            found = _quoted(text)
            require_type(where, column, _TYPES.get(type(value), found), found)
        values[column_of(name)] = text
    return [values.get(column) for column in COLUMNS]


class _Fraction(str):
    """A number of JSON with a point or an exponent, as it was written."""

    __slots__ = ()


_TEXT = (str, type(None))
_TYPES = {bool: "boolean", _Fraction: "double"}


def _parsed(path: Path, number: int, text: str) -> Any:
    """Return JSON by RFC 8259, with names that are there once, and characters that are whole."""
    try:
        found = _JSON.decode(text)
        if _HALF.search(text):
            # Bytes that are not UTF-8 are the business of who decodes them.
            escapes = _JSON.decode(text.encode(errors="replace").decode())
            json.dumps(escapes, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - _MOST_QUOTED // 2) :]
        raise _no_json(
            path, number + error.lineno - 1, f"{error.msg.removesuffix(' at')}: {near}"
        ) from None
    except UnicodeEncodeError:
        raise _no_json(path, number, f"half of a surrogate pair: {text}") from None
    except (ValueError, RecursionError) as error:
        raise _no_json(path, number, f"{error}: {text}") from None
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a name twice in one object, of {', '.join(name for name, _ in pairs)}")
    return found


def _none(constant: str) -> None:
    raise ValueError(f"{constant}, which is no JSON")


_JSON = json.JSONDecoder(
    object_pairs_hook=_once, parse_constant=_none, parse_int=str, parse_float=_Fraction
)


_SPARK_TYPES = {"large_string": "string", "string_view": "string", "bool": "boolean", "null": "int"}


def _spark_type(type_: Any) -> str:
    """Return Spark's name of a type of texts or numbers in Arrow; of another, Arrow's."""
    from pyarrow import types

    if types.is_dictionary(type_):
        type_ = type_.value_type
    if types.is_integer(type_):
        return "decimal(20,0)" if str(type_) == "uint64" else "bigint"
    found = _SPARK_TYPES.get(str(type_), str(type_))
    return re.sub(r"decimal\d+\((\d+), (\d+)\)", r"decimal(\1,\2)", found)


def _parquet(reader: ListReader, path: Path) -> "Iterator[pa.Table]":
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            fields = [*file.schema_arrow]
            columns = [SourceColumn(one.name, _spark_type(one.type)) for one in fields]
            form = ", ".join(f"{one.name} {one.type}" for one in fields)
            reader.begin(path, form, columns)
            found = reader.found().columns
            names = [found[column].name for column in COLUMNS]
            for batch in file.iter_batches(columns=names):
                yield pa.table([_as_bytes(batch[name]) for name in names], [*COLUMNS])
    except pa.ArrowException as error:
        reason = single_line(str(error), 2 * _MOST_QUOTED)
        raise ShardpostError(
            f"{path}: cannot be read: {path.name} is not a Parquet file, or not a whole one"
            f" ({reason}): write it again"
        ) from None


def _as_bytes(values: Any) -> Any:
    """Return a column as text."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.string()).cast(pa.binary())


def _cut(path: Path, line: int, found: str) -> ShardpostError:
    return _wrong(path, line, "a line break at the end of the last row", f"none: {found}")


def _no_json(path: Path, line: int, found: str) -> ShardpostError:
    return _wrong(path, line, "JSON objects, one in each line or all in one array", found)


def _wrong(path: Path, line: int, expected: str, found: str) -> ShardpostError:
    return ShardpostError(
        f"{path}: line {line}: expected {expected}, found {_quoted(found)}: the list may have been"
        " cut or garbled, so nothing is imported: write it again"
    )


def _quoted(text: str | None) -> str:
    return single_line(text or "none", _MOST_QUOTED)
