"""docs/tables.md names every table and column, as the code declares them."""

import re

from shardpost.checkout import CHECKOUT
from shardpost.maintenance.stored_tables import TABLES

# A column of the DDL: a name, then a type whose commas stand within angle brackets.
COLUMN = re.compile(r"`?(\w+)`? ((?:[^,<]|<(?:[^<>]|<[^<>]*>)*>)+)(?:, |$)")
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+?) \|", re.MULTILINE)


def test_the_page_of_the_tables_is_what_the_code_declares() -> None:
    page = (CHECKOUT / "docs" / "tables.md").read_text()
    sections = [part.split("\n", 1) for part in page.split("\n## ")[1:]]
    written = {name: ROW.findall(body) for name, body in sections}
    declared = {t.name: COLUMN.findall(t.columns) for t in TABLES}
    assert written == declared
