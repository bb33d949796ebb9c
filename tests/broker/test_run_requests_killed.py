"""Dispatches that are killed or halted at each step: one command, one run, each decision once."""

import time
from pathlib import Path

import pytest

from shardpost.run_requests.dispatch import FRESH_SECONDS
from shardpost.run_requests.request_client import commands_in_force
from shardpost.settings import Settings
from tests.support.airflow_server import AirflowServer
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.run_requests import (
    KEY,
    STEPS,
    Dispatch,
    ask,
    decided,
    history,
    request,
    run,
)


def states(settings: Settings) -> list[str]:
    return [str(entry.command.state) if entry.command else "free" for entry in history(settings)]


@pytest.mark.parametrize("step", some(STEPS))
def test_killed_at_any_step_the_next_dispatch_ends_as_an_unbroken_one(
    askable: Settings, airflow: AirflowServer, step: str
) -> None:
    ask(askable, "before", request())
    run(askable)
    airflow.end_all()
    for key, value in ((KEY, request()), (KEY, request({"x": 1})), ("bad", b"?"), (KEY, request())):
        ask(askable, key, value)
    Dispatch(askable, step).kill()
    run(askable)
    assert [entry.key for entry in commands_in_force(installed(askable).kafka)] == [KEY]
    assert len(airflow.started) == len(set(airflow.started)) == 2
    assert decided(askable) == [("conflict", KEY), ("refused", "bad")]
    assert states(askable) == ["issued", "started", "issued", "free", "started"]
    airflow.end_all()
    assert run(askable).released == 1


def test_a_halted_dispatch_that_wakes_up_has_no_effect(
    askable: Settings, airflow: AirflowServer, tmp_path: Path
) -> None:
    elsewhere = askable.model_copy(update={"home": tmp_path / "another-machine"})
    ask(askable, KEY, request())
    halted = Dispatch(elsewhere, "start")
    since = time.monotonic()
    run(askable)  # another takes over, and starts what the halted one had issued
    airflow.end_all()
    run(askable)
    airflow.delete(airflow.started[0])  # now Airflow itself would not refuse it any more
    wait_for(lambda: time.monotonic() > since + FRESH_SECONDS, "the halt to be noticeable")
    before = states(askable)
    code, said = halted.resume()
    assert (code, len(airflow.started)) == (1, 1), said
    assert "fenced: a newer dispatch has taken over" in said
    assert states(askable) == before == ["issued", "started", "free"]


def test_a_halted_dispatch_cannot_commit_commands_any_more(
    askable: Settings, airflow: AirflowServer, tmp_path: Path
) -> None:
    ask(askable, KEY, request())
    halted = Dispatch(askable.model_copy(update={"home": tmp_path / "another"}), "commit commands")
    run(askable)
    code, said = halted.resume()
    assert (code, states(askable)) == (1, ["issued", "started"]), said
    assert len(airflow.started) == 1


def test_a_second_dispatch_waits_for_the_first_and_says_for_whom(
    askable: Settings, airflow: AirflowServer
) -> None:
    halted = Dispatch(askable, "read requests")
    try:
        with pytest.raises(Exception, match="the dispatch of run requests is already running"):
            run(askable.model_copy(update={"lock_wait": 0.1}))
    finally:
        halted.kill()
