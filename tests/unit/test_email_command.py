"""What `shardpost email` refuses at once: before spark-submit, and so before Java, starts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shardpost.delta import snapshots
from shardpost.settings import Settings
from shardpost.spark import submit
from shardpost.weekly_email import ledger_guard
from shardpost.weekly_email.checks import check
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.email_requests import email_request
from tests.support.histories import snapshot
from tests.support.written_weeks import begin, freeze

LAST = "2020-W47"
WEEK = IsoWeek.parse(LAST)


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("spark-submit was started")

    monkeypatch.setattr(submit, "submit", never)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--week", "2026-W60"), 2, "week 2026-W60: there is no such week"),
        (("--week", LAST, "--shards", "x"), 2, "shards 'x': expected a form such as"),
        (("--week", LAST, "--shards", "-x"), 2, "shards '-x': expected a form such as"),
        (("--week", LAST, "--shards", "3-1"), 2, "expected the lower number first"),
        (("--week", LAST, "--shards", "0-99"), 2, "shards '0-99': expected 0 to 1, found 0-99"),
        (("--week", LAST, "--early"), 1, "--early is for a week still running"),
        (("--week", "9000-W01"), 1, "has not begun"),
        (("--week", LAST), 1, "`shardpost compact`"),
        (("--week", LAST, "--again", "failed"), 1, "`shardpost compact`"),
        (("--week", LAST, "--again", "Suppressed"), 1, "`shardpost compact`"),
        (("--week", LAST, "--again", "sent"), 2, "--again"),
    ],
)
def test_what_can_be_known_without_spark_is_refused_without_it(
    shardpost: CommandLine, arguments: tuple[str, ...], code: int, said: str, dry: tuple[str, ...]
) -> None:
    found, out, err = shardpost.answer("email", *arguments, *dry)
    assert (found, out, said in err) == (code, "", True), err


def test_bad_shards_are_refused_without_kafka_too(settings: Settings) -> None:
    shardpost = CommandLineHere(settings.environ())
    said = shardpost.refused("email", "--week", LAST, "--shards", "x", code=2)
    assert "expected a form such as" in said


def pruned(settings: Settings, history_from: datetime) -> None:
    """Commit a snapshot of now whose histories were pruned up to a time."""
    made = replace(snapshot(1, {}), looked_at=datetime.now(UTC), history_from=history_from)
    snapshots.commit(settings, made)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_week_whose_history_was_pruned_and_that_is_not_frozen_is_refused(
    at: Settings, shardpost: CommandLine, dry: tuple[str, ...]
) -> None:
    pruned(at, WEEK.end + timedelta(milliseconds=1))
    code, out, err = shardpost.answer("email", "--week", LAST, *dry)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "week 2020-W47 is not frozen, and its holders can no longer be computed" in err
    assert "snapshot 1 has the whole history from 2020-11-23T00:00:00.001000+00:00" in err
    assert "SHARDPOST_HISTORY_DAYS" in err
    assert ledger_guard.list_marks(at) == []


@pytest.mark.parametrize("mode", ["--dry-run", "--freeze-only"])
def test_a_week_is_mailed_whose_history_is_whole_or_that_was_frozen_before(
    at: Settings, mode: str
) -> None:
    request = email_request(WEEK, mode, now=datetime.now(UTC))
    pruned(at, WEEK.end)
    assert check(request, at).week.frozen is None
    later = replace(snapshots.current(at), number=2, history_from=WEEK.end + timedelta(days=9))
    snapshots.commit(at, later)
    begin(at, WEEK, WEEK.end)
    frozen = freeze(at, WEEK, ["c1"], WEEK.end)
    assert check(request, at).week.frozen == frozen
