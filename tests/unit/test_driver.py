"""What a driver says of an error, in one line, and on record."""

import runpy
import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from py4j.protocol import Py4JError

from shardpost.checkout import CHECKOUT
from shardpost.errors import ShardpostError
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.imports.model.source import FileSource, Format, ImportRequest
from shardpost.installation import Installation
from shardpost.locks import refused_runs
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest
from shardpost.settings import Settings
from shardpost.spark import driver
from shardpost.spark.driver import why_spark_failed
from shardpost.spark.job import JobResult
from shardpost.weekly_email.email_job import EmailRequest, Mode
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.installed import installed

KAFKA = """An error occurred while calling o1166.parquet.
: java.util.concurrent.ExecutionException: no node
\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node
"""
OF_A_DATABASE = """An error occurred while calling o57.load.
: org.postgresql.util.PSQLException: FATAL: database "none" does not exist
\tat org.postgresql.core.v3.ConnectionFactoryImpl.doAuthentication(ConnectionFactoryImpl.java:1)
"""
OF_PYTHON = """Job aborted due to stage failure: Task 1 in stage 0.0 failed 1 times
Traceback (most recent call last):
  File "a.py", line 1, in f
ValueError: a bad row
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            KAFKA,
            "Kafka did not answer Spark within SHARDPOST_KAFKA_TIMEOUT (Timed out waiting for a"
            " node): `shardpost doctor` shows what is wrong; then run again",
        ),
        (
            OF_A_DATABASE,
            'Spark failed: org.postgresql.util.PSQLException: FATAL: database "none" does not'
            " exist",
        ),
        (OF_PYTHON, "Spark failed: ValueError: a bad row"),
        ("[TABLE] not found\nmore", "Spark failed: [TABLE] not found"),
        ("", "Spark failed: Py4JError"),
    ],
)
def test_the_innermost_cause_is_said(text: str, said: str) -> None:
    assert why_spark_failed(Py4JError(text)) == said


@pytest.mark.parametrize("is_real", [True, False])
@pytest.mark.parametrize("error", [ShardpostError("again"), Py4JError("[TABLE] not found")])
def test_why_a_job_ended_is_on_record_unless_it_only_looks(
    error: Exception, settings: Settings, monkeypatch: pytest.MonkeyPatch, *, is_real: bool
) -> None:
    monkeypatch.setattr(sys, "argv", ["/jobs/compact_positions.py", '{"reconcile":true}'])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(driver, "terminate_with_parent", lambda: None)
    monkeypatch.setattr(driver, "opened", lambda: installed(settings))

    def fail(asked: CompactionRequest, _: Installation) -> JobResult:
        raise error if asked.reconcile else AssertionError

    with pytest.raises(SystemExit, match="1"):
        driver.run_job(CompactionRequest, fail, noted_as=lambda _, job: job if is_real else None)
    known = refused_runs.refusals(installed(settings).files, datetime.now(UTC))
    assert {*known} == ({"compact_positions"} if is_real else set())


def noted_as(job: str, request: object, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return as whose the file of a job has it noted that a request was refused."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(driver, "run_job", lambda *_, **options: seen.update(options))
    runpy.run_path(str(CHECKOUT / "spark_jobs" / f"{job}.py"), run_name="__main__")
    return seen["noted_as"](request, job)  # type: ignore[no-any-return]


LIST = ImportRequest(FileSource("/list.csv", Format.CSV), "Ann")
MAIL = EmailRequest(IsoWeek.parse("2026-W47"), shards="0-3")


@pytest.mark.parametrize(
    ("job", "looks", "acts", "noted"),
    [
        ("import_positions", LIST, replace(LIST, is_applied=True), "import_positions"),
        (
            "rebuild_tables",
            RebuildRequest(Action.TOP_UP, "diff"),
            RebuildRequest(Action.SWAP, "Ann"),
            "rebuild_tables",
        ),
        ("weekly_email", replace(MAIL, mode=Mode.DRY_RUN, is_part=True), MAIL, "weekly_email"),
        (
            "weekly_email",
            replace(MAIL, mode=Mode.LIST_GROUPS),
            replace(MAIL, is_part=True),
            "weekly_email shards 0-3",
        ),
    ],
)
def test_a_run_that_only_looks_neither_notes_nor_ends_a_note(
    job: str, looks: object, acts: object, noted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert noted_as(job, looks, monkeypatch) is None
    assert noted_as(job, acts, monkeypatch) == noted
