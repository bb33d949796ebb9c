"""The as-of SQL, on DataFusion over real Delta tables, against a plain fold."""

from datetime import UTC, datetime, timedelta

import pytest

from shardpost.delta.query import OpenedTables, rows
from shardpost.delta.table import time_literal
from shardpost.errors import UsageError
from shardpost.holders.model.as_of import RELATIONS, counted_positions, position_sort_key
from shardpost.settings import Settings
from tests.support.histories import START, Batch, Record, country_of, held_by, put, write


def held(at: Settings, as_of: datetime | None, country: str = "US") -> dict[str, list[str]]:
    return held_by(OpenedTables(at, dict.fromkeys(RELATIONS)), as_of, country)


def rows_of(at: Settings, as_of: datetime | None, *positions: Record) -> list[tuple[str, ...]]:
    write(at, [Batch(positions, [country_of("NASDAQ", "US"), country_of("LON", "GB")])])
    found = rows(at, counted_positions("US", as_of), dict.fromkeys(RELATIONS))
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
