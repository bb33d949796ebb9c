"""Instants: any 64 bits of Kafka become one, and ages change little by a clock that jumps."""

from datetime import UTC, datetime, timedelta

import pytest

from shardpost.instants import instant_of, old_before

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)


@pytest.mark.parametrize(
    ("timestamp_ms", "at"),
    [
        (1_790_000_000_001, datetime(2026, 9, 21, 14, 13, 20, 1000, UTC)),
        (0, FIRST),
        (-1, FIRST),
        (-(2**63), FIRST),
        (253_402_300_799_999, LAST),
        (253_402_300_800_000, LAST),
        (2**63 - 1, LAST),
    ],
)
def test_a_timestamp_that_no_calendar_has_becomes_the_nearest(
    timestamp_ms: int, at: datetime
) -> None:
    assert instant_of(timestamp_ms) == at


START = datetime(2026, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)
TIMES = [START, START + 10 * DAY, START + 400 * DAY, START + 401 * DAY]
NOW = START + 402 * DAY


def test_of_a_gap_no_more_counts_than_is_said() -> None:
    assert old_before(TIMES, NOW, 0.5 * DAY, 35 * DAY) == START + 400.5 * DAY
    assert old_before(TIMES, NOW, 20 * DAY, 35 * DAY) == START + 381 * DAY
    assert old_before(TIMES, NOW, 40 * DAY, 35 * DAY) == START + 6 * DAY


def test_what_was_noted_after_now_does_not_count() -> None:
    assert old_before(TIMES, START + 30 * DAY, 40 * DAY, 35 * DAY) == START - 30 * DAY
    assert old_before(TIMES, START - DAY, DAY, 35 * DAY) is None


def test_one_time_long_ago_holds_nothing_back() -> None:
    assert old_before([START - 9000 * DAY, *TIMES], NOW, DAY, 35 * DAY) == START + 400 * DAY
