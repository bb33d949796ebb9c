"""Views for other engines through the life of a home: DuckDB, Polars and Spark with Delta.

They have what the tables have at the newest snapshot, whenever they were printed. No table gets
deletion vectors by anything that is done.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from shardpost.delta import snapshots, storage
from shardpost.holders import compaction, folding
from shardpost.holders.engine_views import AGAIN, Engine
from shardpost.holders.model.view_tables import (
    POSITION_EVENTS,
    SHARE_HOLDERS_CHANGES,
    FoldingRule,
)
from shardpost.holders.pruned_histories import find_superseded, prune
from shardpost.maintenance.erasure import ErasureRequest, erase
from shardpost.maintenance.maintain import maintain
from shardpost.settings import Settings
from tests.support import rebuilding
from tests.support.aged_rebuilds import drop_open
from tests.support.at_step import at_step, killing
from tests.support.compacting import run
from tests.support.delta_readers import delta_reader
from tests.support.engines import (
    Rows,
    by_duckdb,
    by_polars,
    deletion_vectors,
    expected,
    in_order,
    selects,
    views,
)
from tests.support.installed import installed
from tests.support.record_streams import Again, Stream
from tests.support.reference import Raw, client, closed, exchange, position

LATER = datetime(2030, 1, 1, tzinfo=UTC)
Printed = dict[Engine, str]
Ask = Callable[[dict[str, Any]], Any]


def printed(settings: Settings) -> Printed:
    return {engine: views(settings, engine) for engine in Engine}


# A query takes Spark a second: of the tables one of each kind.
BY_SPARK = ("position_events", "positions", "share_holders")


def by_spark(ask: Ask, text: str) -> Rows:
    answer = ask({"script": text, "selects": {name: selects()[name] for name in BY_SPARK}})
    assert "error" not in answer, answer
    return {name: in_order(rows) for name, rows in answer.items()}


def hold(settings: Settings, *all_printed: Printed, ask: Ask | None = None) -> None:
    """Hold the rows of each engine, by views of each time, against those of the tables."""
    now = expected(settings)
    assert {*now} == {*selects()}
    for text in all_printed:
        assert by_duckdb(text[Engine.DUCKDB]) == now
        assert by_polars(text[Engine.POLARS]) == now
        if ask:
            found = by_spark(ask, text[Engine.SPARK])
            assert found == {name: now[name] for name in BY_SPARK}


@pytest.mark.one_of("histories cut into any runs")
def test_views_have_what_the_tables_have_until_a_swap_and_then_say_so(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Polars reads no path that a URL escapes, as that of the home is.
    tables = {"tables": str(tmp_path / "tables")}
    stream.settings = settings = stream.settings.model_copy(update=tables)
    bad = Raw("positions", b"bad", b"{")
    stream.compact(
        *(position(str(n), f"client{n % 4}", "NASDAQ") for n in range(12)),
        *(client("client1", "anna"), client("client2", "bob"), exchange("LON", "GB"), bad),
        exchange("LSE", "GB"),  # that country still has one, when a rebuild is for it
    )
    first = printed(settings)
    hold(settings, first)
    stream.compact(closed("1"), position("2", "client9", "LON"), exchange("LON", "US"), bad)
    retried = position("", "client3", "NASDAQ").value
    stream.compact(Again(0, retried), closed("5"), closed("9"), client("client1", "anne"))
    assert set(snapshots.current(installed(settings).tables).folded) == {
        *("positions", "clients", "exchanges", "share_holders")
    }
    layered = printed(settings)
    hold(settings, first, layered)

    monkeypatch.setattr(folding, "FOLDING", FoldingRule(runs=1))
    # One client's last position is closed, one moves, and one is new: not committed yet.
    stream.send([closed("2"), position("3", "client0", "LON"), position("99", "new", "NASDAQ")])
    with killing(at_step(monkeypatch, compaction), "commit"):
        run(settings)
    for table in (POSITION_EVENTS, SHARE_HOLDERS_CHANGES):  # left ahead of the snapshot
        committed = snapshots.current(installed(settings).tables).tables[table.name]
        assert (storage.newest_version(installed(settings).tables, table) or 0) > committed
    with delta_reader(settings) as ask:
        hold(settings, first, layered)
        hold(settings, printed(settings), ask=ask)
        stream.compact()
        folded = printed(settings)
        stream.compact(position("3", "client1", "NASDAQ"), closed("99"))
        hold(settings, first, folded)
        rebuilding.start(settings, "GB")
        rebuilding.swap(settings)
        hold(settings, printed(settings), ask=ask)
        for text in (first, folded):
            with pytest.raises(duckdb.InvalidInputException, match=AGAIN):
                by_duckdb(text[Engine.DUCKDB])
            with pytest.raises(RuntimeError, match=AGAIN):
                by_polars(text[Engine.POLARS])
        answer = ask({"script": folded[Engine.SPARK], "selects": selects()})
        assert AGAIN in answer["error"]
    drop_open(installed(settings).tables)
    erase(installed(settings), ErasureRequest("client1", "tester", "a test", datetime.now(UTC)))
    superseded = find_superseded(
        installed(settings), snapshots.current(installed(settings).tables), LATER, {}
    )
    assert prune(installed(settings), superseded, datetime.now(UTC))
    maintain(installed(settings), datetime.now(UTC) + timedelta(days=9))
    hold(settings, printed(settings))
    assert deletion_vectors(settings) == []
