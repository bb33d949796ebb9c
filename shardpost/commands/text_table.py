"""Rows as a table of plain text, for a person to read."""

import re
from collections.abc import Sequence

# Control characters but tab and newline, and those that turn the direction of a line.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def text_table(heading: Sequence[str], found: Sequence[Sequence[str]]) -> str:
    """Return lines with aligned columns under a heading; what is not printable becomes U+FFFD."""
    lines = [[_printable(cell) for cell in row] for row in (heading, *found)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in lines
    )


def harmless(text: str) -> str:
    """Return text of others, of one or more lines; what could steer a terminal becomes U+FFFD."""
    return _STEERING.sub("\ufffd", text)


def _printable(cell: str) -> str:
    return cell if cell.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in cell)
