"""docs/tables.md names every table and column, as the code declares them."""

import re

from shardpost.checkout import CHECKOUT
from shardpost.delta.table import type_text
from shardpost.maintenance.stored_tables import TABLES

ROW = re.compile(r"^\| `(\w+)` \| ([^|]+?) \|", re.MULTILINE)
SHARED = re.compile(r"those\s+of\s+`(\w+)`\s+up\s+to\s+`(\w+)`")

Rows = list[tuple[str, str]]


def test_the_page_of_the_tables_is_what_the_code_declares() -> None:
    page = (CHECKOUT / "docs" / "tables.md").read_text()
    sections = [part.split("\n", 1) for part in page.split("\n## ")[1:]]
    written: dict[str, Rows] = {}
    for name, body in sections:
        written[name] = [*shared(body, written), *ROW.findall(body)]
    declared = {
        table.name: [(name, type_text(type_)) for name, type_ in table.columns] for table in TABLES
    }
    assert written == declared


def shared(body: str, written: dict[str, Rows]) -> Rows:
    """Return the columns that a table has in common with one before it, by its section."""
    found = SHARED.search(body)
    if not found:
        return []
    names = [name for name, _ in written[found[1]]]
    return written[found[1]][: names.index(found[2]) + 1]
