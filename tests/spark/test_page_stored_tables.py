"""The pages of the tables: sizes, snapshots, rebuilds, what differs, and dropping it."""

from typing import Any

import pytest

from shardpost.decisions import Kind
from shardpost.page import access
from shardpost.page.access import CLIENTS_HIDDEN, KAFKA, TABLES
from shardpost.rebuilds import registry
from shardpost.rebuilds.model.rebuild import NAMES
from shardpost.settings import Settings
from tests.support import decisions
from tests.support.command_line import CommandLineHere
from tests.support.compacting import run, starter
from tests.support.installed import installed
from tests.support.page_client import PageClient, page_client
from tests.support.rebuilding import start, swap
from tests.support.reference import position, produce

RECORDS = [position(str(n), f"client{n % 3}", ("NASDAQ", "LON")[n % 2]) for n in range(12)]


class PlayedAirflow:
    """The Airflow in whose API server the page would be: the params of the runs that it started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[dict[str, Any]] = []
        self.unfinished: str | None = None
        monkeypatch.setattr(access, "start_run", self._start_run)
        monkeypatch.setattr(access, "unfinished_run", lambda _dag: self.unfinished)

    def _start_run(self, user: str, dag: str, conf: dict[str, Any], why: str) -> str:
        assert (user, dag, why) == ("anna", "rebuild_tables", conf["why"])
        self.started.append(conf)
        return f"run{len(self.started)}"


def is_as_printed(page: PageClient, path: str, command: CommandLineHere, *words: str) -> bool:
    return bool(page.json(path) == command.json(*words))


def test_tables_are_as_the_commands_print_them_and_a_rebuild_is_compared_and_dropped(
    shared: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = CommandLineHere(shared.environ())
    airflow = PlayedAirflow(monkeypatch)
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
        assert "Compare first" in page.get("tables/rebuilds")
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
        form: dict[str, Any] = {"number": "2", "max_changed": "60%", "why": "looked at"}
        said = page.send("tables/diff", "tables/rebuilds/swap", **form)
        assert "started: run1 of the DAG rebuild_tables" in said
        page.send("tables/diff", "tables/rebuilds/swap", 503, **{**form, "number": "7"})
        airflow.unfinished = "run7"
        shown = page.get("tables/diff")
        assert "/dags/rebuild_tables/runs/run7" in shown
        assert 'action="' not in shown
        airflow.unfinished = None
        swap(shared)
        shown = page.get("tables/rebuilds")
        assert "Roll back" in shown
        page.send("tables/rebuilds", "tables/rebuilds/rollback", number="2", why="it was wrong")
        [swapped, rolled_back] = airflow.started
        assert swapped == {
            "country": "GB",
            "source": None,
            "tables": ",".join(NAMES),
            "max_changed": "60%",
            "why": "looked at",
        }
        assert rolled_back == {"action": "rollback", "why": "it was wrong"}
        page.send("tables/rebuilds", "tables/rebuilds/drop", 400, number="2", why="")
        said = page.send("tables/rebuilds", "tables/rebuilds/drop", number="2", why="done")
        assert "rebuild 2 is dropped" in said
        assert registry.current(installed(shared).tables) is None
        assert page.json("tables/rebuilds")[0]["state"] == "in use for good"
    found = [(one.about, one.kind, one.who, one.why) for one, _ in decisions.list_all(shared)]
    assert found[-1] == (b"rebuild/2", Kind.DISCARDED, "anna", "done")
    with page_client(shared, monkeypatch, role="viewer") as page:
        assert 'action="' not in page.get("tables/rebuilds")
        sent = page.post("tables/rebuilds/drop", {"number": "2", "why": "x"})
        assert sent.status_code == 403
