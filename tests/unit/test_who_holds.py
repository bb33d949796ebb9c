"""The as-of SQL, and tables that are folded up to an earlier snapshot, against a plain fold."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from shardpost.delta import snapshots
from shardpost.delta.query import OpenedTables, at_snapshot, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import LayeredVersion, time_literal
from shardpost.errors import UsageError
from shardpost.holders.listed_holders import HoldersQuery, query_holders
from shardpost.holders.model.view_tables import EXCHANGES, POSITIONS, SHARE_HOLDERS, FoldingRule
from shardpost.holders.model.who_holds import RELATIONS, counted_positions, position_sort_key
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from tests.support.histories import (
    START,
    US,
    Batch,
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
from tests.support.installed import installed
from tests.support.random_histories import LAYERED_BATCHES


def held(at: Settings, as_of: datetime | None, country: str = "US") -> dict[str, list[str]]:
    return held_by(
        OpenedTables(installed(at).tables, dict.fromkeys(RELATIONS)), as_of, Rule(country)
    )


def rows_of(at: Settings, as_of: datetime | None, *positions: Record) -> list[tuple[str, ...]]:
    write(at, [Batch(positions, [country_of("NASDAQ", "US"), country_of("LON", "GB")])])
    found = rows(
        installed(at).tables, counted_positions(Rule("US"), as_of), dict.fromkeys(RELATIONS)
    )
    return sorted(tuple(row.values()) for row in found)


def test_a_row_says_client_position_ticker_amount_exchange(settings: Settings) -> None:
    found = rows_of(settings, None, put("1", "client1", "NASDAQ"), put("2", "client1", "LON"))
    assert found == [("client1", "1", "AAPL", "100", "NASDAQ")]


def test_the_highest_offset_wins_though_its_timestamp_is_older(settings: Settings) -> None:
    late, early = put("1", "client1", "NASDAQ", hour=5), put("1", "client2", "NASDAQ", hour=2)
    assert rows_of(settings, START + timedelta(hours=9), late, early)[0][0] == "client2"


def test_a_record_exactly_at_the_time_is_not_before_it(settings: Settings) -> None:
    opened = put("1", "client1", "NASDAQ", hour=5)
    write(settings, [Batch([opened], [country_of("NASDAQ", "US", hour=7)])])
    assert held(settings, opened.timestamp) == {}
    assert held(settings, opened.timestamp + timedelta(microseconds=1)) == {"client1": ["1"]}


@pytest.mark.parametrize("country", ["U'S", 'U"S', "U\\", "\n", "", "日本", "' OR '1'='1"])
def test_a_country_of_any_characters_is_compared_and_never_run(
    country: str, settings: Settings
) -> None:
    countries = [country_of("X", country), country_of("Y", "US")]
    write(settings, [Batch([put("1", "a", "X"), put("2", "a", "Y")], countries)])
    for as_of in (None, START + timedelta(hours=1)):
        assert held(settings, as_of, country) == {"a": ["1"]}


def test_a_time_of_any_zone_is_the_same_instant() -> None:
    zone = datetime.fromisoformat("2026-11-16T02:00:00.5+02:00")
    assert time_literal(zone) == "TIMESTAMP '2026-11-16 00:00:00.500000+00:00'"


def test_a_time_that_the_engines_cannot_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a time from 1678 to 2261"):
        time_literal(datetime(2300, 1, 1, tzinfo=UTC))


def test_all_digit_ids_come_first_by_number_then_the_rest_by_code_point() -> None:
    ids = ["x", "10", "2", "1", "002", "0", "00", "Z", "9" * 40, "1a", "²", "é", "-1", ""]
    assert sorted(ids, key=position_sort_key) == [
        *("0", "00", "1", "002", "2", "10", "9" * 40),
        *("", "-1", "1a", "Z", "x", "²", "é"),
    ]


ABOVE_0 = Rule("US", "amount > 0 AND country = 'US'")
UNKNOWN = Rule("US", "country IS NULL OR country = 'GB' AND client <> 'client1'")
TIMES = (None, *(START + timedelta(hours=hour) for hour in range(0, 11, 2)))
ALL = frozenset({"positions", "exchanges", "share_holders"})
STORED = ("key", "seq", "snapshot", "retry_offset", "is_open", "client", "exchange")


@settings(
    max_examples=up_to(25, quick=5),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(LAYERED_BATCHES)
def test_at_every_snapshot_layered_tables_have_the_rows_of_the_fold(
    batches: Sequence[Batch],
) -> None:
    with tempfile.TemporaryDirectory() as home:
        at = Settings(home=Path(home))
        history = write(at, batches)
        for snapshot in snapshots.list_all(installed(at).tables):
            read = until(history, snapshot.number)
            assert found(at, snapshot) == expected(read.positions)
            tables = OpenedTables(installed(at).tables, at_snapshot(snapshot, *RELATIONS))
            for time in TIMES:
                for rule in (US, ABOVE_0, UNKNOWN):
                    assert held_by(tables, time, rule) == holders_of(read, time, rule)
            assert query_holders(installed(at).tables, snapshot, HoldersQuery()) == holders_of(read)
            for time in TIMES[1::2]:
                one = query_holders(
                    installed(at).tables, snapshot, HoldersQuery("client1", None, time)
                )
                assert one.get("client1") == holders_of(read, time).get("client1")


def found(at: Settings, snapshot: Snapshot) -> dict[str, tuple[object, ...]]:
    some = rows(installed(at).tables, "SELECT * FROM positions", at_snapshot(snapshot, POSITIONS))
    assert len({row["key"] for row in some}) == len(some)
    return {row["key"]: tuple(row[name] for name in STORED) for row in some}


def expected(records: Sequence[Record]) -> dict[str, tuple[object, ...]]:
    return {
        key: tuple(record.row()[name] for name in STORED) for key, record in latest(records).items()
    }


def test_a_late_correction_loses_against_what_is_folded(settings: Settings) -> None:
    first = Batch([reject("1"), put("1", "client1", "NASDAQ")], [country_of("NASDAQ", "US")])
    again = retry(put("1", "client2", "NASDAQ"), 1)
    write(settings, [first, Batch([again, put("2", "client2", "NASDAQ")], unfolded=ALL)])
    assert query_holders(
        installed(settings).tables,
        snapshots.current(installed(settings).tables),
        HoldersQuery(as_of=START + timedelta(9)),
    ) == {
        "client1": ["1"],
        "client2": ["2"],
    }


def test_what_changed_after_a_snapshot_is_found_in_the_layer(settings: Settings) -> None:
    opened = [put("1", "client1", "NASDAQ"), put("2", "client2", "NASDAQ")]
    write(
        settings,
        [
            Batch(opened, [country_of("NASDAQ", "US")]),
            Batch([close("2")], unfolded=ALL),
            Batch([put("3", "client2", "NASDAQ")], unfolded=ALL),
        ],
    )
    snapshot = snapshots.current(installed(settings).tables)
    assert snapshot.folded == {"positions": 1, "exchanges": 1, "share_holders": 1}
    sql = "SELECT client, positions FROM share_holders WHERE snapshot > 1"
    assert rows(installed(settings).tables, sql, at_snapshot(snapshot, SHARE_HOLDERS)) == [
        {"client": "client2", "positions": ["3"]}
    ]
    for shard in range(8):
        wanted = HoldersQuery(client="client2", shard=shard)
        assert query_holders(installed(settings).tables, snapshot, wanted) in (
            {},
            {"client2": ["3"]},
        )


def test_a_table_that_is_folded_is_read_as_it_is_stored(settings: Settings) -> None:
    write(settings, [Batch([put("1", "client1", "NASDAQ")], [country_of("NASDAQ", "US")])])
    versions = at_snapshot(
        snapshots.current(installed(settings).tables), POSITIONS, EXCHANGES, SHARE_HOLDERS
    )
    assert list(versions.values()) == [1, 1, 1]  # version 0 is of the empty table


def test_the_rows_of_some_keys_are_those_of_the_whole_table(settings: Settings) -> None:
    opened = [put(key, f"client{key}", "NASDAQ") for key in ("1", "2", "3")]
    later = [close("2"), put("3", "client1", "NASDAQ"), put("4", "client4", "NASDAQ")]
    write(settings, [Batch(opened, [country_of("NASDAQ", "US")]), Batch(later, unfolded=ALL)])
    versions = at_snapshot(snapshots.current(installed(settings).tables), POSITIONS, SHARE_HOLDERS)
    for table, key, wanted in ((POSITIONS, "key", "3"), (SHARE_HOLDERS, "client", "client3")):
        layered = versions[table]
        assert isinstance(layered, LayeredVersion)
        sql = f"SELECT * FROM {table.name} ORDER BY {key}"  # noqa: S608 - ours
        whole = rows(installed(settings).tables, sql, {table: layered})
        assert len(whole) == 4
        some = replace(layered, keys=f"SELECT '{wanted}' AS {key}")
        assert rows(installed(settings).tables, sql, {table: some}) == [
            row for row in whole if row[key] == wanted
        ]


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
