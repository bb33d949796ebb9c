"""A redrive that goes on by itself: what its file says, also after its process has ended."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shardpost.dead_letters import redrive_runs
from shardpost.dead_letters.model.letter_history import ListFilters
from shardpost.dead_letters.model.redrive_request import RedriveRequest, Shown
from shardpost.dead_letters.model.transition_records import Routes
from shardpost.dead_letters.redrive import Redrive
from shardpost.dead_letters.redrive_runs import LAST, SILENT, RedriveRun, RunState, last_run, start
from shardpost.errors import ShardpostError
from shardpost.locks.locks import LockedError, exclusive
from shardpost.locks.shared_files import SharedFile
from shardpost.settings import Settings
from shardpost.wording import json_text
from tests.support.installed import installed

NOW = datetime(2026, 11, 23, tzinfo=UTC)
RUN = RedriveRun("r1", "redriven", "anna", "mended", NOW, {}, seen=NOW)
ROUTES = Routes("dead-letters", "parking-lot", {"parking-lot": 1})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


def redrive(settings: Settings) -> Redrive:
    request = RedriveRequest(ListFilters(), is_redrive=True, who="anna", why="mended", now=NOW)
    return Redrive(installed(settings), ROUTES, request, Shown("", {0: 9}))


@pytest.mark.parametrize(
    ("state", "silent", "shown"),
    [
        (RunState.RUNNING, SILENT, RunState.RUNNING),
        (RunState.RUNNING, SILENT + timedelta(seconds=1), RunState.GONE),
        (RunState.PLANNING, timedelta(days=1), RunState.GONE),
        (RunState.STOPPED, timedelta(days=1), RunState.STOPPED),
    ],
)
def test_a_run_that_says_nothing_more_has_ended_with_its_process(
    settings: Settings, state: RunState, silent: timedelta, shown: RunState
) -> None:
    text = json_text(replace(RUN, state=state))
    SharedFile(installed(settings).files, LAST).write(text)
    found = last_run(installed(settings).files, NOW + silent)
    assert found is not None
    assert (found.state, found.is_going) == (shown, shown is RunState.RUNNING)


@pytest.mark.parametrize("text", ["", "[]", '{"id": 1}', "not JSON"])
def test_a_file_that_cannot_be_read_is_of_no_run(settings: Settings, text: str) -> None:
    SharedFile(installed(settings).files, LAST).write(text)
    assert last_run(installed(settings).files, NOW) is None


def test_what_fails_is_said_and_who_is_second_is_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Redrive) -> None:
        raise ShardpostError("Kafka is away")

    monkeypatch.setattr(redrive_runs, "plan_redrive", failing)
    run = start(redrive(settings), {}, 60)
    assert (run.state, run.error, run.done) == ("failed", "Kafka is away", 0)
    assert last_run(installed(settings).files, datetime.now(UTC)) == run
    with (
        exclusive(installed(settings).files, "redrive_run", "another"),
        pytest.raises(LockedError) as refused,
    ):
        start(redrive(settings), {}, 60)
    assert "is already running" in str(refused.value)
    assert last_run(installed(settings).files, datetime.now(UTC)) == run


def test_a_redrive_whose_end_cannot_be_written_down_has_been_carried_out(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Redrive) -> None:
        monkeypatch.setattr(SharedFile, "write", full)
        raise ShardpostError("Kafka is away")

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(redrive_runs, "plan_redrive", failing)
    run = start(redrive(settings), {}, 60)
    assert run.state == "failed"
    assert run.error == "the result of the run could not be recorded: no space left on device"


def test_a_redrive_that_cannot_say_how_far_it_is_does_not_begin(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(SharedFile, "write", full)
    with pytest.raises(OSError, match="no space left"):
        start(redrive(settings), {}, 60)
    assert "Traceback" in caplog.text
