"""A task that is ended from outside, and a scheduler that dies: no Spark driver outlives them."""

import json
import os
import signal
import uuid
from urllib.parse import quote

import httpx
import psutil
import pytest

from tests.e2e.conftest import CONFLICT, eventually
from tests.support.command_line import CommandLine
from tests.support.installed import installed

RUNS = "/api/v2/dags/compact_positions/dagRuns"


JOB = "compact_positions.py"


def drivers(run: str) -> set[int]:
    """Return the processes, JVM and Python, of a run's job; Airflow tells them which run it is."""
    return {process.pid for process in psutil.process_iter() if _is_driver(process, run)}


def _is_driver(process: psutil.Process, run: str) -> bool:
    try:
        is_job = any(part.endswith(JOB) for part in process.cmdline())
        return is_job and process.environ().get("AIRFLOW_CTX_DAG_RUN_ID") == run
    except psutil.Error:
        return False


def started_compaction(stack: CommandLine, api: httpx.Client) -> str:
    """Start a run, and return its id when the JVM and the Python of its driver run.

    With something to read: else it would need no driver. A run of the schedule that comes first
    reads it; then another one is started.
    """
    producer = installed(stack.settings).kafka.producer()
    run = ""

    def driver_runs() -> bool:
        nonlocal run
        if not run or _state(api, run) == "success":
            value = b'{"Client":"c","Exchange":"LON"}'
            producer.produce("positions", key=uuid.uuid4().hex, value=value)
            assert producer.flush(30) == 0
            run = _triggered(api)
        return len(drivers(run)) >= 2

    eventually(driver_runs, "no Spark driver runs")
    return run


def _triggered(api: httpx.Client) -> str:
    run = f"by-hand-{uuid.uuid4().hex}"
    answer = api.post(RUNS, json={"dag_run_id": run, "logical_date": None})
    if answer.status_code != CONFLICT:  # a repeated request may find what the first one started
        answer.raise_for_status()
    return run


def _state(api: httpx.Client, run: str) -> str:
    return str(api.get(f"{RUNS}/{quote(run)}").raise_for_status().json()["state"])


@pytest.mark.one_of("whole systems")
def test_a_task_that_is_marked_failed_ends_its_driver(
    stack: CommandLine, api: httpx.Client
) -> None:
    run = started_compaction(stack, api)
    task = f"{RUNS}/{quote(run)}/taskInstances/compact"
    api.patch(task, json={"new_state": "failed"}).raise_for_status()
    eventually(lambda: not drivers(run), "the driver runs on")
    assert api.get(task).json()["state"] == "failed"


@pytest.mark.one_of("whole systems")
def test_after_a_scheduler_that_was_killed_up_ends_its_driver_and_runs_the_task_again(
    stack: CommandLine, api: httpx.Client
) -> None:
    run = started_compaction(stack, api)
    pid_file = stack.settings.home / "run" / "airflow-scheduler.pid"
    os.kill(json.loads(pid_file.read_text())["pid"], signal.SIGKILL)
    lost = drivers(run)
    assert stack.json("status")["airflow"]["state"] == "broken: not running: scheduler"

    stack("up")
    assert stack.json("status")["airflow"]["state"] == "up"
    assert not lost & drivers(run)
    eventually(lambda: _state(api, run) == "success", "the run does not end well")
