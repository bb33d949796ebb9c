"""What a driver says of an error, in one line, and on record."""

import signal
import sys
from datetime import UTC, datetime

import pytest
from py4j.protocol import Py4JError

from shardpost import refused_runs
from shardpost.errors import ShardpostError
from shardpost.holders.compaction_job import CompactionRequest
from shardpost.settings import Settings
from shardpost.spark import driver
from shardpost.spark.driver import why_spark_failed
from shardpost.spark.job_spec import JobResult

KAFKA = """An error occurred while calling o1166.parquet.
: java.util.concurrent.ExecutionException: no node
\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node
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
            " node): `shardpost doctor` says what is wrong with it; then run again",
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
    monkeypatch.setattr(driver, "load", lambda: settings)

    def fail(asked: CompactionRequest, _: Settings) -> JobResult:
        raise error if asked.reconcile else AssertionError

    with pytest.raises(SystemExit, match="1"):
        driver.run_job(CompactionRequest, fail, is_real=lambda _: is_real)
    known = refused_runs.refusals(settings, datetime.now(UTC))
    assert {*known} == ({"compact_positions"} if is_real else set())
