"""Tables that are folded up to an earlier snapshot, read without a JVM, against a plain fold."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from shardpost.delta import snapshots
from shardpost.delta.query import OpenedTables, at_snapshot, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import LayeredVersion
from shardpost.holders.model.as_of import RELATIONS
from shardpost.holders.model.view_tables import (
    EXCHANGES,
    POSITIONS,
    SHARE_HOLDERS,
    FoldingRule,
)
from shardpost.holders.queries import HoldersQuery, query_holders
from shardpost.settings import Settings
from tests.support.histories import (
    START,
    Batch,
    History,
    Record,
    close,
    country_of,
    held_by,
    holders_of,
    latest,
    put,
    reject,
    retry,
    until,
    write,
)
from tests.support.how_far import up_to
from tests.support.random_histories import LAYERED_BATCHES

TIMES = (None, *(START + timedelta(hours=hour) for hour in range(0, 11, 2)))
ALL = frozenset({"positions", "exchanges", "share_holders"})
STORED = ("key", "seq", "snapshot", "retry_offset", "is_open", "client", "exchange")


@contextmanager
def written(batches: Sequence[Batch]) -> Iterator[tuple[Settings, History]]:
    with tempfile.TemporaryDirectory() as home:
        at = Settings(home=Path(home))
        yield at, write(at, batches)


@settings(
    max_examples=up_to(25, quick=8),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(LAYERED_BATCHES)
def test_at_every_snapshot_layered_tables_have_the_rows_of_the_fold(
    batches: Sequence[Batch],
) -> None:
    with written(batches) as (at, history):
        for snapshot in snapshots.list_all(at):
            read = until(history, snapshot.number)
            assert found(at, snapshot) == expected(read.positions)
            tables = OpenedTables(at, at_snapshot(snapshot, *RELATIONS))
            for time in TIMES:
                assert held_by(tables, time) == holders_of(read, time)
            assert query_holders(at, snapshot, HoldersQuery()) == holders_of(read)


def found(at: Settings, snapshot: Snapshot) -> dict[str, tuple[object, ...]]:
    some = rows(at, "SELECT * FROM positions", at_snapshot(snapshot, POSITIONS))
    assert len({row["key"] for row in some}) == len(some)
    return {row["key"]: tuple(row[name] for name in STORED) for row in some}


def expected(records: Sequence[Record]) -> dict[str, tuple[object, ...]]:
    return {
        key: tuple(record.row()[name] for name in STORED) for key, record in latest(records).items()
    }


def test_a_late_correction_loses_against_what_is_folded(tmp_path: Path) -> None:
    at = Settings(home=tmp_path)
    first = Batch([reject("1"), put("1", "client1", "NASDAQ")], [country_of("NASDAQ", "US")])
    again = retry(put("1", "client2", "NASDAQ"), 1)
    write(at, [first, Batch([again, put("2", "client2", "NASDAQ")], unfolded=ALL)])
    assert query_holders(at, snapshots.current(at), HoldersQuery(as_of=START + timedelta(9))) == {
        "client1": ["1"],
        "client2": ["2"],
    }


def test_what_changed_after_a_snapshot_is_found_in_the_layer(tmp_path: Path) -> None:
    at = Settings(home=tmp_path)
    opened = [put("1", "client1", "NASDAQ"), put("2", "client2", "NASDAQ")]
    write(
        at,
        [
            Batch(opened, [country_of("NASDAQ", "US")]),
            Batch([close("2")], unfolded=ALL),
            Batch([put("3", "client2", "NASDAQ")], unfolded=ALL),
        ],
    )
    snapshot = snapshots.current(at)
    assert snapshot.folded == {"positions": 1, "exchanges": 1, "share_holders": 1}
    sql = "SELECT client, positions FROM share_holders WHERE snapshot > 1"
    assert rows(at, sql, at_snapshot(snapshot, SHARE_HOLDERS)) == [
        {"client": "client2", "positions": ["3"]}
    ]
    for shard in range(8):
        wanted = HoldersQuery(client="client2", shard=shard)
        assert query_holders(at, snapshot, wanted) in ({}, {"client2": ["3"]})


def test_a_table_that_is_folded_is_read_as_it_is_stored(tmp_path: Path) -> None:
    at = Settings(home=tmp_path)
    write(at, [Batch([put("1", "client1", "NASDAQ")], [country_of("NASDAQ", "US")])])
    versions = at_snapshot(snapshots.current(at), POSITIONS, EXCHANGES, SHARE_HOLDERS)
    assert list(versions.values()) == [1, 1, 1]  # version 0 is of the empty table


def test_the_rows_of_some_keys_are_those_of_the_whole_table(tmp_path: Path) -> None:
    at = Settings(home=tmp_path)
    opened = [put(key, f"client{key}", "NASDAQ") for key in ("1", "2", "3")]
    later = [close("2"), put("3", "client1", "NASDAQ"), put("4", "client4", "NASDAQ")]
    write(at, [Batch(opened, [country_of("NASDAQ", "US")]), Batch(later, unfolded=ALL)])
    versions = at_snapshot(snapshots.current(at), POSITIONS, SHARE_HOLDERS)
    for table, key, wanted in ((POSITIONS, "key", "3"), (SHARE_HOLDERS, "client", "client3")):
        layered = versions[table]
        assert isinstance(layered, LayeredVersion)
        sql = f"SELECT * FROM {table.name} ORDER BY {key}"  # noqa: S608 - ours
        whole = rows(at, sql, {table: layered})
        assert len(whole) == 4
        some = replace(layered, keys=f"SELECT '{wanted}' AS {key}")
        assert rows(at, sql, {table: some}) == [row for row in whole if row[key] == wanted]


RULE = FoldingRule(share=0.1, least_records=50, runs=500)


@pytest.mark.parametrize(
    ("records", "rows", "runs", "due"),
    [
        (49, 10, 1, False),
        (50, 10, 1, True),
        (50, 500, 1, True),
        (50, 501, 1, False),
        (1, 10**9, 499, False),
        (1, 10**9, 500, True),
        (0, 10, 10_000, False),
        (50, 0, 1, True),
    ],
)
def test_a_layer_is_folded_in_by_its_share_or_after_its_runs(
    records: int, rows: int, runs: int, due: bool
) -> None:
    assert RULE.is_due(records=records, rows=rows, runs=runs) is due
