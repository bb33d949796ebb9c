"""What a person is told: by `shardpost doctor`, of a wrong trigger, in the log of a task."""

import httpx

from shardpost.errors import DONE, NEEDS_ATTENTION
from tests.e2e.conftest import eventually, paused
from tests.support.command_line import CommandLine
from tests.support.job_process import wait_for
from tests.support.task_log import visible

RUNS = "/api/v2/dags/weekly_email/dagRuns"


def test_a_week_that_does_not_exist_is_refused_in_words_when_a_run_is_triggered(
    api: httpx.Client,
) -> None:
    form = {"logical_date": None, "conf": {"week": "2026-W99"}}
    answer = api.post(RUNS, json=form)
    assert answer.status_code == httpx.codes.BAD_REQUEST
    why = "Invalid input for param week: week 2026-W99: there is no such week in 2026"
    assert answer.json() == {"detail": why}


def test_a_week_to_come_fails_at_once_and_the_last_visible_line_says_why(
    stack: CommandLine, api: httpx.Client
) -> None:
    run = f"{RUNS}/week-to-come"
    form = {"logical_date": None, "conf": {"week": "9998-W01"}, "dag_run_id": "week-to-come"}
    api.post(RUNS, json=form).raise_for_status()
    eventually(lambda: api.get(run).raise_for_status().json()["state"] == "failed", "a failed run")

    found = api.get(f"{run}/taskInstances/wait").raise_for_status().json()
    assert (found["state"], found["try_number"]) == ("failed", 1)
    path = f"{run}/taskInstances/wait/logs/1"
    log = api.get(path, headers={"Accept": "application/json"}).raise_for_status().json()
    assert visible(line["event"] for line in log["content"]) == [
        *("▶ Log message source details", "▶ Pre Execute"),
        "▶ Traceback (the reason is below it)",
        "failed: week 9998-W01 has not begun: it starts 9997-12-29 00:00 UTC",
    ]
    alerts = (stack.settings.home / "alerts.log").read_text()
    assert " weekly_email week-to-come wait, attempt 1: week 9998-W01 has not begun" in alerts


def wrong(stack: CommandLine, code: int) -> dict[str, str]:
    found = stack.json("doctor", code=code)
    return {one["check"]: one["cure"] for one in found if one["state"] in ("warning", "error")}


def test_a_whole_stack_is_well_until_a_dag_is_paused(stack: CommandLine, api: httpx.Client) -> None:
    stack("compact")
    # 3: it parked what earlier tests left; 1: the stack's own sweep is running
    done = (DONE, NEEDS_ATTENTION)
    wait_for(lambda: stack.run("letters", "sweep").returncode in done, "a sweep")
    before = "of the tests before this one"
    stack("letters", "discard", "--apply", "--why", before)
    for one in stack.json("alerts", "list"):  # if the watch has looked meanwhile
        stack("alerts", "silence", one["key"], "--for", "1h", "--why", before)
    assert wrong(stack, code=0) == {}
    with paused(api, "sweep_dead_letters"):
        found = wrong(stack, code=3)
    assert found == {"dag sweep_dead_letters": "shardpost airflow dags unpause sweep_dead_letters"}
    assert wrong(stack, code=0) == {}
