"""What a driver says of an error of Spark's, in one line."""

import pytest
from py4j.protocol import Py4JError

from shardpost.spark.driver import why_spark_failed

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
