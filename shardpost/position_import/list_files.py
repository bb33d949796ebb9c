"""The files of a list: which there are, and whether each is whole.

Whatever a list lacks is closed. So nothing of it is left to how a reader forgives: names that Spark
would pass over are refused, and each file is read to its end here, before Spark reads exactly the
same files. A file that was cut, or whose rows were swallowed by a quote, is refused; and the number
of rows that is found here is the number that Spark has to find.
"""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from shardpost.errors import ShardpostError, UsageError, single_line
from shardpost.position_import.model.plan import COLUMNS, SourceColumn, column_of, require_type
from shardpost.position_import.model.source import COMPRESSED, FileSource, Format

GZIP = ".gz"
# Spark takes these in a path as a pattern, and leaves out files whose names begin so.
_PATTERNS = "*?[]{}\\"
_LEFT_OUT = ("_", ".")
_MOST_QUOTED = 60
# A row with more lines is one whose quote was not closed; the rest of the file is not held then.
_MOST_LINES = 10_000


class ListFiles(NamedTuple):
    """A file of a list, or all of them, each of them whole: columns, and how many rows they have.

    `form` is what all files have alike, None of an empty one; `row_end` ends each row of CSV.
    """

    form: str | None = None
    rows: int = 0
    columns: tuple[SourceColumn, ...] = ()
    row_end: str = "\n"
    is_utf8: bool = True
    paths: tuple[str, ...] = ()


def files_of(path: Path) -> list[Path]:
    """Return the files of a list, a file or a folder; UsageError for what would be left out."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    _require_name(path)
    if not path.is_dir():
        return [_readable(path)]
    try:
        found = [one for one in sorted(path.iterdir()) if not _is_mark(one)]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if not found:
        raise UsageError(f"{path}: expected files in this folder, found none")
    for one in found:
        _require_name(one)
    return [_readable(one) for one in found]


def _is_mark(path: Path) -> bool:
    """Tell whether it is what Spark writes beside files: that it is done, and their checksums."""
    if path.name == "_SUCCESS":
        return path.is_file() and not path.stat().st_size
    is_sum = path.name.startswith(".") and path.name.endswith(".crc")
    return is_sum and path.with_name(path.name[1:-4]).is_file()


def _require_name(path: Path) -> None:
    if wrong := set(_PATTERNS) & set(str(path)) or set(":" * path.is_file()) & set(path.name):
        raise UsageError(f"{path}: Spark cannot read a name with {min(wrong)!r}: rename it")
    if path.name.startswith(_LEFT_OUT):
        raise UsageError(
            f"{path}: Spark leaves out names that begin with _ or a dot: rename it, or move it away"
            " if it is not of the list"
        )


def _readable(path: Path) -> Path:
    if path.is_dir():
        raise UsageError(
            f"{path}: expected only files in the folder of a list, found a folder, which Spark"
            " leaves out: move its files up, or give that folder"
        )
    if not path.is_file():
        what = "a link to none, a pipe or a device"
        raise UsageError(f"{path}: expected a file, found {what}: write the list to a file")
    suffix = path.suffix
    if suffix.lower() in COMPRESSED and suffix != GZIP:
        helps = f"rename it to {path.stem}{GZIP}" if suffix.lower() == GZIP else "unpack it"
        raise UsageError(f"{path}: expected no compression but {GZIP}, found {suffix}: {helps}")
    return path


def require_whole(source: FileSource) -> ListFiles:
    """Return the files of a list after reading each to its end.

    ShardpostError, with file and line, if one may have been cut, or has rows that are none.
    """
    readers = {Format.CSV: _csv, Format.JSON: _json, Format.PARQUET: _parquet}
    paths = files_of(Path(source.location))
    found = [_checked(path, readers[source.format]) for path in paths]
    for path, one in zip(paths, found, strict=True):
        if one.form is None and len(found) > 1:
            raise ShardpostError(f"{path}: expected rows, found an empty file: remove it")
        if one.form != found[0].form:
            raise ShardpostError(
                f"{path}: expected what {paths[0]} has, {_quoted(found[0].form)}, found"
                f" {_quoted(one.form)}: write all files of a list alike"
            )
    columns = found[0].columns
    if source.format is Format.JSON:  # an object may lack what another one has
        columns = tuple(dict.fromkeys(column for one in found for column in one.columns))
    return found[0]._replace(
        rows=sum(one.rows for one in found),
        columns=columns,
        is_utf8=all(one.is_utf8 for one in found),
        paths=tuple(map(str, paths)),
    )


def _checked(path: Path, read: Callable[[Path, str], ListFiles]) -> ListFiles:
    try:
        try:
            return read(path, "strict")
        except UnicodeDecodeError:
            return read(path, "replace")._replace(is_utf8=False)
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        kind = f"is no whole file of {GZIP}" if path.suffix == GZIP else "cannot be opened"
        raise ShardpostError(
            f"{path}: cannot be read: {path.name} {kind} ({error}): write it again"
        ) from None


@contextmanager
def _text(path: Path, errors: str) -> Iterator[TextIOWrapper]:
    """Open a file, unpacked, as text whose lines end with a line feed only."""
    is_packed = path.suffix == GZIP
    if is_packed and not path.stat().st_size:
        raise EOFError("it is empty")
    with gzip.open(path) if is_packed else path.open("rb") as file:
        binary = cast("BinaryIO", file)
        yield TextIOWrapper(binary, encoding="utf-8-sig", errors=errors, newline="\n")


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


def _csv(path: Path, errors: str) -> ListFiles:
    """Check rows by RFC 4180; each has as many values as the header, and ends like it."""
    with _text(path, errors) as file:
        rows = _csv_rows(path, file)
        if (header := next(rows, None)) is None:
            return ListFiles()
        _require_header(path, header)
        width, count = len(_values(path, header)), 0
        names = next(csv.reader(header.lines))
        own = [(at, column) for at, name in enumerate(names) if (column := column_of(name))]
        for row in rows:
            count += 1
            values = _values(path, row)
            _require_like(path, row, len(values), header, width)
            for at, column in own:
                if "." in values[at] and _ROUNDED.fullmatch(values[at]):
                    require_type(f"{path}: line {row.line}", column, "double", values[at])
    form = f"rows that end with {header.end!r}, {header.text.strip().lower()}"
    return ListFiles(form, count, tuple(map(SourceColumn, names)), header.end)


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


def _values(path: Path, row: _Row) -> list[str]:
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


_OBJECTS, ARRAYS = "objects in lines", "an array"
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _json(path: Path, errors: str) -> ListFiles:
    """Check an array of objects, or an object in each line."""
    form, count = None, 0
    names: dict[str, None] = {}
    with _text(path, errors) as file:
        for number, line in enumerate(file, 1):
            if not (text := line.strip()):
                continue
            if not count and text.startswith("["):
                form, text = ARRAYS, (line + file.read()).strip()
                rows = _parsed(path, number, text)
            elif line.endswith("\n"):
                form, rows = _OBJECTS, [_parsed(path, number, text)]
            else:
                raise _cut(path, number, line)
            names |= _names(path, number, text, rows)
            count += len(rows)
    return ListFiles(form, count, tuple(map(SourceColumn, names)))


def _parsed(path: Path, number: int, text: str) -> Any:
    """Return JSON by RFC 8259, with names that are there once, and characters that are whole."""
    try:
        found = _JSON.decode(text)
        if _HALF.search(text):
            json.dumps(found, ensure_ascii=False).encode()
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


def _names(path: Path, number: int, text: str, rows: list[Any]) -> dict[str, None]:
    """Return the names in objects; refuse what is none, or has a value of a wrong type."""
    names: dict[str, None] = {}
    for at, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise _no_json(path, number, text)
        names |= dict.fromkeys(row)
        for name, value in row.items():
            if not isinstance(value, str | None) and (column := column_of(name)):
                where = f"{path}: line {number}" + f", object {at}" * (len(rows) > 1)
                found = _quoted(json.dumps(value))
                require_type(where, column, _TYPES.get(type(value), found), found)
    return names


_TYPES = {bool: "boolean", float: "double"}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a name twice in one object, of {', '.join(name for name, _ in pairs)}")
    return found


def _none(constant: str) -> None:
    raise ValueError(f"{constant}, which is no JSON")


_JSON = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_none, parse_int=str)


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


def _parquet(path: Path, _errors: str) -> ListFiles:
    """Check that the footer is there, which is what Parquet ends with."""
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            fields = [*file.schema_arrow]
            columns = tuple(SourceColumn(one.name, _spark_type(one.type)) for one in fields)
            form = ", ".join(f"{one.name} {one.type}" for one in fields)
            return ListFiles(form, file.metadata.num_rows, columns)
    except ArrowException as error:
        reason = single_line(str(error), 2 * _MOST_QUOTED)
        raise ShardpostError(
            f"{path}: cannot be read: {path.name} is not a Parquet file, or not a whole one"
            f" ({reason}): write it again"
        ) from None


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
