"""The examination of `shardpost doctor`, and its checks that need no outside."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import create_autospec

import pytest

from shardpost.delta.snapshot import NEVER, Counts, Snapshot
from shardpost.embedded import airflow, broker, daemons, sink
from shardpost.embedded.daemons import wait_until
from shardpost.errors import ShardpostError, UsageError
from shardpost.installation import Installation
from shardpost.locks.locks import Held, exclusive, path_of
from shardpost.locks.process_identity import stat_of
from shardpost.run_requests.airflow_api import AirflowApi
from shardpost.settings import Settings
from shardpost.spark import jars
from shardpost.values.holding_rule import Rule
from shardpost.watch import audit, doctor
from shardpost.watch.audit import check_kafka, check_version
from shardpost.watch.doctor import CHECKS, bounded, examine, impatient
from shardpost.watch.machine_checks import (
    check_folder,
    check_lock,
    check_locks,
    check_machine,
)
from shardpost.watch.model.doctor_finding import (
    DoctorFinding,
    error,
    ok,
    refused,
    unknown,
    warning,
)
from shardpost.watch.stack_checks import check_airflow, check_dags, check_ports
from shardpost.watch.table_checks import check_freshness
from tests.support.command_line import CommandLineHere
from tests.support.installed import installed

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)
GIB = 1024**3
FINE = ok("e", "is fine")


def wrong_settings() -> Installation:
    raise UsageError("unknown setting SHARDPOST_HOEM: did you mean SHARDPOST_HOME?")


def test_ok_and_unknown_need_no_attention_and_warnings_and_errors_do() -> None:
    fine = (ok("a", "is there"), unknown("b", "cannot be known"))
    wrong = (warning("c", "1", "2", "do it"), error("c", "1", "2", "do it"))
    needs = [one.needs_attention for one in (*fine, *wrong)]
    assert needs == [False, False, True, True]


def test_the_cure_of_a_refusal_is_the_first_command_that_it_names() -> None:
    said = "no topic x in `memory`: run `shardpost topics apply`, or `shardpost down`"
    assert refused("x", ShardpostError(said)).cure == "shardpost topics apply"
    assert refused("x", ShardpostError(said), "decide").cure == "decide"
    assert refused("x", ShardpostError("no command")).cure is None


def test_wrong_settings_are_named_and_what_depends_on_them_is_unknown() -> None:
    found = {one.check: one for one in examine(wrong_settings, NOW)}
    assert found["settings"].state == "error"
    assert "SHARDPOST_HOEM" in found["settings"].found
    assert {found[name].state for name in CHECKS} == {"unknown"}


def test_a_check_that_fails_or_hangs_stops_no_other() -> None:
    hangs, never = Event(), timedelta(seconds=60).total_seconds()

    def hanging() -> Iterator[DoctorFinding]:
        yield ok("first", "is reported")
        hangs.wait(never)

    def failing() -> Iterator[DoctorFinding]:
        raise ZeroDivisionError("by zero")

    def refusing() -> Iterator[DoctorFinding]:
        raise ShardpostError("the topic x is missing")

    def unreadable() -> Iterator[DoctorFinding]:
        raise PermissionError(13, "Permission denied", "/x")

    began = time.monotonic()
    checks = {"a": hanging, "b": failing, "c": refusing, "d": unreadable, "e": lambda: [FINE]}
    found = bounded(checks, seconds=0.3)
    hangs.set()
    assert time.monotonic() - began < 5
    assert [(one.check, one.state) for one in found] == [
        ("first", "ok"),
        ("a", "warning"),
        ("b", "warning"),
        ("c", "error"),
        ("d", "error"),
        ("e", "ok"),
    ]
    assert found[1].found == "the check did not finish within 0.3 s"
    assert found[2].found == "the check failed: ZeroDivisionError: by zero"
    assert found[4].found == "[Errno 13] Permission denied: '/x'"


def test_it_waits_two_seconds_for_each_answer(settings: Settings) -> None:
    hasty = impatient(installed(settings)).settings
    assert (hasty.kafka_timeout, hasty.smtp_timeout) == (2, 2)


def test_the_command_prints_what_was_found_and_ends_with_3(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    shardpost = CommandLineHere(settings.environ())
    found = [ok("java", "17"), warning("dag x", "paused\x1b[1m", "not paused", "unpause x")]
    monkeypatch.setattr(doctor, "examine", lambda *_: found)
    assert shardpost("doctor", code=3).splitlines() == [
        "ok       java   17",
        "warning  dag x  paused\ufffd[1m",
        "                expected: not paused",
        "                fix: unpause x",
    ]
    assert shardpost.json("doctor", code=3)[0] == {
        "check": "java",
        "state": "ok",
        "found": "17",
        "expected": None,
        "cure": None,
    }


@pytest.mark.parametrize(
    ("level", "state", "said"),
    [(29, "ok", "Kafka 4.2"), (None, "unknown", "not reported"), (30, "warning", "KAFKA-20734")],
)
def test_a_release_of_kafka_that_loses_data_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, level: int | None, state: str, said: str
) -> None:
    monkeypatch.setattr(audit, "broker_level", lambda *_: level)
    found = check_version(installed(settings).kafka)
    assert (found.state, said in found.found) == (state, True)


def test_an_image_without_the_embedded_broker_lacks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "JARS", tmp_path)
    assert [*check_machine()][1].state == "error"
    folder = tmp_path / "spark"
    folder.mkdir()
    (folder / "kafka-clients.jar").touch()
    assert [*check_machine()][1] == ok("jars", "1 of Spark")


@pytest.mark.parametrize(
    ("free", "state"), [(0.5 * GIB, "error"), (2 * GIB, "warning"), (6 * GIB, "ok")]
)
def test_a_disk_is_judged_by_its_free_space(tmp_path: Path, free: float, state: str) -> None:
    assert check_folder("home", tmp_path / "not" / "yet", int(free)).state == state


def test_no_lock_is_held_by_a_file_that_a_dead_process_left(settings: Settings) -> None:
    with exclusive(installed(settings).files, "it", "the job"):
        pass
    assert path_of(installed(settings).files, "it").exists()
    assert list(check_locks(installed(settings), NOW)) == [ok("locks", "none held")]


def test_a_lock_says_who_holds_it_since_when_and_is_not_touched(settings: Settings) -> None:
    with exclusive(installed(settings).files, "it", "the job"):
        [found] = check_locks(installed(settings), datetime.now(UTC))
    assert (found.check, found.state) == ("lock it", "ok")
    assert f"held by pid {os.getpid()} since 20" in found.found


def test_a_lock_of_a_stopped_process_or_held_for_long_needs_attention() -> None:
    since = datetime(2026, 11, 23, 7, tzinfo=UTC)
    lock = Held("it", os.getpid(), since)
    assert check_lock(replace(lock, since=since - timedelta(hours=23)), NOW).state == "warning"
    assert check_lock(lock, NOW).state == "ok"
    elsewhere = check_lock(replace(lock, host="b", is_renewed=False), NOW)
    assert elsewhere.state == "warning"
    assert f"pid {os.getpid()} on b since 2026-11-23 07:00 UTC, which does" in elsewhere.found
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        os.kill(process.pid, signal.SIGSTOP)

        def is_stopped() -> bool:
            stat = stat_of(process.pid)
            return bool(stat and stat.state == "T")

        wait_until(is_stopped, "the process", 10)
        found = check_lock(replace(lock, pid=process.pid), NOW)
        process.kill()
    assert (found.state, found.cure) == ("warning", f"kill -CONT {process.pid} (or -KILL)")


@pytest.mark.parametrize(("hours", "state"), [(0.5, "ok"), (3, "warning"), (25, "error")])
def test_a_snapshot_that_was_not_looked_at_for_long_needs_a_compaction(
    hours: float, state: str
) -> None:
    at = NOW - timedelta(hours=hours)
    snapshot = Snapshot(7, at, at, {}, {}, Counts(), Rule("US"), 1, "1", "run")
    found = check_freshness(snapshot, NOW, timedelta(hours=1))
    assert found.state == state
    assert found.cure == (None if state == "ok" else "shardpost compact")


def test_a_snapshot_of_the_future_or_of_no_known_time_is_an_error() -> None:
    made = Snapshot(7, NOW, NOW, {}, {}, Counts(), Rule("US"), 1, "1", "run")
    ahead = check_freshness(
        replace(made, looked_at=NOW + timedelta(days=8)), NOW, timedelta(hours=1)
    )
    assert ahead.state == "error"
    assert "a clock was ahead" in str(ahead.expected)
    never = check_freshness(replace(made, looked_at=NEVER), NOW, timedelta(hours=1))
    assert never.state == "error"
    assert never.found == "number 7, inputs never read to their ends"


@pytest.mark.parametrize(
    ("state", "cure"),
    [
        ("broken: not running: scheduler", "shardpost up"),
        ("unhealthy: scheduler", "shardpost down && shardpost up"),
    ],
)
def test_a_dead_scheduler_is_one_finding_with_one_cure(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, state: str, cure: str
) -> None:
    monkeypatch.setattr(daemons, "port_is_free", lambda _port: False)
    for service in (airflow, broker, sink):
        found = {"state": state} if service is airflow else {"state": "up"}
        monkeypatch.setattr(service, "state", lambda _, found=found: found)
    report = [*check_ports(installed(settings), NOW), *check_airflow(installed(settings), NOW)]
    [wrong] = [one for one in report if one.state != "ok"]
    assert (wrong.check, wrong.found, wrong.cure) == ("airflow", state, cure)


def test_a_port_that_another_has_is_one_cure_for_what_should_be_there(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "is_reachable", lambda *_: False)
    for is_free, cure in ((True, "shardpost up"), (False, "see the fix of `port of kafka`")):
        monkeypatch.setattr(audit, "port_is_free", lambda _port, is_free=is_free: is_free)
        assert next(check_kafka(installed(settings), NOW)).cure == cure


def test_dags_that_are_broken_or_paused_are_named_with_the_command() -> None:
    found: dict[str, Any] = {
        "/api/v2/importErrors?limit=100": {"import_errors": []},
        "/api/v2/dags?limit=100": {"dags": [{"dag_id": "weekly_email", "is_paused": False}]},
    }
    api = create_autospec(AirflowApi, instance=True)
    api.get.side_effect = found.__getitem__
    assert list(check_dags(api)) == [ok("airflow dags", "1, none broken or paused")]
    found["/api/v2/dags?limit=100"]["dags"][0]["is_paused"] = True
    broken = {"filename": "dags/x.py", "stack_trace": "Traceback\n  x\nNameError: y\n"}
    found["/api/v2/importErrors?limit=100"]["import_errors"] = [broken]
    file, dag = check_dags(api)
    assert (file.check, file.state, file.found) == ("dag file dags/x.py", "error", "NameError: y")
    assert dag.state == "warning"
    assert dag.cure == "shardpost airflow dags unpause weekly_email"
