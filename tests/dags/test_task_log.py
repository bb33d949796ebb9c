"""A Spark job as a task: what its exit code means, and what a person sees at once in its log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from airflow.dag_processing.dagbag import DagBag

from shardpost.alerts.history import list_firing
from shardpost.alerts.model.alert import EVENT, TASK_FAILED
from shardpost.orchestration.tasks import JobLog
from shardpost.settings import load
from tests.dags.conftest import StandIn
from tests.support.installed import installed
from tests.support.task_log import visible

FOLDER = Path(__file__).parent
TRACEBACK = "▶ Traceback (the reason is below it)"
ATTEMPT = "[DAG TEST] running task"


class Recorder(logging.Handler):
    """Notes what Airflow and Shardpost log, in one order."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line of ours, and the beginning of an attempt."""
        if record.name.startswith("shardpost"):
            self.lines.append(f"{record.levelname} {record.getMessage()}")
        elif record.getMessage().startswith(ATTEMPT):
            self.lines.append(ATTEMPT)

    def process(self, _logger: Any, level: str, event: Any) -> Any:
        """Note a line of Airflow's task runner."""
        if event.get("logger_name") == "task":
            self.lines.append(f"{level.upper()} {event['event']}")
        raise structlog.DropEvent


@contextmanager
def recorded() -> Iterator[Recorder]:
    """Record all log lines."""
    recorder, root, before = Recorder(), logging.getLogger(), structlog.get_config()
    level = root.level
    structlog.configure(
        processors=[recorder.process],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=False,
    )
    root.addHandler(recorder)
    root.setLevel(logging.INFO)
    try:
        yield recorder
    finally:
        root.removeHandler(recorder)
        root.setLevel(level)
        structlog.configure(**before)


def seen(task_id: str) -> list[list[str]]:
    """Run one task to its end; return what is visible of the log of each attempt."""
    dag = DagBag(dag_folder=FOLDER / "samples").dags["failures"]
    with recorded() as recorder:
        dag.partial_subset(task_id, include_upstream=False).test()
    attempts: list[list[str]] = []
    for line in recorder.lines:
        if line == ATTEMPT:
            attempts.append(["INFO ::group::Pre Execute"])  # as a process of its own begins
        elif attempts:
            attempts[-1].append(line)
    return [visible(attempt) for attempt in attempts]


def failed(why: str, *, attempt: int | None = None) -> str:
    """Return the last line of an attempt that failed."""
    if attempt is None:
        return f"ERROR failed: {why}"
    return f"WARNING attempt {attempt} of 2 failed, and Airflow retries: {why}"


def test_what_the_request_of_a_job_refuses_is_the_last_line_and_starts_nothing(
    stand_in: StandIn,
) -> None:
    calls = stand_in({})
    why = failed("week 2026-W99: there is no such week in 2026")
    assert seen("refused") == [["▶ Pre Execute", TRACEBACK, why]]
    assert not calls.exists()


def test_the_lines_of_a_job_stand_out_and_those_of_spark_are_in_a_closed_group(
    stand_in: StandIn,
) -> None:
    stand_in({"bad_job": [1, "no broker at 127.0.0.1:1"]})
    of_job = ["INFO job stand_in bad_job", "▶ Spark", "ERROR shardpost: no broker at 127.0.0.1:1"]
    why = "stand_in ended with 1: no broker at 127.0.0.1:1"
    assert seen("bad_job") == [
        ["▶ Pre Execute", *of_job, TRACEBACK, failed(why, attempt=1)],
        ["▶ Pre Execute", *of_job, TRACEBACK, failed(why)],
    ]


def test_a_job_that_was_killed_says_so(stand_in: StandIn) -> None:
    stand_in({"bad_job": [-9, {}]})
    why = ": killed by signal 9, as the kernel does if memory runs out."
    last = [attempt[-1] for attempt in seen("bad_job")]
    assert [why in line and "Cannot execute" not in line for line in last] == [True, True]


def test_a_python_task_ends_as_a_command_does() -> None:
    why = "no broker at 127.0.0.1:1"
    assert seen("could_not") == [
        ["▶ Pre Execute", TRACEBACK, failed(why, attempt=1)],
        ["▶ Pre Execute", TRACEBACK, failed(why)],
    ]
    assert seen("needs_a_person") == [
        ["▶ Pre Execute", TRACEBACK, failed("2 deliveries are unknown")]
    ]


def test_people_are_told_once_of_a_task_that_fails_again_and_again_and_when_it_succeeds(
    stand_in: StandIn, alerts: Path
) -> None:
    for attempt in ("no broker", "no broker still"):
        stand_in({"bad_job": [3, attempt]})
        seen("bad_job")
    key = (TASK_FAILED, "failures bad_job")
    [firing] = [one for one in list_firing(installed(load()).tables) if one.condition.key == key]
    assert "no broker still" in firing.condition.text
    said = alerts.read_text()
    assert said.count("bad_job, attempt 1: stand_in ended with 3: no broker") == 2
    assert "resolved" not in said
    stand_in({"bad_job": [0, {}]})
    seen("bad_job")
    assert "resolved (risk) task-failed of failures bad_job" in alerts.read_text()
    assert key not in [one.condition.key for one in list_firing(installed(load()).tables)]


def test_that_the_params_of_a_manual_run_were_refused_is_an_event(stand_in: StandIn) -> None:
    stand_in({})
    before = list_firing(installed(load()).tables)  # of other tests
    seen("refused")
    [told] = [one for one in list_firing(installed(load()).tables) if one not in before]
    assert told.condition.subject.startswith("failures refused manual")
    assert told.condition.source == EVENT


def test_why_a_task_is_skipped_is_visible() -> None:
    skipped = "INFO skipped: the week ended long ago"
    assert seen("left_out") == [["▶ Pre Execute", skipped, "▶ Post Execute"]]


def test_an_error_that_nobody_has_foreseen_shows_its_traceback_and_ends_in_one_line() -> None:
    traceback = "ERROR Task failed with exception"
    why = "KeyError: 'shards'"
    assert seen("has_a_bug") == [
        ["▶ Pre Execute", traceback, "▶ Post Execute", failed(why, attempt=1)],
        ["▶ Pre Execute", traceback, "▶ Post Execute", failed(why)],
    ]


def test_a_task_that_takes_too_long_says_so() -> None:
    [first, last] = [attempt[-1] for attempt in seen("takes_too_long")]
    why = "it took longer than 0:00:00.200000 and was stopped"
    assert (first, last) == (failed(why, attempt=1), failed(why))


LINES = """Spark-Submit cmd: spark-submit --master local[*] job.py
WARNING: Using incubator modules: jdk.incubator.vector
:: loading settings :: url = jar:file:/opt/ivysettings.xml
26/11/23 07:25:00 INFO SparkContext: Running Spark version 4.0.0
2026-11-23 07:25:01,123 INFO positions[0]: 3 records read, 100% of them
26/11/23 07:25:02 WARN TaskSetManager: Lost task 0.0
2026-11-23 07:25:03,456 JVM ERROR Inbox: An error happened
java.io.IOException: Broken pipe
at java.base/java.io.FileOutputStream.write(FileOutputStream.java:349)
Caused by: java.lang.IllegalStateException: closed
... 12 more
{"client": "a INFO b", "email": "a@example.com"}
2026-11-23 07:25:04,789 WARNING positions[0]@5: rejected
shardpost: no broker at 127.0.0.1:1""".splitlines()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level("INFO"):
        job_log = JobLog()
        for line in LINES:
            job_log.info(line)
        job_log.close()
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


def test_what_a_job_says_is_visible_with_its_level_and_spark_is_closed(logged: list[str]) -> None:
    assert visible(logged) == [
        "▶ Spark",
        "INFO positions[0]: 3 records read, 100% of them",
        "▶ Spark",
        "INFO java.io.IOException: Broken pipe",
        "▶ Spark",
        'INFO {"client": "a INFO b", "email": "a@example.com"}',
        "WARNING positions[0]@5: rejected",
        "ERROR shardpost: no broker at 127.0.0.1:1",
    ]


def test_no_line_is_lost(logged: list[str]) -> None:
    assert len([line for line in logged if "group::" not in line]) == len(LINES)


def test_a_job_that_says_no_reason_is_quoted_with_its_last_lines() -> None:
    job_log = JobLog()
    for line in ("Traceback (most recent call last):", "WARNING: hsperf", "", "KeyError: 'x'"):
        job_log.info(line)
    assert job_log.said == "Traceback (most recent call last): | KeyError: 'x'"
    job_log.info("shardpost: no broker")
    assert job_log.said == "no broker"


def test_a_job_names_params_of_its_dag_and_whole_commands_as_they_are() -> None:
    job_log = JobLog()
    command = "`shardpost email --week 2026-W47 --again FAILED` mails them"
    job_log.info(f"shardpost: run it once with --accept-drop, or `--from history`; {command}")
    expected = "run it once with param accept_drop, or `param source history`; "
    assert job_log.said == expected + command
    job_log.info("shardpost: positions: another home has them: add --take-over")
    assert job_log.said.endswith(": add --take-over")


def test_a_group_that_is_open_at_the_end_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        job_log = JobLog()
        job_log.info("Spark-Submit cmd: %s", "spark-submit")
        job_log.close()
        job_log.close()
    assert [record.getMessage() for record in caplog.records] == [
        *("::group::Spark", "Spark-Submit cmd: spark-submit", "::endgroup::")
    ]


def test_the_exit_code_says_whether_a_job_is_tried_again(
    submitted_stand_in: StandIn, task_environment: Path
) -> None:
    calls = submitted_stand_in(
        {
            "done": [0, {"n": 1}],
            "could_not": [1, "no broker at 127.0.0.1:1"],
            "bad_usage": [2, "no such week"],
            "needs_attention": [3, {"unknown": ["client1"]}],
            "needs_a_person_first": [3, "tombstones may have been lost"],
        }
    )
    dag = DagBag(dag_folder=FOLDER / "samples").dags["exit_codes"]
    run = dag.test()
    tasks = {task.task_id: task for task in run.get_task_instances()}

    assert {name: (task.state, task.try_number) for name, task in tasks.items()} == {
        "done": ("success", 1),
        "could_not": ("failed", 2),
        "bad_usage": ("failed", 1),
        "needs_attention": ("success", 1),
        "needs_a_person_first": ("failed", 1),
        "needs_no_spark": ("success", 1),
    }
    assert tasks["done"].xcom_pull(task_ids="done") == {"n": 1}
    assert tasks["done"].xcom_pull(task_ids="needs_attention") == {"unknown": ["client1"]}
    assert tasks["done"].xcom_pull(task_ids="needs_no_spark") == {"request": "--week"}
    assert len(calls.read_text().splitlines()) == 6
    assert not (task_environment / "results").exists()
    alerts = (task_environment / "alerts.log").read_text()
    assert "could_not, attempt 2: stand_in ended with 1: no broker at 127.0.0.1:1\n" in alerts
    lost = "needs_a_person_first, attempt 1: stand_in ended with 3: tombstones may have been lost\n"
    assert lost in alerts
    assert "bad_usage, attempt 1: stand_in ended with 2: no such week\n" in alerts
