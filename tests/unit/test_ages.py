"""Ages that one clock which jumps changes by little."""

from datetime import UTC, datetime, timedelta

from shardpost.instants import old_before

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
