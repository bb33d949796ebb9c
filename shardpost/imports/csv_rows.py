"""The rows of a file of CSV, strictly by RFC 4180, or as its profile says that it is written.

Other readers of CSV, Python's and pyarrow's, take a file that is cut within a row, a quote within a
value, whole rows in quotes and mixed row ends without a word, or cannot tell `""` from nothing: so
CSV is split here.
"""

import re
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path

from shardpost.errors import ShardpostError, single_line
from shardpost.holders.model.fields import FieldType
from shardpost.imports.model.list_format import Target, plain
from shardpost.wording import counted

MOST_QUOTED = 60
# A row with more lines is one whose quote was not closed; the rest of the file is not held then.
_MOST_LINES = 10_000
Values = Sequence[str | None]  # of a row, in the order of the target's columns
# What tools write for a number that may have been an id, without quotes: 1.0, and Excel 1.23E+11.
_ROUNDED = re.compile(r"-?\d+\.0+|-?\d\.\d+[eE]\+\d+")
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


Row = tuple[int, str]  # as it stands in the file: the number of its first line, and its lines


class CsvTable:
    """A file of CSV whose header is read: the `names` of its columns, none of an empty one."""

    def __init__(self, path: Path, file: TextIOWrapper, target: Target) -> None:
        self._path, self._target, self._profile = path, target, target.profile
        mark, quote = map(re.escape, (self._profile.delimiter, self._profile.quote))
        # Without quotes, or in quotes: there a quote is doubled.
        in_quotes = f"{quote}(?:[^{quote}]|{quote}{quote})*+{quote}"
        self._fields = re.compile(rf"(?:^|{mark})({in_quotes}|[^{mark}{quote}\r\n]*+)")
        self._rows = self._csv_rows(file)
        self.names: list[str] = []
        if header := next(self._rows, None):
            self._require_header(header)
            self.names = [name or "" for name in self._unquoted(self._split(header))]
            self._end, text = _end(header), header[1].strip().lower()
            # What all files of a list must have in common.
            self.form = f"rows that end with {self._end!r}, {text}"

    def values(self) -> Iterator[Values]:
        """Check rows by RFC 4180; each has as many values as the header, and ends like it."""
        there = {plain(name): at for at, name in enumerate(self.names)}
        places = [there[name] for name in self._target.read.values()]
        texts = [
            (column, at)
            for column, at in zip(self._target.read, places, strict=True)
            if self._target.type_of(column) is not FieldType.NUMBER
        ]
        for row in self._rows:
            fields = self._split(row)
            self._require_like_header(row, len(fields))
            for column, at in texts:
                if "." in fields[at] and _ROUNDED.fullmatch(fields[at]):
                    where = f"{self._path}: line {row[0]}"
                    self._target.require_type(where, column, "double", fields[at])
            yield self._unquoted([fields[at] for at in places])

    def _require_header(self, header: Row) -> None:
        """Refuse columns that are separated otherwise, as by spreadsheets, and lines above them."""
        (line, text), own, read = header, self._profile.delimiter, self._target.read
        blanks = f" {self._profile.quote}\r\n"
        by_mark = {
            mark: {plain(name.strip(blanks)) for name in text.split(mark)}
            for mark in {*_MARKS, own}
        }
        for mark, what in _MARKS.items():
            if mark != own and by_mark[mark] >= {*read.values()}:
                expected = _MARKS.get(own, repr(own))
                raise ShardpostError(
                    f"{self._path}: line {line}: expected {expected} between the columns, found"
                    f" {what}: export it with {expected}, and with points in decimals, or import it"
                    " with a --profile"
                )
        if not by_mark[own] & {*read.values()}:
            expected = f"a header with {', '.join(read)}, and no title or `sep=` above it"
            raise wrong(self._path, line, expected, text)

    def _csv_rows(self, file: TextIOWrapper) -> Iterator[Row]:
        """Yield all rows that are not empty: one goes on while a quote is open."""
        lines: list[str] = []
        is_open = False
        number = 0
        for number, line in self._body(file):
            lines.append(line)
            is_open ^= line.count(self._profile.quote) % 2 == 1
            if is_open and len(lines) <= _MOST_LINES:
                continue
            if is_open:
                break
            if not line.endswith("\n"):
                raise cut(self._path, number, line)
            if lines[0].strip("\r\n"):
                yield number - len(lines) + 1, "".join(lines)
            lines = []
        if lines:
            found = f"none up to line {number}: {lines[0]}"
            raise wrong(self._path, number - len(lines) + 1, "a closing quote", found)

    def _body(self, file: TextIOWrapper) -> Iterator[tuple[int, str]]:
        """Yield the lines between preamble and footer, with their numbers."""
        number, behind, profile = 0, 0, self._profile
        for number, line in enumerate(file, 1):
            if number > profile.preamble and profile.footer and line.startswith(profile.footer):
                behind = 1 + sum(1 for one in file if one.strip())
            elif number > profile.preamble:
                yield number, line
        if profile.footer and behind != profile.footer_lines:
            lines = counted(profile.footer_lines, "line")
            expected = f"{lines} at the end, the first of which begins with {profile.footer!r}"
            raise wrong(self._path, number, expected, counted(behind, "such line"))

    def _split(self, row: Row) -> list[str]:
        """Return the values of a row, as they stand in it."""
        text, mark = row[1].removesuffix(_end(row)), self._profile.delimiter
        if "\0" in text:
            raise wrong(self._path, row[0], "text without NUL characters", "one")
        if self._profile.quote not in text and "\r" not in text:
            return text.split(mark)
        fields: list[str] = self._fields.findall(text)
        if mark.join(fields) != text:
            expected = "quotes and line breaks only where RFC 4180 has them, around a whole value"
            raise wrong(self._path, row[0], expected, text)
        return fields

    def _unquoted(self, fields: Sequence[str]) -> list[str | None]:
        """Return the values without quotes: `""` is an empty text, nothing is None."""
        quote = self._profile.quote
        return [
            one[1:-1].replace(quote * 2, quote) if one[:1] == quote else one or None
            for one in fields
        ]

    def _require_like_header(self, row: Row, values: int) -> None:
        (begins, text), width, mark = row, len(self.names), self._profile.delimiter
        if values != width:
            raise wrong(
                self._path, begins, f"{width} values, as in the header", f"{values}: {text}"
            )
        if _end(row) != self._end:
            expected = f"a line that ends with {self._end!r}, like the header"
            raise wrong(self._path, begins, expected, repr(_end(row)))
        more = text.count("\n") - 1
        if more and all(line.count(mark) >= width - 1 for line in text[:-1].split("\n")):
            found = f"whole rows in quotes, up to line {begins + more}: {text}"
            raise wrong(self._path, begins, "one row", found)


def _end(row: Row) -> str:
    return "\r\n" if row[1].endswith("\r\n") else "\n"


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
