"""What `explain` reads of the history: all of the positions that were ever a client's, no other."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from shardpost.delta import parquet_files, snapshots, table_log
from shardpost.delta.query import OpenedTables, at_snapshot, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import text_literal
from shardpost.holders import queries as module
from shardpost.holders.model.explain import Transition
from shardpost.holders.model.view_tables import POSITION_EVENTS
from shardpost.holders.queries import explanation
from shardpost.settings import Settings
from tests.support.appended_histories import AppendedHistories
from tests.support.histories import Batch, close, country_of, put
from tests.support.how_far import up_to
from tests.support.random_histories import LAYERED_BATCHES

# By one scan of all columns, as it was before the keys were asked for first.
REFERENCE = """
SELECT h.* FROM position_events h WHERE h.kind <> 'rejected'
AND h.key IN (SELECT c.key FROM position_events c WHERE c.client = {client})
"""


def by_one_scan(at: Settings, snapshot: Snapshot, client: str) -> list[Transition]:
    def read(*_given: object) -> list[dict[str, Any]]:
        sql = REFERENCE.format(client=text_literal(client))
        return rows(at, sql, at_snapshot(snapshot, POSITION_EVENTS))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_rows_of_positions", read)
        return explanation(at, snapshot, client, None)


def merged(world: AppendedHistories) -> Snapshot:
    """Return the newest snapshot with one file in the place of all of its history."""
    at, last = world.settings, snapshots.current(world.settings)
    version = last.tables[POSITION_EVENTS.name]
    old = [*table_log.sizes(at, POSITION_EVENTS, version)]
    made = parquet_files.merge(at, POSITION_EVENTS, old, f"{version + 1:08d}-merged/a.parquet")
    after = table_log.commit(at, POSITION_EVENTS, version, [made], old)
    return replace(last, tables={**last.tables, POSITION_EVENTS.name: after})


@pytest.mark.parametrize(("listed", "in_a_list"), [(1_000, 20), (1_000, 1), (1, 20), (0, 20)])
@settings(max_examples=up_to(10, quick=3))
@given(LAYERED_BATCHES, strategies.booleans())
def test_of_a_random_history_it_tells_what_one_scan_of_all_columns_tells(
    listed: int, in_a_list: int, batches: Sequence[Batch], is_merged: bool
) -> None:
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KEYS_LISTED", listed)
        patch.setattr(module, "KEYS_IN_A_LIST", in_a_list)
        world = AppendedHistories(Settings(home=Path(home)))
        for batch in batches:
            world.compact(batch)
        newest = snapshots.current(world.settings)
        expected = by_one_scan(world.settings, newest, "client1")
        seen = merged(world) if is_merged else newest
        assert explanation(world.settings, seen, "client1", None) == expected


@pytest.mark.parametrize("count", [1, 20, 21, 45, 1_000, 1_001])
def test_of_any_number_of_positions_it_tells_what_one_scan_tells(
    tmp_path: Path, count: int
) -> None:
    world = AppendedHistories(Settings(home=tmp_path))
    own = [put(f"it's {n}", "client1", "NASDAQ") for n in range(count)]
    others = [put(f"{n}", "client2", "NASDAQ") for n in range(count)]
    world.compact(Batch([*own, *others], [country_of("NASDAQ", "US")]))
    world.compact(Batch([close("it's 0"), put("0", "client1", "NASDAQ")]))
    newest = snapshots.current(world.settings)
    found = explanation(world.settings, newest, "client1", None)
    assert len(found) == count + 2
    assert found == by_one_scan(world.settings, newest, "client1")
    assert explanation(world.settings, newest, "client1", "0") == found[:1]
    assert explanation(world.settings, newest, "client3", None) == []


def test_a_history_is_opened_once_and_its_keys_are_asked_for_in_short_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = AppendedHistories(Settings(home=tmp_path))
    world.compact(Batch([put(str(n), "client1", "NASDAQ") for n in range(45)]))
    asked: list[str] = []

    class Watched(OpenedTables):
        def rows(self, sql: str) -> list[dict[str, Any]]:
            asked.append(sql)
            return super().rows(sql)

    monkeypatch.setattr(module, "OpenedTables", Watched)
    assert len(explanation(world.settings, snapshots.current(world.settings), "client1", None))
    keys, records = asked
    assert "DISTINCT c.key" in keys
    assert [one.count(",") + 1 for one in records.split(" IN (")[1:]] == [20, 20, 5]
