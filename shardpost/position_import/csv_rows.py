"""The rows of a file of CSV, strictly by RFC 4180.

pyarrow's reader of CSV takes a file that is cut within a row, a quote within a value, whole rows in
quotes and mixed row ends without a word, and knows no lines: so CSV is split here.
"""

import re
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import NamedTuple

from shardpost.errors import ShardpostError, single_line
from shardpost.position_import.model.plan import COLUMNS, NUMBERS, column_of, require_type

MOST_QUOTED = 60
# A row with more lines is one whose quote was not closed; the rest of the file is not held then.
_MOST_LINES = 10_000
Values = Sequence[str | None]  # of a row, in the order of COLUMNS
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


class CsvTable(NamedTuple):
    """A file of CSV whose header is read."""

    path: Path
    header: _Row
    names: list[str]
    rows: Iterator[_Row]

    @classmethod
    def begun(cls, path: Path, file: TextIOWrapper) -> "CsvTable | None":
        """Read the header; None of an empty file."""
        rows = _csv_rows(path, file)
        if (header := next(rows, None)) is None:
            return None
        _require_header(path, header)
        names = [name or "" for name in _unquoted(header, _marked(path, header))]
        return cls(path, header, names, rows)

    @property
    def form(self) -> str:
        """What all files of a list must have in common."""
        return f"rows that end with {self.header.end!r}, {self.header.text.strip().lower()}"

    def values(self) -> Iterator[Values]:
        """Check rows by RFC 4180; each has as many values as the header, and ends like it."""
        by_column = {column_of(name): at for at, name in enumerate(self.names)}
        places = [by_column[column] for column in COLUMNS]
        for row in self.rows:
            marked = _marked(self.path, row)
            _require_like(self.path, row, len(marked), self.header, len(self.names))
            for column, at in zip(COLUMNS, places, strict=True):
                if "." in marked[at] and column not in NUMBERS and _ROUNDED.fullmatch(marked[at]):
                    require_type(f"{self.path}: line {row.line}", column, "double", marked[at])
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
                " export it with commas, and with points in decimals"
            )
    if not _columns(header, ",") & {*COLUMNS}:
        expected = f"a header with {', '.join(COLUMNS)}, and no title or `sep=` above it"
        raise wrong(path, header.line, expected, header.text)


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
            raise cut(path, number, line)
        if lines[0].strip("\r\n"):
            yield _Row(number - len(lines) + 1, lines)
        lines = []
    if lines:
        begins = number - len(lines) + 1
        raise wrong(path, begins, "a closing quote", f"none up to line {number}: {lines[0]}")


def _marked(path: Path, row: _Row) -> list[str]:
    """Return the values of a row, of one in quotes only a quote."""
    text = row.text.removesuffix(row.end)
    if "\0" in text:
        raise wrong(path, row.line, "text without NUL characters", "one")
    if '"' not in text and "\r" not in text:
        return text.split(",")
    values = _IN_QUOTES.sub('"', text).split(",")
    if any("\r" in value or ('"' in value and value != '"') for value in values):
        expected = "quotes and line breaks only where RFC 4180 has them, around a whole value"
        raise wrong(path, row.line, expected, text)
    return values


def _unquoted(row: _Row, marked: Sequence[str]) -> list[str | None]:
    """Return the values of a row: `""` is an empty text, nothing is None."""
    if '"' not in marked:
        return [value or None for value in marked]
    quoted = (found[1:-1].replace('""', '"') for found in _IN_QUOTES.findall(row.text))
    return [next(quoted) if value == '"' else value or None for value in marked]


def _require_like(path: Path, row: _Row, values: int, header: _Row, width: int) -> None:
    if values != width:
        raise wrong(path, row.line, f"{width} values, as in the header", f"{values}: {row.text}")
    if row.end != header.end:
        expected = f"a line that ends with {header.end!r}, like the header"
        raise wrong(path, row.line, expected, repr(row.end))
    if len(row.lines) > 1 and all(line.count(",") >= width - 1 for line in row.lines):
        found = f"whole rows in quotes, up to line {row.line + len(row.lines) - 1}: {row.text}"
        raise wrong(path, row.line, "one row", found)


def cut(path: Path, line: int, found: str) -> ShardpostError:
    """Return the error of a last line that does not end."""
    return wrong(path, line, "a line break at the end of the last row", f"none: {found}")


def wrong(path: Path, line: int, expected: str, found: str) -> ShardpostError:
    """Return the error for a malformed line."""
    return ShardpostError(
        f"{path}: line {line}: expected {expected}, found {quoted(found)}: the list may have been"
        " cut or garbled, so nothing is imported: export it again"
    )


def quoted(text: str | None) -> str:
    """Return what is quoted in an error."""
    return single_line(text or "none", MOST_QUOTED)
