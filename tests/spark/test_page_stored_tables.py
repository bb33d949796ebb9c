"""The pages of the tables: sizes, snapshots, rebuilds, and what differs."""

import pytest

from shardpost.page import access
from shardpost.page.access import CLIENTS_HIDDEN, KAFKA, TABLES
from shardpost.rebuilds import registry
from shardpost.rebuilds.drop import drop
from shardpost.settings import Settings
from tests.support.command_line import CommandLineHere
from tests.support.compacting import run, starter
from tests.support.installed import installed
from tests.support.page_client import PageClient, page_client
from tests.support.rebuilding import start, swap
from tests.support.reference import position, produce

RECORDS = [position(str(n), f"client{n % 3}", ("NASDAQ", "LON")[n % 2]) for n in range(12)]


def is_as_printed(page: PageClient, path: str, command: CommandLineHere, *words: str) -> bool:
    return bool(page.json(path) == command.json(*words))


def test_tables_are_as_the_commands_print_them_and_a_rebuild_is_compared(
    shared: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = CommandLineHere(shared.environ())
    unfinished: list[str] = []
    monkeypatch.setattr(access, "unfinished_run", lambda _dag: next(iter(unfinished), None))
    with page_client(shared, monkeypatch, user="anna") as page:
        for path in ("tables", "tables/snapshots"):
            assert "No table yet" in page.get(path)
        assert "No rebuild yet" in page.get("tables/rebuilds")
        assert "no snapshot" in page.get("tables/diff", 503)
        produce(shared, [*starter(), *RECORDS])
        run(shared)
        start(shared, country="GB")
        assert is_as_printed(page, "tables", command, "tables", "list")
        assert is_as_printed(page, "tables/snapshots", command, "snapshots")
        assert is_as_printed(page, "tables/rebuilds", command, "rebuild", "list")
        assert "share_holders.2" in page.get("tables")
        assert "run the DAG" in page.get("tables/rebuilds")
        assert page.json("tables/diff") == command.json("rebuild", "diff", code=3)
        assert 'data-label="only new"' in page.get("tables/diff")
        with page_client(shared, monkeypatch, sees=[TABLES, KAFKA]) as other:
            assert other.json("tables/diff")["samples"] == []
            assert CLIENTS_HIDDEN in other.get("tables/diff")
            assert "client1" not in other.get("tables/diff")
        monkeypatch.setattr(access, "is_allowed", lambda *_: True)
        assert [line.split(",")[0] for line in page.csv("tables/diff")][:3] == [
            *('"keys"', '"open positions"', '"holders"')
        ]
        unfinished.append("run7")
        for path in ("tables/rebuilds", "tables/diff"):
            assert "/dags/rebuild_tables/runs/run7" in page.get(path)
        swap(shared)
        assert page.json("tables/rebuilds")[0]["state"] == "in use"
        drop(installed(shared), "anna", "done")
        assert registry.current(installed(shared).tables) is None
        assert page.json("tables/rebuilds")[0]["state"] == "in use for good"
