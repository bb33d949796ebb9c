"""How a page is answered: HTML from a template, or the same as JSON or CSV by `?format=`.

Templates escape what they are given.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown import markdown
from markupsafe import Markup, escape

from shardpost.checkout import CHECKOUT
from shardpost.errors import harmless, visible
from shardpost.page import access
from shardpost.wording import counted, duration_text, in_bytes

FOLDER = Path(__file__).parent
# Nothing but our own files, no inline script or style; in frames of Airflow's own pages only.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
LONGEST_CELL = 400
ROWS_OF_A_PAGE = 100
_CODE = re.compile("`([^`]+)`")
# Where a spreadsheet may begin a cell, also one that separates them by other than commas.
_FORMULA = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=[=+\-@\t\r])")


# The navigation: {path below the page's own: title}.
SECTIONS = {
    "": "Overview",
    "holders": "Holders",
    "emails": "Weekly e-mails",
    "letters": "Dead letters",
    "records": "Kafka records",
    "runs": "Run requests",
    "alerts": "Alerts",
    "topics": "Topics",
    "tables": "Tables",
}


@dataclass(frozen=True)
class Link:
    """A cell of a table that leads to another page."""

    text: str
    url: str


@dataclass(frozen=True)
class Listing:
    """A table: its columns, and rows of as many cells; `empty` says what to do where it has none.

    A cell is a text, a number, an instant, a Link or None. `total` is how many rows there are of
    which these are one page; None where these are all.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    empty: str = "Nothing here."
    total: int | None = None
    number: int = 1

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return 1 if self.total is None else max(1, -(-self.total // ROWS_OF_A_PAGE))

    @property
    def why_empty(self) -> str:
        """Return what to do if there are no rows, or that the page does not exist."""
        if self.number > self.pages:
            return f"There is no page {self.number:,}: the last one is page {self.pages:,}."
        return self.empty

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows by their columns, for JSON."""
        texts = ([getattr(cell, "text", cell) for cell in row] for row in self.rows)
        return [dict(zip(self.columns, row, strict=True)) for row in texts]

    def as_csv(self) -> str:
        """Return it as RFC 4180 has it, all in quotes; what would be a formula is marked."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n", quoting=csv.QUOTE_ALL)
        writer.writerow(self.columns)
        writer.writerows([_plain(cell) for cell in row] for row in self.rows)
        return out.getvalue()


def _plain(cell: Any) -> str:
    if isinstance(cell, datetime):
        return cell.astimezone(UTC).isoformat()
    text = cell.text if isinstance(cell, Link) else "" if cell is None else str(cell)
    return _FORMULA.sub("'", text) if isinstance(cell, str | Link) else text


def page_of(
    rows: Sequence[Sequence[Any]], columns: Sequence[str], number: int, empty: str
) -> Listing:
    """Return one page of a table of which all rows are at hand."""
    begin = (max(1, number) - 1) * ROWS_OF_A_PAGE
    shown = rows[begin : begin + ROWS_OF_A_PAGE]
    return Listing(columns, shown, empty, total=len(rows), number=max(1, number))


@cache
def environment() -> Environment:
    """Return what renders the templates."""
    found = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals |= {"Link": Link, "longest": LONGEST_CELL, "hidden": access.CLIENTS_HIDDEN}
    found.globals |= {"rows_of_a_page": ROWS_OF_A_PAGE}
    found.filters |= {
        "duration": duration_text,
        "counted": counted,
        "number": lambda value: f"{value:,}",
        "utc": lambda at: at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "after": lambda at, seconds: at + timedelta(seconds=seconds),
        "iso": lambda at: at.astimezone(UTC).isoformat(),
        "kind": _kind,
        "harmless": harmless,
        "shown": lambda text: text and visible(text),
        "coded": coded,
        "size": in_bytes,
    }
    return found


@cache
def runbook_html() -> Markup:
    """Return docs/runbook.md as HTML, with a heading of level 3 for each rule."""
    text = (CHECKOUT / "docs" / "runbook.md").read_text()
    # Other documents are not here: what only leads to one, in parentheses, goes with its link.
    text = re.sub(r"\s*\(\[[^]]*\]\((?!#)[^)]*\)\)", "", text)
    own = re.sub(r"\[([^]]*)\]\((?!#)[^)]*\)", r"\1", text)
    return Markup(markdown(own, extensions=["tables", "toc"]))  # noqa: S704 - it is ours


def coded(text: str) -> Markup:
    """Return a text as HTML, in which what stands between backticks is code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


def _kind(cell: object) -> str:
    kinds: Mapping[type, str] = {Link: "link", datetime: "time", bool: "flag", int: "number"}
    return next((name for kind, name in kinds.items() if isinstance(cell, kind)), "text")
