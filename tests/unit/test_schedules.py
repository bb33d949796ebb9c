"""When DAGs run by settings: which are taken, what follows for alerts, what a wrong one says."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shardpost.errors import UsageError
from shardpost.settings import load, loading, one
from shardpost.values.schedules import WeeklyTime, longest_pause, longest_wait
from shardpost.weekly_email.model.week import IsoWeek

NOW = datetime(2026, 11, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"COMPACT_SCHEDULE": "every minute"}, "COMPACT_SCHEDULE='every minute': expected a cron"),
        (
            {"SWEEP_SCHEDULE": "*/5 * * * * *"},
            "SWEEP_SCHEDULE=.*: expected a cron expression of fi",
        ),
        ({"WATCH_SCHEDULE": "0 0 31 2 *"}, "WATCH_SCHEDULE='0 0 31 2 "),
        ({"MAINTAIN_SCHEDULE": "@weekly"}, "MAINTAIN_SCHEDULE='@weekly'"),
        ({"WEEKLY_SEND": "Monday 08:00"}, "WEEKLY_SEND='Monday 08:00': expected one of Mon, Tue"),
        ({"WEEKLY_SEND": "Mon 24:00"}, "WEEKLY_SEND='Mon 24:00': expected one of Mon"),
        ({"WEEKLY_SEND": "Mon 08:00 Berlin"}, "WEEKLY_SEND=.*: there is no time zone Berlin"),
        ({"WEEKLY_SEND": "Mon 08:00 ../UTC"}, "WEEKLY_SEND=.*: there is no time zone ../UTC"),
        ({"WEEKLY_SEND": "Sun 23:59 UTC"}, "WEEKLY_SEND=.*: expected a time at which the week has"),
        # In winter it would be half an hour after the week's end.
        ({"WEEKLY_SEND": "Mon 01:30 Europe/Berlin"}, "WEEKLY_SEND=.* in summer and in winter"),
    ],
)
def test_a_wrong_schedule_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=f"^setting SHARDPOST_{said}"):
        load({f"SHARDPOST_{name}": text for name, text in given.items()})


@pytest.mark.parametrize(
    ("week_ends", "send", "start"),
    [
        ("2026-03-23", "Fri 02:30 Asia/Jerusalem", "2026-03-27T00:30"),  # 03:30 there
        ("2026-10-19", "Sun 01:30 Asia/Jerusalem", "2026-10-24T22:30"),
        ("2026-09-28", "Sun 02:15 Australia/Lord_Howe", "2026-10-03T15:45"),  # 02:45 there
        ("2026-03-30", "Sun 01:45 Australia/Lord_Howe", "2026-04-04T14:45"),
    ],
)
def test_a_time_that_clocks_leave_out_is_later_and_of_two_the_first_counts(
    week_ends: str, send: str, start: str
) -> None:
    end = datetime.fromisoformat(week_ends).replace(tzinfo=UTC)
    assert WeeklyTime.parse(send).after(end).isoformat() == f"{start}:00+00:00"


def test_a_dag_reads_its_own_schedule_whatever_else_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loading, "DOT_ENV", tmp_path / ".env")
    monkeypatch.setenv("SHARDPOST_NONSENSE", "1")
    assert one("compact_schedule") == "*/15 * * * *"
    (tmp_path / ".env").write_text("what\nSHARDPOST_COMPACT_SCHEDULE=@hourly\n")
    with pytest.raises(
        UsageError, match=r"COMPACT_SCHEDULE='@hourly' \(line 2 of .*: expected a c"
    ):
        one("compact_schedule")
    monkeypatch.setenv("SHARDPOST_COMPACT_SCHEDULE", "0 * * * *")
    assert one("compact_schedule") == "0 * * * *"
    monkeypatch.setenv("SHARDPOST_COMPACT_SCHEDULE", "")
    assert one("compact_schedule") == "*/15 * * * *"
    with pytest.raises(UsageError, match="NONSENSE"):
        load({"SHARDPOST_NONSENSE": "1"})


def test_a_later_send_is_no_late_one() -> None:
    week = IsoWeek.parse("2026-W47")
    later = WeeklyTime.parse("Thu 08:00 UTC").later(week.end)
    assert later == timedelta(days=3)
    assert WeeklyTime.parse("Mon 06:00 UTC").later(week.end) == timedelta(0)
    first = week.start
    start = week.end + timedelta(days=3, hours=8)
    assert week.why_skip(start, first, 3, timedelta(0)) is not None
    assert week.why_skip(start, first, 3, later) is None
    assert week.why_skip(start + timedelta(days=3), first, 3, later) is not None


def test_the_longest_pause_of_a_schedule_is_that_of_a_weekend() -> None:
    assert longest_pause("*/15 * * * *") == timedelta(minutes=15)
    assert longest_pause("0/15 * * * *") == longest_pause("*/15 * * * *")
    assert longest_pause("0-59/5 * * * *") == longest_pause("*/5 * * * *") == timedelta(minutes=5)
    assert longest_pause("0 6,18 * * MON-FRI") == timedelta(days=2, hours=12)


def test_alerts_wait_an_hour_or_half_an_hour_more_than_a_rare_schedule_pauses() -> None:
    assert longest_wait("*/15 * * * *") == longest_wait("*/5 * * * *") == timedelta(hours=1)
    assert longest_wait("0 6,18 * * *") == timedelta(hours=12, minutes=30)
