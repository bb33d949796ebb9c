"""Tables in a catalog: the statements of docs/tables.md, with Hive's metastore."""

import re
from pathlib import Path
from typing import Any

from shardpost.checkout import CHECKOUT
from shardpost.delta import snapshots
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.settings import Settings
from tests.support import rebuilding
from tests.support.delta_readers import delta_reader
from tests.support.engines import expected_of, in_order, selects
from tests.support.installed import installed
from tests.support.record_streams import Stream
from tests.support.reference import client, exchange, position

NAME = SHARE_HOLDERS.name
SELECT = selects()[NAME].replace(f"FROM {NAME}", f"FROM shardpost.{NAME}")


def statements(settings: Settings) -> list[str]:
    """Return the blocks of SQL of the page, for the tables of this home."""
    page = (CHECKOUT / "docs/tables.md").read_text()
    found = [one for one in re.findall(r"```sql\n(.*?)```", page, re.DOTALL) if "LOCATION" in one]
    return [one.replace("…/tables", settings.tables_root) for one in found]


def found_in(answer: dict[str, Any]) -> list[str]:
    assert "error" not in answer, answer
    return in_order(answer[NAME])


def newest(settings: Settings) -> list[str]:
    """Return the rows that the newest snapshot has."""
    return expected_of(settings, snapshots.current(installed(settings).tables).number)[NAME]


def test_a_table_that_was_registered_once_follows_compactions_and_once_moved_a_swap(
    stream: Stream, tmp_path: Path
) -> None:
    tables = {"tables": str(tmp_path / "tables")}
    stream.settings = settings = stream.settings.model_copy(update=tables)
    register, move = statements(settings)
    stream.compact(
        *(position(str(n), f"client{n % 3}", "NASDAQ") for n in range(6)),
        *(client("client1", "anna"), exchange("LON", "GB"), position("7", "british", "LON")),
    )
    with delta_reader(settings, tmp_path / "hive") as ask:
        assert found_in(ask({"script": register, "selects": {NAME: SELECT}})) == newest(settings)
        stream.compact(position("8", "another", "NASDAQ"), position("0", "client9", "NASDAQ"))
        assert found_in(ask({"script": "", "selects": {NAME: SELECT}})) == newest(settings)
        rebuilding.start(settings, "GB")
        rebuilding.swap(settings)
        after = found_in(ask({"script": move, "selects": {NAME: SELECT}}))
        assert after == newest(settings)
        assert "british" in str(after)
