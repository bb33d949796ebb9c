"""Rows as a table of plain text, for a person to read."""

from collections.abc import Sequence


def text_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return aligned columns under a heading; characters that are not printable become U+FFFD."""
    lines = [[_printable(cell) for cell in row] for row in (heading, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in lines
    )


def _printable(cell: str) -> str:
    return cell if cell.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in cell)
