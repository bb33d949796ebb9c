"""Daemons by pid file: whose process a pid is."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardpost.embedded.daemons import (
    Daemon,
    group_members,
    log_hint,
    stat_of,
    wait_until,
)
from shardpost.errors import ShardpostError


def daemon_of(folder: Path, *command: str) -> Daemon:
    return Daemon(
        "sleeper", command, dict(os.environ), folder / "sleeper.log", folder / "sleeper.pid"
    )


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Daemon]:
    daemon = daemon_of(tmp_path, "sleep", "300")
    daemon.start()
    yield daemon
    daemon.stop()


def pretend(daemon: Daemon, **other: object) -> None:
    assert daemon.identity is not None
    daemon.pid_file.write_text(json.dumps(daemon.identity._asdict() | other))


def test_the_start_of_a_process_is_counted_from_boot() -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    stat = stat_of(os.getpid())
    assert stat is not None
    assert (stat.group, stat.started) == (int(fields[2]), int(fields[19]))


def test_what_was_started_is_alive_until_it_is_stopped(sleeper: Daemon) -> None:
    pid = sleeper.pid
    assert pid is not None
    assert stat_of(pid) is not None
    sleeper.stop()
    assert not sleeper.alive
    assert stat_of(pid) is None
    sleeper.stop()


@pytest.mark.parametrize("other", [{"started": 1}, {"boot": "another"}])
def test_a_pid_that_belongs_to_another_is_neither_taken_for_ours_nor_killed(
    tmp_path: Path, sleeper: Daemon, other: dict[str, object]
) -> None:
    pid, copy = sleeper.pid, daemon_of(tmp_path, "sleep", "300")
    assert pid is not None
    whose = sleeper.pid_file.read_text()
    pretend(copy, **other)
    assert not copy.alive
    copy.stop()
    assert stat_of(pid) is not None
    sleeper.pid_file.write_text(whose)


@pytest.mark.parametrize("text", ["", "4711", "{}", '{"pid":'])
def test_a_pid_file_without_content_names_no_process(tmp_path: Path, text: str) -> None:
    daemon = daemon_of(tmp_path, "sleep", "300")
    daemon.pid_file.write_text(text)
    assert not daemon.alive
    daemon.stop()


def test_stopping_also_ends_what_a_killed_process_left_behind(tmp_path: Path) -> None:
    daemon = daemon_of(tmp_path, "bash", "-c", "sleep 300 & exec sleep 301")
    daemon.start()
    group = daemon.pid
    assert group is not None
    wait_until(lambda: len(group_members(group)) == 2, "the child", 10, [daemon])
    os.kill(group, signal.SIGKILL)
    wait_until(lambda: not daemon.alive, "the end", 10)
    assert len(group_members(group)) == 1
    daemon.stop()
    assert group_members(group) == []


def test_what_does_not_heed_term_is_killed(tmp_path: Path) -> None:
    daemon = daemon_of(tmp_path, "bash", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done")
    daemon.start()
    wait_until(lambda: "deaf" in daemon.log.read_text(), "the trap", 10, [daemon])
    daemon.stop(0.2)
    assert not daemon.alive


def test_nothing_of_the_callers_output_stays_open(tmp_path: Path) -> None:
    code = f"""
import sys
import time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from shardpost.embedded.daemons import Daemon
folder = Path({str(tmp_path)!r})
Daemon("sleeper", ["sleep", "300"], {{}}, folder / "x.log", folder / "x.pid").start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=20, check=True)
    assert done.stdout == b""
    daemon = Daemon("sleeper", [], {}, tmp_path / "x.log", tmp_path / "x.pid")
    assert daemon.alive
    daemon.stop()


def test_waiting_ends_at_once_when_the_daemon_died_and_gives_the_end_of_its_log(
    tmp_path: Path,
) -> None:
    daemon = daemon_of(tmp_path, "bash", "-c", "echo no such thing; exit 3")
    daemon.start()
    with pytest.raises(ShardpostError, match=r"ended while starting.*ends: no such thing"):
        wait_until(lambda: False, "the sleeper", 60, [daemon])


def test_waiting_ends_after_its_time_and_says_for_what(sleeper: Daemon) -> None:
    with pytest.raises(ShardpostError, match=r"the moon: not ready within 0\.1 s"):
        wait_until(lambda: False, "the moon", 0.1, [sleeper])


def test_a_command_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ShardpostError, match=r"cannot be started.*no-such-command"):
        daemon_of(tmp_path, "no-such-command").start()


def test_a_halted_process_is_stopped_without_waiting_for_the_deadline(sleeper: Daemon) -> None:
    assert sleeper.pid is not None
    os.kill(sleeper.pid, signal.SIGSTOP)
    since = time.monotonic()
    sleeper.stop(20)
    assert time.monotonic() - since < 10


@pytest.mark.parametrize(
    ("last", "is_named"),
    [
        ("10:41 WARN The metadata log appears to be empty. Appending 6 bootstrap record(s)", False),
        ("10:41 ERROR Shutdown broker because all log dirs have failed", True),
        ("java.lang.OutOfMemoryError: Java heap space", True),
    ],
)
def test_the_last_line_of_a_log_is_shown_where_it_reports_a_failure(
    tmp_path: Path, last: str, is_named: bool
) -> None:
    log = tmp_path / "kafka.log"
    log.write_text(f"10:40 ERROR long ago\n{last}\n")
    assert log_hint(log) == (f"its log {log} ends: {last}" if is_named else f"its log is {log}")
