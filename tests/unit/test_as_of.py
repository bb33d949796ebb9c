"""The as-of SQL, on DataFusion over real Delta tables, against a plain fold."""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings

from shardpost.delta.query import OpenedTables, rows
from shardpost.delta.table import time_literal
from shardpost.errors import UsageError
from shardpost.holders.model.as_of import RELATIONS, counted_positions, holders, position_sort_key
from shardpost.settings import Settings
from tests.support.histories import START, Batch, Record, country_of, holders_of, put, write
from tests.support.how_far import up_to
from tests.support.random_histories import BATCHES


def held(at: Settings, as_of: datetime | None, country: str = "US") -> dict[str, list[str]]:
    return held_by(opened(at), as_of, country)


def opened(at: Settings) -> OpenedTables:
    return OpenedTables(at, dict.fromkeys(RELATIONS))


def held_by(
    tables: OpenedTables, as_of: datetime | None, country: str = "US"
) -> dict[str, list[str]]:
    found = tables.rows(holders(country, as_of))
    return {row["client"]: sorted(row["positions"], key=position_sort_key) for row in found}


@settings(max_examples=up_to(25, quick=8))
@given(BATCHES)
def test_at_every_time_the_sql_equals_the_fold_of_what_is_before_it(batch: Batch) -> None:
    with tempfile.TemporaryDirectory() as home:
        at = Settings(home=Path(home))
        history = write(at, [batch])
        tables = opened(at)
        for as_of in (None, *(START + timedelta(hours=hour) for hour in range(11))):
            assert held_by(tables, as_of) == holders_of(history, as_of)


def rows_of(folder: Path, as_of: datetime | None, *positions: Record) -> list[tuple[str, ...]]:
    at = Settings(home=folder)
    write(at, [Batch(positions, [country_of("NASDAQ", "US"), country_of("LON", "GB")])])
    found = rows(at, counted_positions("US", as_of), dict.fromkeys(RELATIONS))
    return sorted(tuple(row.values()) for row in found)


def test_a_row_says_client_position_ticker_amount_exchange(tmp_path: Path) -> None:
    found = rows_of(tmp_path, None, put("1", "client1", "NASDAQ"), put("2", "client1", "LON"))
    assert found == [("client1", "1", "AAPL", "100", "NASDAQ")]


def test_the_highest_offset_wins_though_its_timestamp_is_older(tmp_path: Path) -> None:
    late, early = put("1", "client1", "NASDAQ", hour=5), put("1", "client2", "NASDAQ", hour=2)
    assert rows_of(tmp_path, START + timedelta(hours=9), late, early)[0][0] == "client2"


def test_a_record_exactly_at_the_time_is_not_before_it(tmp_path: Path) -> None:
    at = Settings(home=tmp_path)
    opened = put("1", "client1", "NASDAQ", hour=5)
    write(at, [Batch([opened], [country_of("NASDAQ", "US", hour=7)])])
    assert held(at, opened.timestamp) == {}
    assert held(at, opened.timestamp + timedelta(microseconds=1)) == {"client1": ["1"]}


@pytest.mark.parametrize("country", ["U'S", 'U"S', "U\\", "\n", "", "日本", "' OR '1'='1"])
def test_a_country_of_any_characters_is_compared_and_never_run(
    country: str, tmp_path: Path
) -> None:
    at = Settings(home=tmp_path)
    write(
        at,
        [
            Batch(
                [put("1", "a", "X"), put("2", "a", "Y")],
                [country_of("X", country), country_of("Y", "US")],
            )
        ],
    )
    assert held(at, None, country) == held(at, START + timedelta(hours=1), country) == {"a": ["1"]}


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
