"""ISO weeks, which of them may be mailed when, and shards as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from shardpost.errors import ShardpostError, UsageError
from shardpost.weekly_email import email_job
from shardpost.weekly_email.model.week import IsoWeek

W47 = IsoWeek(2026, 47)


@pytest.mark.parametrize("text", ["2026-W47", "2026-W53", "2020-W53", "2026-W01"])
def test_a_week_reads_back_as_it_was_written(text: str) -> None:
    assert str(IsoWeek.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["2025-W53", "2026-W00", "2026-W54", "2026-47", "2026-W7", "W47", "", "2026-W47\n", "9999-W52"],
)
def test_what_is_no_week_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="week"):
        IsoWeek.parse(text)


def test_a_week_is_monday_to_monday_in_utc() -> None:
    assert W47.start == datetime(2026, 11, 16, tzinfo=UTC)
    assert W47.end == datetime(2026, 11, 23, tzinfo=UTC)


def test_week_53_is_followed_by_week_1_of_the_next_iso_year() -> None:
    assert IsoWeek(2026, 53).next == IsoWeek(2027, 1)
    assert IsoWeek(2021, 1).previous == IsoWeek(2020, 53)
    assert IsoWeek(2025, 52).next == IsoWeek(2026, 1)


def test_the_last_week_that_ended_changes_at_monday_midnight() -> None:
    assert IsoWeek.last_ended(W47.end) == W47
    assert IsoWeek.last_ended(W47.end - timedelta(microseconds=1)) == W47.previous


@pytest.mark.parametrize("later", [timedelta(0), timedelta(days=90)])
def test_an_ended_week_is_of_its_end_and_refused_if_early_was_asked(later: timedelta) -> None:
    assert W47.as_of(W47.end + later, early=False) == W47.end
    with pytest.raises(ShardpostError, match="2026-W47 ended 2026-11-23 00:00 UTC: --early"):
        W47.as_of(W47.end + later, early=True)


def test_a_running_week_is_refused_unless_early_and_one_to_come_even_early() -> None:
    now = W47.start + timedelta(days=2)
    with pytest.raises(ShardpostError, match="has not ended"):
        W47.as_of(now, early=False)
    assert W47.as_of(now, early=True) == now
    with pytest.raises(ShardpostError, match="has not begun"):
        W47.as_of(W47.start - timedelta(seconds=1), early=True)


def test_a_scheduled_run_leaves_out_weeks_before_the_first_snapshot() -> None:
    assert "no snapshot" in str(W47.why_skip(W47.end, None, 3, timedelta(0)))
    assert "no snapshot" in str(W47.why_skip(W47.end, W47.end, 3, timedelta(0)))
    assert W47.why_skip(W47.end, W47.end - timedelta(seconds=1), 3, timedelta(0)) is None


def test_a_scheduled_run_leaves_out_weeks_that_ended_too_long_ago() -> None:
    late = W47.end + timedelta(days=3)
    assert W47.why_skip(late, W47.start, 3, timedelta(0)) is None
    assert "3 days" in str(W47.why_skip(late + timedelta(seconds=1), W47.start, 3, timedelta(0)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0-3", [0, 1, 2, 3]),
        ("2", [2]),
        ("0,2,5-7", [0, 2, 5, 6, 7]),
        ("7, 1-2 ,2", [1, 2, 7]),
        (None, list(range(8))),
    ],
)
def test_a_list_names_shards(text: str | None, found: list[int]) -> None:
    assert email_job.parse_shards(text, 8) == found


@pytest.mark.parametrize(
    "text", ["8", "3-1", "a", "1-", "-1", "1,,2", "1;2", "0-8", "²", "", " ", "\u00a0", ","]
)
def test_a_list_that_names_others_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="shards"):
        email_job.parse_shards(text, 8)


def test_groups_have_names_that_read_back() -> None:
    assert email_job.shard_label(email_job.parse_shards(None, 10)) == "shards 0-9"
    assert email_job.shard_label([4]) == "shard 4"
    assert email_job.parse_shards(email_job.shard_text([0, 2, 5, 6, 7]), 8) == [
        0,
        2,
        5,
        6,
        7,
    ]
