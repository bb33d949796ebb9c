"""The lines that spark-submit writes: which are the job's, which are Spark's."""

import pytest

from shardpost.orchestration.task_log import JobLog
from tests.support.task_log import visible

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


def test_a_group_that_is_open_at_the_end_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        job_log = JobLog()
        job_log.info("Spark-Submit cmd: %s", "spark-submit")
        job_log.close()
        job_log.close()
    assert [record.getMessage() for record in caplog.records] == [
        *("::group::Spark", "Spark-Submit cmd: spark-submit", "::endgroup::")
    ]
