"""Processes: daemons by their pid files; jobs, their folders and output; completion in bash."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from shardpost.embedded.daemons import Daemon, log_hint, session_members, wait_until
from shardpost.errors import ShardpostError
from shardpost.locks.process_identity import stat_of
from shardpost.spark.job import NOISE, job_folder, pass_on, run_job
from tests.support.how_far import some
from tests.support.job_process import wait_for

HEAVY = ("pyspark", "airflow", "confluent_kafka", "deltalake", "pyarrow", "email_validator")
FOLDER = Path(sys.executable).parent
IN_BASH = """
eval "$(_SHARDPOST_COMPLETE=bash_source shardpost)"
COMP_WORDS=({words}); COMP_CWORD={at}
_shardpost_completion shardpost
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
HOLD = """
import os, subprocess, sys
from shardpost.spark.job import job_folder
with job_folder() as folder:
    (folder / "spilled").write_text("x")
    env = {"PATH": os.defpath, "TMPDIR": str(folder)}
    child = subprocess.Popen(["sleep", "600"], env=env, stdout=subprocess.DEVNULL)
    print(folder, child.pid, flush=True)
    sys.stdin.read()
"""
NOISY = "\n".join(
    [
        "WARNING: Using incubator modules: jdk.incubator.vector",
        "WARNING: Using incubator modules: jdk.incubator.foreign",
        "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
        "  WARNING: Using incubator modules: jdk.incubator.vector",
        "shardpost: an error of ours",
        "the last line, without its end",
    ]
)


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


@pytest.mark.parametrize("group", ["", "set -m; "], ids=["its group", "a group of its own"])
def test_stopping_also_ends_what_a_killed_process_left_behind(tmp_path: Path, group: str) -> None:
    daemon = daemon_of(tmp_path, "bash", "-c", f"{group}sleep 300 & exec sleep 301")
    daemon.start()
    session = daemon.pid
    assert session is not None
    wait_until(lambda: len(session_members(session)) == 2, "the child", 10, [daemon])
    os.kill(session, signal.SIGKILL)
    wait_until(lambda: not daemon.alive, "the end", 10)
    assert len(session_members(session)) == 1
    daemon.stop()
    assert session_members(session) == []


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


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def holding() -> tuple["subprocess.Popen[str]", Path, int]:
    """Start a job with a process in its folder; return it, the folder, and that process's id."""
    job = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    folder, child = job.stdout.readline().split()
    return job, Path(folder), int(child)


def test_a_folder_goes_with_its_job_also_when_that_fails(temporary: Path) -> None:
    with pytest.raises(ValueError, match="no"), job_folder() as folder:  # noqa: PT012
        (folder / "deep").mkdir()
        assert folder.parent == temporary
        raise ValueError("no")
    assert list(temporary.iterdir()) == []


def test_what_a_killed_job_left_goes_with_the_next_once_nobody_works_in_it(temporary: Path) -> None:
    job, folder, child = holding()
    with job_folder():
        assert folder.exists()
    job.kill()
    job.communicate()
    with job_folder():
        assert folder.exists()  # its child lives
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: stat_of(child) is None, "its child's end")
    with job_folder():
        assert not folder.exists()
    assert list(temporary.iterdir()) == []


def test_folders_that_are_not_ours_are_left(temporary: Path) -> None:
    (temporary / "shardpost-notes").mkdir()
    (temporary / "shardpost-file").write_text("x")
    with job_folder():
        pass
    assert len(list(temporary.iterdir())) == 2


def run(code: str) -> int:
    return run_job([sys.executable, "-c", code], env=dict(os.environ), cwd=Path.cwd())


def test_exactly_the_known_lines_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(f"import sys; sys.stderr.write({NOISY!r}); sys.exit(3)") == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "WARNING: Using incubator modules: jdk.incubator.foreign",
        "  WARNING: Using incubator modules: jdk.incubator.vector",
        "shardpost: an error of ours",
        "the last line, without its end",
    ]


def test_standard_output_of_a_job_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("print('found')") == 0
    assert capfd.readouterr() == ("", "found\n")


def test_bytes_that_are_no_text_are_passed_on_as_they_are(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    run(r"import sys; sys.stdout.buffer.write(b'\xff\r\n')")
    assert capfdbinary.readouterr().err == b"\xff\r\n"


def test_a_job_is_read_to_its_end_though_nobody_takes_its_lines(tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"a line\n" * 100_000)
    reading, writing = os.pipe()
    os.close(reading)
    descriptor = os.open(source, os.O_RDONLY)
    pass_on(os.fdopen(descriptor, "rb", closefd=False), writing)
    assert os.read(descriptor, 1) == b""
    os.close(descriptor)
    os.close(writing)


def test_the_lines_are_compared_without_their_ends() -> None:
    assert all(line == line.strip() for line in NOISE)


def test_ctrl_c_reaches_nobody_but_the_command_which_ends_the_job_in_silence(
    tmp_path: Path,
) -> None:
    ready = tmp_path / "ready"
    job = f"import pathlib, signal; pathlib.Path({str(ready)!r}).touch(); signal.pause()"
    running = f"""
from pathlib import Path
from shardpost.spark.job import run_job
try:
    run_job([{sys.executable!r}, "-c", {job!r}], env={{}}, cwd=Path())
except KeyboardInterrupt:
    print("interrupted")
"""
    command = subprocess.Popen(
        [sys.executable, "-c", running],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(ready.exists, "the job to begin", seconds=30)
    tree = psutil.Process(command.pid).children(recursive=True)
    os.killpg(command.pid, signal.SIGINT)
    assert command.communicate(timeout=30) == ("interrupted\n", "")
    _, alive = psutil.wait_procs(tree, timeout=30)
    assert alive == []


@pytest.mark.parametrize(
    ("words", "expected"),
    some(
        [
            ("shardpost comp", ["compact"]),
            ("shardpost letters re", ["redrive"]),
            ("shardpost tables maintain --d", ["--dry-run"]),
            ("shardpost letters list --state pa", ["parked"]),
            ("shardpost compact --rec", ["--reconcile"]),
            ("shardpost letters discard --b", ["--by"]),
        ]
    ),
)
def test_bash_completes_commands_options_and_their_values(words: str, expected: list[str]) -> None:
    script = IN_BASH.format(words=words, at=len(words.split()) - 1)
    environ = os.environ | {"PATH": f"{FOLDER}:{os.environ['PATH']}"}
    # Settings that are wrong are no reason not to complete.
    environ |= {"SHARDPOST_NONSENSE": "1"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.parametrize("words", ["shardpost ", "shardpost letters redrive --", "shardpost comp"])
def test_completing_imports_nothing_heavy(words: str) -> None:
    program = (
        "import sys\nfrom shardpost import cli\n"
        "try:\n    cli.main()\n"
        f"finally:\n    print(*sorted({{*sys.modules}} & {{*{HEAVY}}}), file=sys.stderr)"
    )
    at = str(len(words.split()) - (not words.endswith(" ")))
    complete = {"_SHARDPOST_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": at}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | complete,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (bool(done.stdout), done.stderr) == (True, "\n")
