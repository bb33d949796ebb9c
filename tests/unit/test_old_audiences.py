"""Old audiences are erased, their weeks are never mailed again, and everybody is told so."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shardpost.delta import storage
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from shardpost.weekly_email import frozen_weeks, week_retention
from shardpost.weekly_email.email_run import run
from shardpost.weekly_email.frozen_weeks import RECIPIENTS, FrozenWeeks
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek, certain_time
from shardpost.weekly_email.model.week_tables import AUDIENCES, audience_table
from shardpost.weekly_email.week_retention import erase_old_audiences
from shardpost.weekly_email.week_state import WeekState
from tests.support.at_step import at_step, killing
from tests.support.command_line import CommandLine
from tests.support.email_requests import email_request, preview
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.object_store import folder_of
from tests.support.written_weeks import (
    CLIENTS,
    audience_folder,
    commit_row,
    freeze,
    frozen_row,
    look,
    mailed_home,
    record,
    written,
)

OLD, NEW = IsoWeek(2024, 30), IsoWeek(2026, 46)
LAST = NEW.next
NOW = LAST.end + timedelta(hours=8)
STEPS = ("mark 2024-W30", "remove 2024-W30", "removed 2024-W30")


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[MemoryKafka]:
    with mailed_home(tmp_path, (OLD, NEW, LAST), CLIENTS[:3]) as kafka:
        look(kafka.settings, NOW)
        yield kafka


def request(week: IsoWeek, *arguments: str) -> Any:
    return email_request(week, *arguments, now=NOW)


def is_complete(settings: Settings, week: IsoWeek) -> bool:
    """Tell whether a kept week is read as it was frozen."""
    frozen = frozen_row(settings, week)
    listed = [FrozenWeeks(installed(settings).tables).clients(frozen, shard) for shard in (0, 1)]
    member = FrozenWeeks(installed(settings).tables).member(frozen, "c1")
    assert member is not None
    counts = FrozenWeeks(installed(settings).tables).counts(frozen.audience)
    assert counts[RECIPIENTS] == len(CLIENTS)
    return sorted([*listed[0], *listed[1]]) == sorted(CLIENTS) and member["email"] == "c1@x.example"


def others_are_complete(settings: Settings) -> bool:
    return is_complete(settings, NEW) and is_complete(settings, LAST)


def is_gone(settings: Settings, week: IsoWeek) -> bool:
    """Tell whether nothing of a week's audience is on the disk."""
    is_there = audience_folder(settings, week).exists()
    return not is_there and frozen_row(settings, week).audience_erased_at is not None


def log_text(settings: Settings) -> str:
    logs = folder_of(settings, AUDIENCES).rglob("_delta_log/*")
    return "".join(path.read_text(errors="replace") for path in logs if path.is_file())


def test_an_old_audience_leaves_table_disk_and_log_and_others_stay(at: Settings) -> None:
    result = erase_old_audiences(installed(at), NOW)
    assert (result.weeks, result.removed["clients"], result.removed["files"]) == ([str(OLD)], 4, 2)
    assert result.postponed == {}
    assert result.warning is None
    assert is_gone(at, OLD)
    assert others_are_complete(at)
    assert "x.example" not in log_text(at)
    again = erase_old_audiences(installed(at), NOW)
    assert (again.weeks, again.removed["files"]) == ([], 0)


def test_checkpoints_of_the_log_tell_no_names_either(at: Settings) -> None:
    for week in (OLD, LAST):
        table = audience_table(frozen_row(at, week).audience)
        storage.opened(installed(at).tables, table).create_checkpoint()
    assert "x.example" not in log_text(at)
    erase_old_audiences(installed(at), NOW)
    assert "x.example" not in log_text(at)
    assert is_gone(at, OLD)
    assert is_complete(at, LAST)


def test_a_dry_run_says_what_would_be_erased_and_changes_nothing(at: Settings) -> None:
    result = erase_old_audiences(installed(at), NOW, dry_run=True)
    assert (result.weeks, result.removed["clients"], result.removed["files"]) == ([str(OLD)], 4, 2)
    assert "1 week would be erased: 2024-W30; 4 clients" in result.lines()[0]
    assert json.loads(json.dumps(result.as_json()))["weeks"] == [str(OLD)]
    assert is_complete(at, OLD)


@pytest.mark.parametrize("killed_at", some(STEPS, 2))
def test_killed_at_any_step_and_run_again_it_is_erased(
    at: Settings, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    with killing(at_step(monkeypatch, week_retention, frozen_weeks), killed_at):
        erase_old_audiences(installed(at), NOW)
    assert others_are_complete(at)
    erase_old_audiences(installed(at), NOW)
    assert is_gone(at, OLD)
    assert "x.example" not in log_text(at)
    assert others_are_complete(at)


def test_a_mail_run_under_way_is_not_disturbed(at: Settings) -> None:
    with WeekState(installed(at), OLD).locked([1]):
        result = erase_old_audiences(installed(at), NOW)
        assert is_complete(at, OLD)
    assert result.weeks == []
    assert "is already running" in result.postponed[str(OLD)]
    said = "2024-W30: not erased yet: the weekly e-mail of 2024-W30, shard 1,"
    assert any(line.startswith(said) for line in result.lines())


def test_what_killed_freezes_left_goes_too_of_frozen_weeks_and_of_others(at: Settings) -> None:
    left = [
        folder_of(at, audience_table(f"{week}.x")) / "frozen/group=0/part.parquet"
        for week in (OLD.next, LAST, LAST.next)
    ]
    for file in left:
        file.parent.mkdir(parents=True)
        file.write_text("x")
    found = erase_old_audiences(installed(at), NOW, dry_run=True)
    assert (found.removed["files"], [file.exists() for file in left]) == (5, [True] * 3)
    assert erase_old_audiences(installed(at), NOW).removed["files"] == 5
    assert [file.parents[2].exists() for file in left] == [False] * 3
    assert others_are_complete(at)


def test_a_freeze_whose_folder_may_have_been_removed_commits_no_row(at: Settings) -> None:
    weeks = FrozenWeeks(installed(at).tables)
    version = weeks.version()  # as a freeze whose lock another machine has taken over
    begun = folder_of(at, audience_table(f"{LAST.next}.x"))
    begun.mkdir()
    erase_old_audiences(installed(at), NOW)
    assert not begun.exists()
    row = replace(frozen_row(at, LAST), week=str(LAST.next), audience=begun.name)
    with pytest.raises(ShardpostError, match="or removed audiences after this run started"):
        weeks.commit(row, version)
    assert weeks.find(LAST.next) is None


def test_a_week_that_was_frozen_late_is_as_old_as_its_freeze(at: Settings) -> None:
    freeze(at, OLD.previous, CLIENTS, NOW - timedelta(days=100))
    assert erase_old_audiences(installed(at), NOW).weeks == [str(OLD)]
    assert is_complete(at, OLD.previous)


def test_a_clock_that_is_ahead_erases_nothing_that_is_recent(at: Settings) -> None:
    ahead = NOW + timedelta(days=3650)
    result = erase_old_audiences(installed(at), ahead)
    assert result.weeks == [str(OLD)]
    assert result.warning is not None
    assert "the clock says 2036" in result.warning
    # Not even if one week was frozen by that clock.
    freeze(at, IsoWeek.last_ended(ahead), CLIENTS, ahead)
    assert erase_old_audiences(installed(at), ahead).weeks == []
    assert others_are_complete(at)


def test_ages_are_those_of_a_model() -> None:
    chance = random.Random(7)  # noqa: S311
    for _ in range(200):
        ends = [NOW - timedelta(days=7 * chance.randrange(200)) for _ in range(chance.randrange(5))]
        clock = NOW + timedelta(days=chance.choice([-400, -1, 0, 1, 30, 5000]))
        at, warning = certain_time(clock, ends)
        known = sorted(ends)[:-1] or ends
        assert at == (min(clock, max(known) + timedelta(days=35)) if ends else clock)
        assert (warning is None) == (at == clock)


def test_sending_a_dry_run_and_a_resend_refuse_the_week_in_words(at: Settings) -> None:
    erase_old_audiences(installed(at), NOW)
    said = (
        r"the audience of 2024-W30, 4 clients, was erased on 2026-11-23 .* can no longer be mailed"
    )
    for more in ((), ("--dry-run",), ("--on-unknown", "resend"), ("--again", "FAILED")):
        for asked in (request(OLD, *more), request(OLD, *more, "--shards", "1")):
            with pytest.raises(ShardpostError, match=said):
                preview(asked, installed(at))
            with pytest.raises(ShardpostError, match=said):
                run(asked, installed(at))


def test_the_runs_of_a_dag_skip_the_week_and_say_why(at: Settings) -> None:
    erase_old_audiences(installed(at), NOW)
    for more in ((), ("--dry-run",), ("--shards", "0"), ("--scheduled",)):
        code, document = run(request(OLD, "--freeze-only", *more), installed(at))
        assert code == 0
        assert "was erased on 2026-11-23" in document["skipped"]


def test_a_run_that_read_the_week_before_it_was_erased_refuses_it_behind_its_lock(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(at, OLD, "c2", DeliveryState.SENT)
    known = frozen_row(at, OLD)
    erase_old_audiences(installed(at), NOW)
    monkeypatch.setattr(FrozenWeeks, "list_all", lambda _: [known])
    with pytest.raises(ShardpostError, match="was erased on"):
        run(request(OLD), installed(at))


def test_an_erased_week_is_not_frozen_again(at: Settings) -> None:
    erase_old_audiences(installed(at), NOW)
    with pytest.raises(ShardpostError, match="was frozen by another run"):
        commit_row(at, FrozenWeek(str(OLD), "x", 9, OLD.end, NOW, 2, 9, Rule("US")))


def test_the_status_of_the_week_says_that_its_audience_was_erased(
    at: Settings, shardpost: CommandLine
) -> None:
    erase_old_audiences(installed(at), NOW)
    of_week = ["emails", "--week", str(OLD)]
    said = shardpost(*of_week)
    assert "all    3     0" in said
    assert "the audience of 2024-W30, 4 clients, was erased on 2026-11-23" in said
    document = shardpost.json(*of_week)
    assert document["audience_erased"] == {"at": NOW.isoformat(), "clients": 4}
    assert document["has_run"] is True
    assert "2024-W30: 0 open" in shardpost(*of_week, "--state", "open")
    assert "c0 got the e-mail of 2024-W30" in shardpost(*of_week, "--client", "c0")
    said = "whether it was in that week's audience is no longer known"
    assert said in shardpost(*of_week, "--client", "c2")


def test_without_any_audience_there_is_nothing_to_erase(tmp_path: Path) -> None:
    result = erase_old_audiences(installed(Settings(home=tmp_path)), NOW)
    assert result.lines() == ["audiences: 0 weeks erased; 0 clients, 0 files, 0 bytes removed"]


def test_of_two_freezes_of_a_week_one_is_committed_and_has_its_audience(at: Settings) -> None:
    week, weeks = LAST.next, FrozenWeeks(installed(at).tables)
    version = weeks.version()
    first = written(at, week, CLIENTS, NOW, audience="first")
    second = written(at, week, CLIENTS[:1], NOW, audience="second")  # as behind a lost lock
    weeks.commit(first, version)
    for since in (version, weeks.version()):
        with pytest.raises(ShardpostError, match="run again"):
            weeks.commit(second, since)
    assert frozen_row(at, week) == first
    assert is_complete(at, week)
    erase_old_audiences(installed(at), NOW)
    assert is_complete(at, week)
    assert week_folders(at, week) == [first.audience]


def week_folders(settings: Settings, week: IsoWeek) -> list[str]:
    return sorted(path.name for path in folder_of(settings, AUDIENCES).glob(f"{week}*"))
