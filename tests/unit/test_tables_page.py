"""docs/tables.md names every table and column, as delta/tables.py declares them."""

import re

from shardpost.checkout import CHECKOUT
from shardpost.dead_letters.model.tables import DEAD_LETTERS
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.holders.model.tables import VIEW
from shardpost.weekly_email.model.tables import AUDIENCES, FROZEN_WEEKS

# A column of the DDL: a name, then a type whose commas stand within angle brackets.
COLUMN = re.compile(r"`?(\w+)`? ((?:[^,<]|<(?:[^<>]|<[^<>]*>)*>)+)(?:, |$)")
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+?) \|", re.MULTILINE)


def test_the_page_of_the_tables_is_what_the_code_declares() -> None:
    page = (CHECKOUT / "docs" / "tables.md").read_text()
    sections = [part.split("\n", 1) for part in page.split("\n## ")[1:]]
    written = {name: ROW.findall(body) for name, body in sections}
    tables = (*VIEW, SNAPSHOTS, AUDIENCES, FROZEN_WEEKS, DEAD_LETTERS)
    declared = {t.name: COLUMN.findall(t.columns) for t in tables}
    assert written == declared
