"""`shardpost runs` as its users have it, and the watch that triggers the DAG."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardpost.run_requests.request_topics import RequestWatch
from shardpost.settings import Settings
from tests.support import decisions
from tests.support.airflow_server import AirflowServer
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.job_process import wait_for
from tests.support.run_requests import KEY, ask, request, run


@pytest.fixture
def command(askable: Settings) -> CommandLine:
    return CommandLineHere(askable.environ())


def asked(*more: str) -> tuple[str, ...]:
    return ("runs", "request", KEY, "--dag", "weekly_email", "--by", "anna", *more)


def status_while_dispatched(
    command: CommandLine, askable: Settings, *more: str, code: int = 0
) -> Any:
    """Send a request and wait for its status, while another dispatches."""
    watch = RequestWatch(askable)
    watch.pending_ends()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(command.json, *asked("--wait", *more), code=code)
        wait_for(lambda: watch.pending_ends() is not None, "the request to be there", seconds=60)
        run(askable)
        return waiting.result()


def test_a_request_waits_for_its_status(
    command: CommandLine, askable: Settings, airflow: AirflowServer
) -> None:
    won = status_while_dispatched(command, askable)
    assert (won["fate"], won["run_id"]) == ("won", airflow.started[0])
    again = status_while_dispatched(command, askable)
    assert (again["fate"], again["run_id"]) == ("already running", airflow.started[0])
    assert (again["requested_by"], again["since"]) == ("anna", won["since"])
    conflict = status_while_dispatched(command, askable, "--conf", '{"week":"2026-W47"}', code=3)
    assert (conflict["fate"], conflict["run_id"]) == ("conflict", airflow.started[0])
    airflow.end_all()
    airflow.dags["weekly_email"] = True
    refused = status_while_dispatched(command, askable, code=3)
    assert refused["fate"] == "refused"
    assert "DAG weekly_email is paused in Airflow" in refused["why"]


def test_a_request_that_nobody_dispatches_is_reported_at_the_deadline(askable: Settings) -> None:
    hasty = CommandLineHere(askable.environ() | {"SHARDPOST_REQUEST_WAIT": "0.1"})
    line = hasty.refused(*asked("--wait"), code=1)
    assert f"{askable.topic('run-requests')}[0]@0 is not processed yet after 0.1 s" in line
    assert "the request stays in its topic" in line
    assert run(askable).issued == 1


def test_what_is_listed_dispatched_and_released(
    command: CommandLine, askable: Settings, airflow: AirflowServer
) -> None:
    assert command.json("runs", "list") == []
    assert command("runs", "list") == "no requested run is waiting or running\n"
    assert command(*asked()) == f"requested: {askable.topic('run-requests')}[0]@0\n"
    airflow.breaks = True
    assert "1 commands are committed and not started" in command.refused("runs", "dispatch", code=1)
    airflow.breaks = False
    assert command.json("runs", "dispatch")["started"] == 1
    [row] = command.json("runs", "list")
    assert (row["key"], row["dag"], row["state"]) == (KEY, "weekly_email", "started")
    assert "started  " in command("runs", "list")
    assert "is left running" in command("runs", "release", KEY, "--why", "it hangs", "--by", "ben")
    assert command.json("runs", "list") == []
    [(decision, _)] = decisions.list_all(askable)
    assert (decision.who, decision.why) == ("ben", "it hangs")
    assert "no run command is in force under key" in command.refused(
        "runs", "release", KEY, "--why", "again", code=1
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("request", KEY, "--dag", "weekly_email", "--conf", "[1]"),
        ("request", KEY, "--dag", "weekly_email", "--conf", "{"),
        ("request", KEY, "--dag", "weekly_email", "--conf", '{"x": NaN}'),
        ("request", KEY, "--dag", "weekly_email", "--conf", '{"x": "\\ud800"}'),
        ("request", KEY, "--dag", "weekly_email", "--conf", '{"x": "' + "y" * 70_000 + '"}'),
        ("request", "k" * 70_000, "--dag", "weekly_email"),
        ("request", "", "--dag", "weekly_email"),
        ("release", KEY, "--why", " "),
    ],
)
def test_bad_usage_is_refused(command: CommandLine, arguments: tuple[str, ...]) -> None:
    assert "expected" in command.refused("runs", *arguments, code=2)


def test_the_watch_reports_what_waits_once_and_nothing_that_was_dispatched(
    askable: Settings, airflow: AirflowServer
) -> None:
    watch = RequestWatch(askable)
    assert watch.pending_ends() is None
    ask(askable, KEY, request())
    assert watch.pending_ends() == {0: 1}
    assert watch.pending_ends() is None
    ask(askable, KEY, request())
    assert RequestWatch(askable).pending_ends() == {0: 2}  # one that starts later sees it as well
    run(askable)
    assert watch.pending_ends() is None
    assert RequestWatch(askable).pending_ends() is None
